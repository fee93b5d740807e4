"""What a data directory had before a program put something else in its place: kept in DATA/.backup, however often that happens."""

from __future__ import annotations

from pathlib import Path

from pyasr.base.output import keep_copy

BACKUP = ".backup"


def back_up(table: Path) -> Path:
    """Where a copy of a table of a data directory lies: .backup/NAME, or .backup/NAME.2 and so on where others are kept."""
    return keep_copy(table, table.parent / BACKUP / table.name)
