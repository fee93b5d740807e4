"""The speakers on the sides of calls, from LDC's tables `conv_tab.csv` (or `conv.tab`) and `caller_tab.csv`.

conv_tab    2001,Y,1020,1044,303,0,910304,1218,1222, ,        call, flag, caller of side A, caller of side B,
                                                              topic, ...
caller_tab  1020, 2, 2, "FEMALE", 1971, ...                   caller, ..., sex in the fourth field
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.conversations import CHANNELS
from pyasr.corpora.discs import Disc, files_by_name, paths_below
from pyasr.corpora.texts import read_lines

DISC = Disc("the documentation of LDC97S62", "conv_tab.csv or conv.tab", "--docs")
_CONV_TAB, _CALLER_TAB = r"(conv)(?:_tab\.csv|\.tab)", r"(caller)(?:_tab\.csv|\.tab)"  # names of the files
_MAX_SHOWN = 60  # characters of a line


def read_callers(path: Path) -> dict[str, str]:
    """{side: speaker}, `sw02001-A` and `sw1020`. Lines in another format are skipped and logged. Raises
    UserError if all are."""
    callers: dict[str, str] = {}
    for call, _, *callers_of_sides in _rows(path, 4, (0, 2, 3), "CALL,FLAG,CALLER_OF_A,CALLER_OF_B,..."):
        callers |= {
            f"sw{int(call):05d}-{channel}": f"sw{caller}"
            for channel, caller in zip(CHANNELS, callers_of_sides)
        }
    return callers


def read_sexes(path: Path) -> dict[str, str]:
    """{speaker: f or m}; other callers are left out. Lines in another format are skipped and logged. Raises
    UserError if all are."""
    rows = _rows(path, 4, (0,), 'CALLER,...,...,"FEMALE" or "MALE",...')
    return {f"sw{caller}": sex[0].lower() for caller, _, _, sex in rows if sex.upper() in ("FEMALE", "MALE")}


def _rows(path: Path, num_fields: int, numbers: tuple[int, ...], form: str) -> list[list[str]]:
    """The first fields of each line, without surrounding blanks. Lines with fewer fields, or without numbers
    in the fields `numbers`, are skipped."""
    rows = [(number, _fields(line)) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    sound = [fields[:num_fields] for _, fields in rows if _has_numbers(fields, num_fields, numbers)]
    broken = [
        (number, ",".join(fields)[:_MAX_SHOWN])
        for number, fields in rows
        if not _has_numbers(fields, num_fields, numbers)
    ]
    if not sound:
        raise UserError(f"{path}: no line '{form}'; give the table as the LDC has published it")
    if broken:
        number, shown = broken[0]
        log.warning(f"{path}:{number}: '{shown}' is not '{form}' ({len(broken)} such lines); skipped")
    return sound


def _fields(line: str) -> list[str]:
    """The fields of a line, some in quotation marks; the whole line if it is not a row of a table."""
    try:
        return [field.strip() for field in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error:
        return [line]


def _has_numbers(fields: list[str], num_fields: int, numbers: tuple[int, ...]) -> bool:
    return len(fields) >= num_fields and all(re.fullmatch("[0-9]{1,6}", fields[i]) for i in numbers)


@dataclass(frozen=True)
class SpeakerTables:
    """The two tables, if they exist."""

    conv_tab: Path | None
    caller_tab: Path | None

    @property
    def paths(self) -> list[Path]:
        """The existing files."""
        return [path for path in (self.conv_tab, self.caller_tab) if path]

    def callers(self) -> dict[str, str]:
        """{side: speaker}; empty without conv_tab."""
        return read_callers(self.conv_tab) if self.conv_tab else {}

    def sexes_of(self, sides: dict[str, str]) -> dict[str, str]:
        """{speaker: f or m} of {speaker: one of the speaker's sides}; empty, with a warning, unless the sexes
        of all are known."""
        if not self.caller_tab:
            return {}
        sexes, callers = read_sexes(self.caller_tab), self.callers()
        found = {
            speaker: sex
            for speaker, side in sides.items()
            if (sex := sexes.get(speaker) or sexes.get(callers.get(side, "")))
        }
        if unknown := sorted(sides.keys() - found.keys()):
            log.warning(
                f"the sexes of {len(unknown)} of {len(sides)} speakers are not known ({unknown[0]} ...): no "
                "spk2gender is written"
            )
        return {} if unknown else found


def find_speaker_tables(places: list[Path], need_callers: bool) -> SpeakerTables:
    """The tables below `places`. Raises UserError if callers are needed and conv_tab is missing."""
    paths = list(paths_below(places))
    conv_tab, caller_tab = (
        next(iter(files_by_name(paths, name).values()), None) for name in (_CONV_TAB, _CALLER_TAB)
    )
    if need_callers and not conv_tab:
        raise DISC.missing(places, paths)
    return SpeakerTables(conv_tab, caller_tab)
