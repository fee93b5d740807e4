"""Files that a program writes into a user's folder, distinguished from the user's own by a record of their
contents and sources.

The record is a hidden file in the folder, with one JSON line [digest, file, source] per file. It is written
before the file, so that a file of a killed run is recognised, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pyasr.base.files import durable
from pyasr.base.system_errors import naming


class WrittenFiles:
    """The files that a program has written into `folder`, according to the record of this name in it."""

    def __init__(self, folder: Path, record: str):
        self.folder, self.record = Path(folder), Path(folder) / record
        self.known = set(_lines(self.record))

    def is_own(self, path: Path, source: Path) -> bool:
        """Whether the program wrote the file from this source and it is unchanged."""
        try:
            return self._entry(path, source, path.read_bytes()) in self.known
        except OSError:
            return False  # harmless: a file that cannot be read is not replaced

    def add(self, path: Path, source: Path, content: bytes) -> None:
        """Record, durably, that this content is about to be written to the file."""
        entry = self._entry(path, source, content)
        if entry not in self.known:
            with naming(self.record), self.record.open("a", encoding="utf-8") as f:
                f.write(f"\n{json.dumps(entry)}\n")  # an incomplete line of a killed run stays separate
            durable.sync(self.record)
            if not self.known:
                durable.sync(self.folder)
            self.known.add(entry)

    def _entry(self, path: Path, source: Path, content: bytes) -> tuple[str, str, str]:
        return (
            hashlib.sha256(content).hexdigest(),
            str(path.relative_to(self.folder)),
            os.path.realpath(source),
        )


def _lines(record: Path):
    try:
        lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in filter(None, lines):
        try:
            yield tuple(map(str, json.loads(line)))
        except (ValueError, TypeError):
            pass  # harmless: half a line of a run that was killed; its file counts as the user's
