"""A folder of audio with tables: one line per utterance with its file, its text, and perhaps its speaker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.audio_files import check_any, is_audio, recording_of, stem_of
from pyasr.intake.own.reading.columns import find_columns, is_header
from pyasr.intake.own.reading.own_corpus import (
    Corpus,
    Faults,
    OwnRecording,
    OwnUtterance,
    ReadingOptions,
    named,
    part_of,
)
from pyasr.intake.own.reading.table_files import SUFFIXES, Row, delimiter_of, read_rows
from pyasr.intake.own.reading.text_files import text_in
from pyasr.intake.own.sources.kinds import Kind, Places, register

_UNUSED = {  # of Common Voice; lists of checksums
    "reported",
    "invalidated",
    "other",
    "validated_sentences",
    "unvalidated_sentences",
    "clip_durations",
    "checksum",
    "checksums",
    *(f"{kind}{ending}" for kind in ("md5", "sha1", "sha256", "sha512") for ending in ("", "sum", "sums")),
}
_NUM_LOOKED_AT = 3
_GENDERS = {"f": "f", "female": "f", "w": "f", "woman": "f", "m": "m", "male": "m", "man": "m"}


def tables_of(places: Places) -> list[Path]:
    """The tables: files that were given; without any, tables directly in the given folders; without any,
    tables in their subfolders.

    A file with the name of an audio file is its transcript, not a table. If tables are called train, dev or
    test, others are ignored.
    """
    if given := [path for path in places.files if path.suffix.lower() in SUFFIXES]:
        return given
    stems = {stem_of(path.name).casefold() for path in places.audio}
    wanted = [
        path for path in places.below if path.suffix.lower() in SUFFIXES and path.stem.casefold() not in stems
    ]
    tables = [path for path in wanted if path.stem.lower() not in _UNUSED and _is_table(path, places)]
    found = [path for path in tables if path.parent in places.folders] or tables
    with_parts = [path for path in found if part_of(path.name)]
    return with_parts if any(part_of(path.name) == "train" for path in with_parts) else found


def _is_table(path: Path, places: Places) -> bool:
    """Whether the first rows of a file name audio files, or have known column headers."""
    try:
        rows, is_of_words = read_rows(path), delimiter_of(text_in(path)) == " "
    except UserError:
        return path.suffix.lower() != ".txt"  # the error is reported when the table is read
    is_file = _FileTest(places, path)
    rows = [row for row in rows[:_NUM_LOOKED_AT] if len(row.fields) > 1]
    return bool(rows) and (
        not is_of_words
        and is_header(rows[0], is_file)
        or any(is_file(field) for row in rows for field in row.fields)
    )


class _FileTest:
    """Whether a field names an audio file of the corpus."""

    def __init__(self, places: Places, table: Path):
        self.places, self.table = places, table

    def __call__(self, field: str) -> bool:
        try:
            return is_audio(Path(field)) or bool(field) and self.find(field) is not None
        except UserError:
            return True  # the error is reported when the row is read

    def find(self, field: str) -> Path | None:
        """The audio file of a field: a path from the table's folder, or the end of a path; None if there is
        none. Raises UserError if several files match."""
        path = self.table.parent / field
        return path if is_audio(path) and path.is_file() else self.places.index.find(field)


def read(places: Places, options: ReadingOptions) -> Corpus:
    """The utterances of all tables."""
    tables = tables_of(places)
    folders = Counter(path.parent for path in tables if not part_of(path.name))
    if not places.files and max(folders.values(), default=0) > 1:
        raise UserError(
            f"{places}: several tables: {named([path.name for path in tables])}; "
            "give the one to read, and the folder of its audio"
        )
    if places.folders:
        check_any(places.below, places.folders[0])
    audio = places if places.folders else Places(list(dict.fromkeys(table.parent for table in tables)))
    corpus = Corpus(f"a table of audio files ({named([path.name for path in tables])})")
    faults = Faults(options.skip_bad)
    for table in tables:
        _read_table(
            _Table(table, audio, options), corpus, faults, part_of(table.name) if len(tables) > 1 else ""
        )
    corpus.notes += faults.settle(places)
    _note_unused(corpus, places.audio)
    return corpus


class _Table:
    """A table with its columns."""

    def __init__(self, path: Path, places: Places, options: ReadingOptions):
        self.path, self.files = path, _FileTest(places, path)
        rows = read_rows(path)
        self.columns, self.rows = find_columns(path, rows, options.columns, self.files)
        self.names = rows[0].fields if len(self.rows) < len(rows) else None

    @property
    def message(self) -> str:
        """Which column is what: 'columns of meta.csv: file 1 (Datei), text 2 (Satz)'."""
        named = {place: f" ({self.names[place]})" if self.names else "" for place in self.columns.values()}
        return f"columns of {self.path.name}: " + ", ".join(
            f"{name} {place + 1}{named[place]}" for name, place in self.columns.items()
        )

    def field(self, row: Row, meaning: str) -> str:
        """The field of a row in the column with this meaning; '' if there is no such column."""
        return row.fields[self.columns[meaning]] if meaning in self.columns else ""

    def second(self, row: Row, meaning: str) -> float:
        """A time of a row in seconds. Raises UserError if the field is not a number."""
        text = self.field(row, meaning)
        try:
            return float(text.replace(",", "."))
        except ValueError:
            message = f"'{text[:20]}', the {meaning} of an utterance, is not a number of seconds"
            raise UserError(f"{self.path}:{row.line}: {message}; correct the table") from None


def _read_table(table: _Table, corpus: Corpus, faults: Faults, part: str) -> None:
    corpus.notes.append(table.message)
    unreadable: set[str] = set()
    for row in table.rows:
        name = table.field(row, "file")
        path = table.files.find(name) if name else None
        if path is None:
            place = f"{name or '-'} (line {row.line})"
            faults.add("rows with missing audio files", "add the files, or remove the rows", place)
            continue
        entry = str(path.absolute())
        if entry not in corpus.recordings and entry not in unreadable:
            if recording := recording_of(entry, f"{name} in line {row.line}", faults):
                corpus.recordings[entry] = recording
            else:
                unreadable.add(entry)
        if entry in corpus.recordings:
            corpus.utterances.append(_utterance(table, row, corpus.recordings[entry], part))


def _times(table: _Table, row: Row, seconds: float) -> tuple[float | None, float | None]:
    """(begin, end) of a row in seconds; None for both if the table has no begins. Without a column of ends or
    durations, the utterance ends with its recording."""
    if "begin" not in table.columns:
        return None, None
    begin = table.second(row, "begin")
    if "end" in table.columns:
        return begin, table.second(row, "end")
    return begin, begin + table.second(row, "duration") if "duration" in table.columns else seconds


def _utterance(table: _Table, row: Row, recording: OwnRecording, part: str) -> OwnUtterance:
    begin, end = _times(table, row, recording.seconds)
    speaker, text = table.field(row, "speaker") or None, table.field(row, "text")
    gender = _GENDERS.get(table.field(row, "gender").lower().partition("_")[0], "")  # such as male_masculine
    part = part or part_of(table.field(row, "part"))
    return OwnUtterance(
        stem_of(Path(recording.entry).name), recording.entry, text, speaker, begin, end, part, gender
    )


def _note_unused(corpus: Corpus, audio: list[Path]) -> None:
    used = set(corpus.recordings)
    if unused := [path.name for path in audio if str(path.absolute()) not in used]:
        corpus.notes.append(f"left out: audio files that are in no table: {named(unused)}")


register(
    Kind(
        "a folder of audio with a table (TSV, CSV: file, text, speaker)",
        30,
        lambda places: bool(tables_of(places)),
        read,
    )
)
