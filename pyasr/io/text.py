"""Kaldi's text tables: one entry a line, the first word is the key, the rest of the line its value."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write
from pyasr.base.utf8 import text_of
from pyasr.io.content import read_content

_MOST_NUMBER = 1e12


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file, plain or compressed. Raises UserError when it is not there or not text."""
    text = text_of(read_content(path), path)
    return text.removesuffix("\n").split("\n") if text else []


def read_table(path: Path) -> dict[str, str]:
    """{key: rest of the line}, in the file's order; the rest is '' where there is none.

    Raises UserError with file and line for an empty line, a duplicated key, or a file that is not there.
    """
    table = {}
    for number, line in enumerate(read_lines(path), 1):
        key, _, value = line.strip().partition(" ") if "\t" not in line else _split_at_blank(line.strip())
        if not key:
            raise UserError(f"{path}:{number}: empty line; remove it")
        if key in table:
            raise UserError(f"{path}:{number}: '{key}' stands here a second time; keep one of the two lines")
        table[key] = value.strip()
    return table


def _split_at_blank(line: str) -> tuple[str, str, str]:
    """`partition` at the first blank of any kind."""
    words = line.split(maxsplit=1)
    return (words[0] if words else "", " ", words[1] if len(words) > 1 else "")


def read_utt2spk(path: Path) -> dict[str, str]:
    """{utterance: speaker}. Raises UserError with file and line for a line that does not have two columns, and where there is none."""
    table = read_table(path)
    if not table:
        raise UserError(f"{path}: no utterances; make the directory again")
    for number, (utterance, speaker) in enumerate(table.items(), 1):
        if len(speaker.split()) != 1:
            found = f"{1 + len(speaker.split())} column(s), expected 'UTTERANCE SPEAKER'"
            raise UserError(f"{path}:{number}: '{utterance} {speaker}': {found}; run utils/fix_data_dir.py {Path(path).parent}")
    return table


def read_numbers(path: Path, kind: type = float) -> dict[str, float]:
    """{key: positive number}, of the type `kind`. Raises UserError with file and line for anything else."""
    numbers = {}
    for number, (key, value) in enumerate(read_table(path).items(), 1):
        try:
            numbers[key] = kind(value)
        except ValueError:
            numbers[key] = 0
        if not 0 < numbers[key] < _MOST_NUMBER:
            what = "a positive whole number" if kind is int else "a positive number"
            raise UserError(f"{path}:{number}: '{key} {value}' does not end in {what}; run utils/fix_data_dir.py {Path(path).parent}")
    return numbers


def write_table(path: Path, table: dict[str, object]) -> None:
    """Write `key value` lines in C order (Unicode code points, which is the byte order of UTF-8), atomically.

    Raises UserError for what no table can hold: a key that is not one word, and line breaks.
    """
    for key, value in table.items():
        if [key] != key.split() or "\n" in str(value):
            raise UserError(f"{path}: '{key} {value}' cannot stand in a table, a word and the rest of one line; rename it")
    with atomic_write(path) as f:
        f.writelines(f"{key} {value}".rstrip() + "\n" for key, value in sorted(table.items()))


def invert(utt2spk: dict[str, str]) -> dict[str, str]:
    """spk2utt of a utt2spk table: {speaker: 'utt1 utt2 ...'}, utterances in C order."""
    speakers: dict[str, list[str]] = {}
    for utterance in sorted(utt2spk):
        speakers.setdefault(utt2spk[utterance], []).append(utterance)
    return {speaker: " ".join(utterances) for speaker, utterances in speakers.items()}
