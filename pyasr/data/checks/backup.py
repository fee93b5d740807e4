"""What a data directory had before a program put something else in its place: kept in DATA/.backup, however often that happens."""

from __future__ import annotations

import filecmp
from pathlib import Path

from pyasr.base import log
from pyasr.base.outputs.displaced_files import keep_copy
from pyasr.base.outputs.output import take_over

BACKUP = ".backup"


def back_up(table: Path) -> Path:
    """Where a copy of a table of a data directory lies: .backup/NAME, or .backup/NAME.2 and so on where others are kept."""
    return keep_copy(table, table.parent / BACKUP / table.name)


def set_aside(table: Path, output: Path) -> None:
    """Move a table of a data directory to .backup, and say so, where it is no copy of that of a stage output: it is the user's own."""
    made = output / table.name
    if table.exists() and not (made.exists() and filecmp.cmp(table, made, shallow=False)):
        log.warning(f"{table} is not that of {output}: moved to {back_up(table)}")
        take_over([table])
        table.unlink()
