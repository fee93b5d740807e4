"""Kaldi's text tables: one entry per line; the first word is the key, the rest of the line is the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.base.utf8 import text_of
from pyasr.io.content import read_content
from pyasr.io.keys import Groups, Keys
from pyasr.io.lazy_tables import Joined, Lazy
from pyasr.io.tables import NotInOrder, Parsed, Table, lines_in_order, pairs_of_file

_MAX_NUMBER, _SPEAKERS_AT_ONCE = 1e12, 100


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file, plain or compressed. Raises UserError if it is missing or not text."""
    text = text_of(read_content(path), path)
    return text.removesuffix("\n").split("\n") if text else []


def read_table(path: Path) -> dict[str, str]:
    """{key: rest of the line}, in the order of the file; the rest may be ''.

    Raises UserError as `Table.read`, which takes a fifth of the memory for a table of millions of lines.
    """
    return dict(Table.read(path).items())


def utt2spk_table(path: Path) -> Table:
    """{utterance: speaker}. Raises UserError with file and line for a line that does not have two columns,
    and for an empty file."""
    table = Table.read(path)
    if not table:
        raise UserError(f"{path}: no utterances; create the directory again")
    for number, (utterance, speaker) in enumerate(table.items(), 1):
        if not speaker or " " in speaker or len(speaker.split()) != 1:
            found = f"{1 + len(speaker.split())} column(s), expected 'UTTERANCE SPEAKER'"
            raise UserError(
                f"{path}:{number}: '{utterance} {speaker}': {found}; run utils/fix_data_dir.py "
                f"{Path(path).parent}"
            )
    return table


def read_numbers(path: Path, kind: type = float) -> dict[str, float]:
    """{key: positive number of type `kind`}. Raises UserError as `number_table`."""
    return dict(number_table(path, kind).items())


def number_table(path: Path, kind: type = float) -> Parsed:
    """{key: positive number of type `kind`}. Raises UserError with file and line for anything else."""
    table = Table.read(path)
    for number, (key, value) in enumerate(table.items(), 1):
        if not _is_positive(value, kind):
            what = "a positive whole number" if kind is int else "a positive number"
            raise UserError(
                f"{path}:{number}: '{key} {value}' does not end in {what}; run utils/fix_data_dir.py "
                f"{Path(path).parent}"
            )
    return Parsed(table, kind)


def _is_positive(text: str, kind: type) -> bool:
    try:
        return 0 < kind(text) < _MAX_NUMBER
    except ValueError:
        return False


def write_table(path: Path, table: Mapping[str, object]) -> None:
    """Write `key value` lines in C order (of Unicode code points, which is the byte order of UTF-8),
    atomically. If the lines of the table are in this order, only some thousands are in memory at a time.

    Raises UserError for entries that cannot be written: a key that is not one word, and line breaks.
    """
    if isinstance(table, Table) and table.is_plain:
        return _write(path, table.sorted_lines())
    for pairs in table.orders() if isinstance(table, Joined) else [table.items()]:
        with suppress(NotInOrder):
            return _write(path, lines_in_order(_writable(path, pairs)))
    _write(path, Table.of(_writable(path, table.items())).sorted_lines())


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with atomic_write(path, "wb") as f:
        f.writelines(lines)


def _writable(path: Path, items: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """The same pairs. Raises UserError with the file `path` for a pair that cannot be written as a line."""
    for key, value in items:
        if [key] != key.split() or "\n" in str(value):
            raise UserError(
                f"{path}: '{key} {value}' cannot be a line of a table, which is one word and the rest of "
                "the line; rename it"
            )
        yield key, value


def write_inverted(path: Path, utt2spk: Path) -> None:
    """Write spk2utt of the file utt2spk, which `write_table` has written. If speakers come in C order, as in
    a sound data directory, some of them are in memory at a time."""
    with suppress(NotInOrder):
        return _write(path, lines_in_order(_neighbours(pairs_of_file(utt2spk)), _SPEAKERS_AT_ONCE))
    write_table(path, invert(Table.read(utt2spk)))


def _neighbours(utt2spk: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(speaker, 'utt1 utt2 ...') of utterances that stand one after the other."""
    for speaker, pairs in groupby(utt2spk, itemgetter(1)):
        yield speaker, " ".join(utterance for utterance, _ in pairs)


def invert(utt2spk: Mapping[str, str]) -> Lazy:
    """spk2utt of a utt2spk table: {speaker: 'utt1 utt2 ...'}, utterances in C order."""
    speakers = grouped(utt2spk)
    return Lazy(lambda: ((speaker, " ".join(utterances)) for speaker, utterances in speakers.items()))


def grouped(utt2spk: Mapping[str, str]) -> Groups:
    """{speaker: [utterance, ...]} of a utt2spk table, utterances in C order; speakers in the order of their
    first utterances."""
    table = utt2spk if isinstance(utt2spk, Table) else Table.of(utt2spk.items())
    return Groups(Keys(table), (speaker for _, speaker in table.sorted_pairs()))
