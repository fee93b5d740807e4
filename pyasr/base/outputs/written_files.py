"""Files that a program writes into a user's folder, told from the user's own by what they hold and what they were made from.

The record is a hidden file of the folder, a line [digest, file, source] of JSON for each. It is written before the file, so that a file
of a run that was killed is known, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pyasr.base.files import durable
from pyasr.base.system_errors import naming


class WrittenFiles:
    """What a program has written into `folder`, by the record of this name in it."""

    def __init__(self, folder: Path, record: str):
        self.folder, self.record = Path(folder), Path(folder) / record
        self.known = set(_lines(self.record))

    def is_own(self, path: Path, source: Path) -> bool:
        """Whether the file is as it was written, and that from this source."""
        try:
            return self._entry(path, source, path.read_bytes()) in self.known
        except OSError:
            return False  # harmless: what cannot be read is not replaced

    def add(self, path: Path, source: Path, content: bytes) -> None:
        """Record, on the disk, that this content is about to be written to the file."""
        entry = self._entry(path, source, content)
        if entry not in self.known:
            with naming(self.record), self.record.open("a", encoding="utf-8") as f:
                f.write(f"\n{json.dumps(entry)}\n")  # a line that a killed run has not ended stays by itself
            durable.sync(self.record)
            if not self.known:
                durable.sync(self.folder)
            self.known.add(entry)

    def _entry(self, path: Path, source: Path, content: bytes) -> tuple[str, str, str]:
        return hashlib.sha256(content).hexdigest(), str(path.relative_to(self.folder)), os.path.realpath(source)


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
