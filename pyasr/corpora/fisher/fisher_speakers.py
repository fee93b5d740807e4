"""The speakers on each side of a call, from tables of Fisher English.

    fe_03_p1_calldata.tbl   CALL_ID,DATE_TIME,...,APIN,ASX.DL,...,BPIN,BSX.DL,...    m.a: a man, American
    fe_03_p1_filelist.tbl   fe_03_p1_sph1 00001 ff LDC     volume and call may also be swapped
    filetable.txt           fe_03_p1_sph1 fe_03_00001.sph ff

A PIN is not always one person: some PINs have a man in one call and a woman in another. A speaker is
therefore a PIN with a sex.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base import log
from pyasr.corpora.conversations import CHANNELS
from pyasr.io.content import read_content

_COLUMNS = {"CALL_ID": 0, "APIN": 5, "ASX.DL": 6, "BPIN": 10, "BSX.DL": 11}  # if there is no header
_CALL = re.compile(r"(?:fe_03_)?([0-9]{5})(?:\.\w+)?", re.IGNORECASE)
_SEXES = re.compile(r"[mf]{2}", re.IGNORECASE)


@dataclass(frozen=True)
class Caller:
    """One side of a call; unknown values are ''. `sex` is m or f."""

    pin: str = ""
    sex: str = ""

    @property
    def name(self) -> str:
        """`2637m`; '' without a PIN."""
        return self.pin + self.sex if self.pin else ""


def read_callers(tables: dict[str, list[Path]]) -> dict[str, Caller]:
    """{side: caller} of all `Calls.tables`; a side is `fe_03_00001-A`. The sex is that of calldata, else of
    the others."""
    callers = dict(_of_all(tables.get("calldata", []), read_calldata))
    for kind in ("filelist", "filetable"):
        for side, sex in _of_all(tables.get(kind, []), read_sexes):
            caller = callers.get(side, Caller())
            callers[side] = caller if caller.sex else replace(caller, sex=sex)
    return callers


def _of_all(paths: list[Path], read) -> Iterator[tuple]:
    for path in paths:
        found = read(path)
        if not found:
            log.warning(f"{path}: no line contains a call and its callers; the table is not used")
        yield from found.items()


def read_calldata(path: Path) -> dict[str, Caller]:
    """{side: caller} of a calldata table, with or without its header."""
    columns, callers = _COLUMNS, {}
    for fields in (line.split(",") for line in _lines(path)):
        fields = [field.strip().strip('"') for field in fields]
        if "CALL_ID" in (names := [field.upper().lstrip("# ") for field in fields]):
            columns = {**_COLUMNS, **{name: names.index(name) for name in _COLUMNS if name in names}}
        elif len(fields) > max(columns.values()) and re.fullmatch(r"[0-9]{1,5}", fields[columns["CALL_ID"]]):
            call = f"fe_03_{int(fields[columns['CALL_ID']]):05d}"
            for channel in CHANNELS:
                pin, dialect = fields[columns[f"{channel}PIN"]], fields[columns[f"{channel}SX.DL"]]
                callers[f"{call}-{channel}"] = Caller(pin if pin.isdecimal() else "", _sex(dialect))
    return callers


def _sex(dialect: str) -> str:
    """m or f from a value such as `m.a`; '' for other values."""
    sex = dialect.partition(".")[0].lower()
    return sex if sex in ("m", "f") else ""


def read_sexes(path: Path) -> dict[str, str]:
    """{side: m or f} of a filelist or a filetable, whose order of fields varies."""
    sexes: dict[str, str] = {}
    for fields in (re.split(r"[\s,]+", line.strip()) for line in _lines(path)):
        call, both = _first(_CALL, fields), _first(_SEXES, fields)
        if call and both:
            sexes |= {f"fe_03_{call[1]}-{channel}": sex for channel, sex in zip(CHANNELS, both[0].lower())}
    return sexes


def _first(pattern: re.Pattern, fields: Iterable[str]) -> re.Match | None:
    return next(filter(None, map(pattern.fullmatch, fields)), None)


def _lines(path: Path) -> list[str]:
    """The lines of a table in any encoding; the fields that are used are ASCII."""
    return read_content(path).decode("latin-1").splitlines()
