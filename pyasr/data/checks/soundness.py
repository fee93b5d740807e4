"""A fast check whether the tables of a data directory are valid. It finds out only that they are certainly
valid, or that this is uncertain. In the second case, `pyasr.data.checks.validation` checks them line by line.

Memory holds one table at a time, as one byte string, and the names of all utterances, speakers and
recordings, in strings of some thousand names each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice, repeat, zip_longest
from operator import le, methodcaller
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import root_of
from pyasr.data.tables.rules import NO_WORDS, RULES, Rule
from pyasr.io.ark import archive_of
from pyasr.io.content import read_file
from pyasr.io.tables import Table, key_blocks, plain_table

_NUM_SPACES = methodcaller("count", " ")


def sound_table(path: Path, keys: list[str] | None = None) -> Table | None:
    """The table in a file. It is certain that `write_table` would write the same content, and that each line
    follows its rule. None if this is not certain.

    keys  the required keys, in C order, from `key_blocks`; None: any keys in C order
    """
    try:
        table = plain_table(read_file(path))
    except UserError:
        return None  # harmless: the check of each line raises it again
    if table is None or keys is None and not table.is_in_order:
        return None
    return table if _is_sound(RULES[path.name], table, keys) else None


def _is_sound(rule: Rule, table: Table, keys: list[str] | None) -> bool:
    """Whether all lines of a table follow the rule and have these keys, with single spaces between words."""
    (least, most), blocks = rule.columns, table.line_blocks()
    for lines, wanted in (
        zip_longest(blocks, keys, fillvalue=()) if keys is not None else zip(blocks, repeat(None))
    ):
        pairs = [line.partition(" ") for line in lines]
        if wanted is not None and "\n".join([key for key, _, _ in pairs]) != wanted:
            return False
        values = [value for _, _, value in pairs]
        if least > 1 and not all(values) or most is not None and set(map(_NUM_SPACES, values)) != {most - 2}:
            return False
        if not rule.are_valid(values):
            return False
    return True


class Soundness:
    """The result of the fast check of the tables `names` in the directory `path`; False means uncertain.

    of_tables    whether all tables are valid and agree with each other
    of_archives  whether all archives of feats.scp exist
    """

    def __init__(self, path: Path, names: Iterable[str]):
        self._path, self.of_archives = path, False
        self.of_tables = all(self._checks(list(names)))

    def _checks(self, names: list[str]) -> Iterator[bool]:
        """The results of the checks; `all` stops at the first that is False."""
        utt2spk = sound_table(self._path / "utt2spk") if "utt2spk" in names else None
        if utt2spk is None or not _speakers_ascend(utt2spk):
            yield False
            return
        utterances = key_blocks(utt2spk)
        speakers = key_blocks(speaker for speaker, _ in groupby(utt2spk.values()))
        yield "spk2utt" not in names or self._is_inverse(utt2spk)
        del utt2spk
        segments = sound_table(self._path / "segments", utterances) if "segments" in names else None
        yield "segments" not in names or segments is not None
        recordings = (
            key_blocks(sorted({value.partition(" ")[0] for value in segments.values()}))
            if segments
            else utterances
        )
        del segments
        expected = {"utterance": utterances, "speaker": speakers, "recording": recordings}
        for name in (name for name in names if name not in ("utt2spk", "spk2utt", "segments")):
            table = sound_table(self._path / name, expected[RULES[name].of])
            if table is None:
                yield False
                return
            yield name != "text" or not _may_hold_symbols(table)
            if name == "feats.scp":
                self.of_archives = _are_there(self._path / name, table)

    def _is_inverse(self, utt2spk: Table) -> bool:
        """Whether spk2utt has the speakers of utt2spk with their utterances, all in C order."""
        table = sound_table(self._path / "spk2utt")
        if table is None or sum(utts.count(" ") + 1 for utts in table.values()) != len(utt2spk):
            return False
        utterances, speakers = iter(utt2spk), iter(utt2spk.values())
        for speaker, utts in table.items():
            expected = utts.split(" ")
            num = len(expected)
            if list(islice(utterances, num)) != expected or list(islice(speakers, num)) != [speaker] * num:
                return False
        return True


def _speakers_ascend(utt2spk: Table) -> bool:
    """Whether the speakers are in C order in this table, which has the utterances in C order."""
    before = ""
    for lines in utt2spk.line_blocks():
        speakers = [line.partition(" ")[2] for line in lines]
        if speakers[0] < before or not all(map(le, speakers, islice(speakers, 1, None))):
            return False
        before = speakers[-1]
    return True


def _may_hold_symbols(text: Table) -> bool:
    symbols = [symbol.encode() for symbol in NO_WORDS]
    # the search for a byte is faster
    return any(symbol[:1] in text.content and symbol in text.content for symbol in symbols)


def _are_there(path: Path, table: Mapping[str, str]) -> bool:
    archives = dict.fromkeys(map(archive_of, table.values()))
    root = root_of(path, archives)
    return all(not archive or os.path.exists(root / archive) for archive in archives)
