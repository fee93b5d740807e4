"""Backups of tables of a data directory that a program replaces: DATA/.backup keeps every version."""

from __future__ import annotations

import filecmp
from pathlib import Path

from pyasr.base import log
from pyasr.base.outputs.displaced_files import keep_copy
from pyasr.base.outputs.output import take_over

BACKUP = ".backup"


def back_up(table: Path) -> Path:
    """Copy a table of a data directory to .backup/NAME, or .backup/NAME.2 and so on if earlier versions
    exist; the path of the copy."""
    return keep_copy(table, table.parent / BACKUP / table.name)


def set_aside(table: Path, output: Path) -> None:
    """Move a table of a data directory to .backup, with a warning, if it differs from the table of the stage
    output `output`: it is the user's own."""
    made = output / table.name
    if table.exists() and not (made.exists() and filecmp.cmp(table, made, shallow=False)):
        log.warning(f"{table} differs from the table in {output}: moved to {back_up(table)}")
        take_over([table])
        table.unlink()
