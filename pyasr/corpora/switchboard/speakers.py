"""Who speaks on which side of a call: LDC's tables `conv_tab.csv` (or `conv.tab`) and `caller_tab.csv`.

    conv_tab    2001,Y,1020,1044,303,0,910304,1218,1222, ,        call, flag, caller of side A, caller of side B, topic, ...
    caller_tab  1020, 2, 2, "FEMALE", 1971, ...                   caller, ..., sex in the fourth field
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.discs import Disc, files_by_name, paths_below
from pyasr.corpora.texts import read_lines

DISC = Disc("the documentation of LDC97S62", "conv_tab.csv or conv.tab", "--docs")
_CONV_TAB, _CALLER_TAB = r"(conv)(?:_tab\.csv|\.tab)", r"(caller)(?:_tab\.csv|\.tab)"  # names of the files


def read_callers(path: Path) -> dict[str, str]:
    """{side: speaker}, `sw02001-A` and `sw1020`. Raises UserError with the line of anything that is not of the form above."""
    callers = {}
    for number, fields in _rows(path):
        if len(fields) < 4 or not all(re.fullmatch("[0-9]{1,6}", fields[i]) for i in (0, 2, 3)):
            raise UserError(f"{path}:{number}: '{','.join(fields)}' is not 'CALL,FLAG,CALLER_OF_A,CALLER_OF_B,...'; correct the line")
        call = f"sw{int(fields[0]):05d}"
        callers |= {f"{call}-A": f"sw{fields[2]}", f"{call}-B": f"sw{fields[3]}"}
    return callers


def read_sexes(path: Path) -> dict[str, str]:
    """{speaker: f or m}; callers of other sexes, or none, are left out. Raises UserError with the line that has no caller in its first
    field and nothing in its fourth."""
    sexes = {}
    for number, fields in _rows(path):
        if len(fields) < 4 or not fields[0].isdigit():
            raise UserError(f"{path}:{number}: '{','.join(fields)}' is not 'CALLER,...,...,\"FEMALE\" or \"MALE\",...'; correct the line")
        if fields[3].upper() in ("FEMALE", "MALE"):
            sexes[f"sw{fields[0]}"] = fields[3][0].lower()
    return sexes


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, fields without blanks around them) of all lines that are not empty."""
    rows = csv.reader(read_lines(path), skipinitialspace=True)
    return [(rows.line_num, [field.strip() for field in fields]) for fields in rows if any(map(str.strip, fields))]


@dataclass(frozen=True)
class SpeakerTables:
    """The two tables, as far as they are there."""

    conv_tab: Path | None
    caller_tab: Path | None

    @property
    def paths(self) -> list[Path]:
        """The files that are there."""
        return [path for path in (self.conv_tab, self.caller_tab) if path]

    def callers(self) -> dict[str, str]:
        """{side: speaker}; empty without conv_tab."""
        return read_callers(self.conv_tab) if self.conv_tab else {}

    def sexes_of(self, sides: dict[str, str]) -> dict[str, str]:
        """{speaker: f or m} of {speaker: a side of theirs}; empty, which is logged, unless the sexes of all are known."""
        if not self.caller_tab:
            return {}
        sexes, callers = read_sexes(self.caller_tab), self.callers()
        found = {speaker: sex for speaker, side in sides.items() if (sex := sexes.get(speaker) or sexes.get(callers.get(side, "")))}
        if unknown := sorted(sides.keys() - found.keys()):
            log.warning(f"the sexes of {len(unknown)} of {len(sides)} speakers are not known ({unknown[0]} ...): no spk2gender is written")
        return {} if unknown else found


def find_speaker_tables(places: list[Path], need_callers: bool) -> SpeakerTables:
    """The tables below `places`. Raises UserError where the callers are needed and conv_tab is not there."""
    paths = list(paths_below(places))
    conv_tab, caller_tab = (next(iter(files_by_name(paths, name).values()), None) for name in (_CONV_TAB, _CALLER_TAB))
    if need_callers and not conv_tab:
        raise DISC.missing(places)
    return SpeakerTables(conv_tab, caller_tab)
