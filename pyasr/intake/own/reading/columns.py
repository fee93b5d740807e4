"""Recognise the columns of a table of utterances by their names or contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.table_files import Row

NAMES = {  # names of columns; the first that exists is used
    "file": (
        "path audio_path audio_file audio_filepath audiofile wav_path wav_filename wav_file wav file_name "
        "filename file audio clip recording utterance_id utt_id id name utterance utt"
    ),
    "text": (
        "normalized_text normalised_text normalized normalised normalized_transcription sentence transcript "
        "transcription text words raw_text raw raw_transcription"
    ),
    "speaker": "client_id speaker_id speaker speaker_name spk_id spk spkid user_id user reader reader_id",
    "begin": "start start_time begin begin_time start_s begin_s offset",
    "end": "end end_time stop end_s",
    "duration": "duration dur length",
    "part": "split subset partition set",
    "gender": "gender sex",
}
_NUM_LOOKED_AT = 200
_FEW_WORDS = 1.5  # mean number of words in a column without sentences


def is_header(row: Row, is_file: Callable[[str], bool]) -> bool:
    """Whether a row is a header: it contains two known column names, or one and no file name."""
    known = [field for field in row.fields if _plain(field) in _meanings()]
    return len(known) > 1 or bool(known) and not any(map(is_file, row.fields))


def find_columns(
    path: Path, rows: list[Row], given: str | None, is_file: Callable[[str], bool]
) -> tuple[dict[str, int], list[Row]]:
    """({meaning: index of its column}, the rows without the header, whose names may be unknown). Raises
    UserError if the column of files or texts cannot be recognised."""
    has_header = is_header(rows[0], is_file)
    if given:
        columns = _given(given, len(rows[0].fields), path)
    else:
        columns = _by_names(rows[0].fields) if has_header else _by_contents(rows[1:] or rows, is_file)
    has_header = has_header or _is_heading(
        [row.fields[columns["file"]] for row in rows] if "file" in columns else [], is_file
    )
    body = rows[1:] if has_header else rows
    missing = [meaning for meaning in ("file", "text") if meaning not in columns]
    if missing or not body:
        column = "audio file" if "file" in missing else "text"
        message = f"the column of the {column} is not recognised" if missing else "no rows below the header"
        shown = ", ".join(field[:30] for field in rows[0].fields)
        raise UserError(
            f"{path}:{rows[0].line}: {message} ({shown}); name the columns, for example --columns "
            "file,text,speaker"
        )
    return columns, body


def _is_heading(column: list[str], is_file: Callable[[str], bool]) -> bool:
    """Whether the first field is the header of the column of files: a word without digits that is not a file,
    above fields that mostly are."""
    first, rest = column[:1], column[1 : 1 + _NUM_LOOKED_AT]
    if not rest or is_file(first[0]) or any(map(str.isdigit, first[0])):
        return False
    return sum(map(is_file, rest)) > len(rest) / 2


def _plain(field: str) -> str:
    return "_".join(field.lower().replace("-", " ").replace("_", " ").split())


def _meanings() -> set[str]:
    return {name for names in NAMES.values() for name in names.split()}


def _by_names(fields: list[str]) -> dict[str, int]:
    plain = [_plain(field) for field in fields]
    found = {
        meaning: [plain.index(name) for name in names.split() if name in plain]
        for meaning, names in NAMES.items()
    }
    return {meaning: places[0] for meaning, places in found.items() if places}


def _given(text: str, num: int, path: Path) -> dict[str, int]:
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word not in (*NAMES, "-")]:
        raise UserError(
            f"--columns: '{unknown[0]}' is not one of {' '.join(NAMES)} -; give one for each column"
        )
    if len(words) != num:
        raise UserError(
            f"--columns: {len(words)} are given, but {path} has {num}; give one for each, '-' for columns "
            "to ignore"
        )
    return {word: place for place, word in enumerate(words) if word != "-"}


def _by_contents(rows: list[Row], is_file: Callable[[str], bool]) -> dict[str, int]:
    """The column of file names, the last column of sentences, and a further column with repeated values, the
    speakers.

    If no column contains sentences, the first column other than the files is the text.
    """
    looked_at = rows[:_NUM_LOOKED_AT]
    columns = list(zip(*(row.fields for row in looked_at)))
    shares = [sum(map(is_file, column)) / len(column) for column in columns]
    file = max(range(len(columns)), key=lambda i: shares[i])
    if shares[file] == 0:
        return {}
    others = [i for i in range(len(columns)) if i != file]
    sentences = [
        i for i in others if sum(len(field.split()) for field in columns[i]) > _FEW_WORDS * len(looked_at)
    ]
    if not others:
        return {}
    text = sentences[-1] if sentences else others[0]
    speakers = [i for i in others if i not in (text, *sentences) and _repeats(columns[i])]
    return {"file": file, "text": text, **({"speaker": speakers[0]} if speakers else {})}


def _repeats(column: tuple[str, ...]) -> bool:
    """Whether the fields are single words, each occurring more than once on average."""
    return all(len(field.split()) == 1 for field in column) and (
        len(column) < 3 or len(set(column)) <= 2 * len(column) / 3
    )
