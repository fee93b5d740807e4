"""The utterances of a part of LibriSpeech (FLAC files with transcripts), as tables of a data directory.

1088/134315/1088-134315-0000.flac      utterance READER-CHAPTER-NUMBER, speaker READER-CHAPTER, as in Kaldi's
                                       recipe
1088/134315/1088-134315.trans.txt      1088-134315-0000 SO IT IS
SPEAKERS.TXT                           1088 | F | train-clean-100 | 25.00 | NAME, which may contain |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import as_named
from pyasr.corpora.conversations import SkippedItems
from pyasr.corpora.discs import PACKED, files_by_name, paths_below
from pyasr.corpora.texts import lines_of
from pyasr.data.audio import audio_ends, flac_length
from pyasr.io.content import open_file, readable
from pyasr.io.text_tables import read_lines

RATE_HZ = 16_000
_UTTERANCE = re.compile(r"\d+-\d+-\d+")
_ALONE = 2000  # up to this number of files, one process is faster than starting several
_AT_ONCE = 200  # files per task of a process
_MAX_NAMED = 5


@dataclass(frozen=True)
class ReadUtterance:
    """An utterance of a reader; `seconds` comes from the header of its FLAC file."""

    name: str
    audio: Path
    seconds: float
    text: str

    @property
    def speaker(self) -> str:
        """The reader of a chapter."""
        return self.name.rpartition("-")[0]

    @property
    def reader(self) -> str:
        return self.name.partition("-")[0]


@dataclass(frozen=True)
class Sources:
    """The files of a part: {utterance: FLAC file}, {chapter: transcripts}."""

    audio: dict[str, Path]
    transcripts: dict[str, Path]

    @classmethod
    def of(cls, folders: list[Path]) -> Sources:
        """The files in the folders of a part. Raises UserError if there is no audio or no transcript."""
        paths = list(paths_below(folders))
        found = cls(
            files_by_name(paths, r"(\d+-\d+-\d+)\.flac"),
            files_by_name(paths, rf"(\d+-\d+)\.trans\.txt{PACKED}"),
        )
        for files, form in (
            (found.audio, "READER-CHAPTER-NUMBER.flac"),
            (found.transcripts, "READER-CHAPTER.trans.txt"),
        ):
            if not files:
                raise UserError(
                    f"{', '.join(map(str, folders))}: no file {form} below; unpack its archive again"
                )
        return found

    def lines(self) -> Iterator[str]:
        """A line per file. The lines change when a file is added, removed or replaced."""
        for path in self.audio.values():
            yield f"{path} {path.stat().st_size}"
        for path in self.transcripts.values():
            yield f"{path} {sha256(path.read_bytes()).hexdigest()}"


def read_utterances(sources: Sources, num_processes: int, skipped: SkippedItems) -> list[ReadUtterance]:
    """The utterances with complete audio of one channel at 16 kHz and a transcript with words, sorted; others
    are added to `skipped`.

    Raises UserError for a file of transcripts with lines in another format, or not in UTF-8.
    """
    texts = _read_transcripts(sources.transcripts, skipped)
    for name in sorted(sources.audio.keys() - texts.keys()):
        skipped.add("audio without a transcript", name)
    for name in sorted(texts.keys() - sources.audio.keys()):
        skipped.add("a transcript without audio", name)
    names = sorted(texts.keys() & sources.audio.keys())
    looks = _inspect_all([sources.audio[name] for name in names], num_processes)
    found = []
    for name, (seconds, complaint) in zip(names, looks):
        if complaint or not texts[name]:
            skipped.add(complaint or "a transcript without words", name)
        else:
            found.append(ReadUtterance(name, sources.audio[name], seconds, texts[name]))
    return found


def _read_transcripts(files: dict[str, Path], skipped: SkippedItems) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in files.values():
        for number, line in enumerate(read_lines(path), 1):
            name, *words = line.split() or [""]
            if name and not _UTTERANCE.fullmatch(name):
                raise UserError(
                    f"{path}:{number}: '{name}' is not READER-CHAPTER-NUMBER; unpack the archive of this "
                    "part again"
                )
            if name and texts.setdefault(name, " ".join(words)) != " ".join(words):
                skipped.add("a second transcript with other words", name)
    return texts


def _inspect_all(paths: list[Path], num_processes: int) -> Iterator[tuple[float, str]]:
    """`inspect_flac` of all files."""
    if num_processes == 1 or len(paths) < _ALONE:
        yield from map(inspect_flac, paths)
        return
    progress = log.Progress("looking at audio", len(paths), "files")
    with ProcessPoolExecutor(num_processes) as pool:
        for number, look in enumerate(pool.map(inspect_flac, paths, chunksize=_AT_ONCE), 1):
            progress.update(number)
            yield look


def inspect_flac(path: Path) -> tuple[float, str]:
    """(seconds, why the file is not usable or ''), from its header and its last frame."""
    with open_file(path) as file, readable(path):
        head = file.read(flac_length.HEADER_BYTES)
        if not flac_length.is_flac(head):
            return 0.0, "audio that is not a FLAC file"
        rate, num_channels, num_samples = flac_length.stream_info(head)
        if (rate, num_channels) != (RATE_HZ, 1):
            return 0.0, f"audio that is not of one channel at {RATE_HZ} Hz"
        if not num_samples or not audio_ends.ends_well(file, head, os.fstat(file.fileno()).st_size):
            return 0.0, "audio that is truncated"
    return num_samples / rate, ""


def read_sexes(folders: list[Path]) -> dict[str, str]:
    """{reader: m or f} from the files SPEAKERS.TXT next to the folders of parts; other content is ignored."""
    sexes = {}
    for path in speaker_tables(folders):
        for line in lines_of(path.read_bytes(), path):
            fields = [field.strip().lower() for field in line.split("|", 4)]
            if len(fields) == 5 and fields[1] in ("m", "f"):
                sexes[fields[0]] = fields[1]
    return sexes


def speaker_tables(folders: list[Path]) -> list[Path]:
    """The files SPEAKERS.TXT (case-insensitive) next to the folders of parts."""
    parents = {folder.parent: None for folder in folders}
    return [
        path
        for parent in parents
        for path in sorted(parent.iterdir())
        if path.name.lower() == "speakers.txt" and path.is_file()
    ]


def tables_of(utterances: list[ReadUtterance], sexes: dict[str, str]) -> dict[str, dict[str, object]]:
    """The tables of the data directory of these utterances; spk2gender if the sex of all readers is known."""
    tables: dict[str, dict[str, object]] = {
        "wav.scp": {u.name: as_named(u.audio) for u in utterances},
        "text": {u.name: u.text for u in utterances},
        "utt2spk": {u.name: u.speaker for u in utterances},
        "utt2dur": {u.name: u.seconds for u in utterances},
    }
    unknown = sorted({u.reader for u in utterances} - sexes.keys(), key=int)
    if unknown:
        named = " ".join(unknown[:_MAX_NAMED]) + " ..." * (len(unknown) > _MAX_NAMED)
        log.warning(
            f"no spk2gender is written: SPEAKERS.TXT is missing, or lacks the sex of the readers {named}"
        )
    else:
        tables["spk2gender"] = {u.speaker: sexes[u.reader] for u in utterances}
    return tables
