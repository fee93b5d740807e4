"""Libraries that this host has imported before without an error, so that recipes need not import them again
at each start. The record is a file in the virtual environment.

An entry holds as long as host, operating system, Python and the files of the library are the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write

_FILE = ".imported-libraries.json"


class KnownImports:
    """The entries of this host in `DIRECTORY/.imported-libraries.json`. A directory that cannot be written
    keeps no record."""

    def __init__(self, directory: Path | None = None):
        self.path = Path(directory or sys.prefix) / _FILE
        self.host = (
            f"{platform.node()} {platform.platform()} {sys.version} {os.environ.get('LD_LIBRARY_PATH', '')}"
        )

    def version(self, name: str) -> str | None:
        """The version that `note` recorded for this library; None if it is unknown or its files have
        changed."""
        entry, stamp = self._read().get(self.host, {}).get(name), _stamp(name)
        return entry[1] if stamp and isinstance(entry, list) and entry[:1] == [stamp] else None

    def note(self, name: str, version: str) -> None:
        """Record an import without error."""
        stamp = _stamp(name)
        if not stamp:
            return
        known = self._read()
        known.setdefault(self.host, {})[name] = [stamp, version]
        with contextlib.suppress(OSError, UserError):  # harmless: the library is imported again next time
            with atomic_write(self.path) as f:
                json.dump(known, f)

    def _read(self) -> dict[str, dict]:
        """{host: {library: [stamp, version]}}; of a damaged file, what is not damaged."""
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(known, dict):
            return {}
        return {host: entries for host, entries in known.items() if isinstance(entries, dict)}


def _stamp(name: str) -> list | None:
    """Place of a library, the times at which it and its directory changed (ns), and its version; None if it
    is not installed."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin:
            return None
        origin = Path(spec.origin)
        times = [path.stat().st_mtime_ns for path in (origin, origin.parent)]
        return [str(origin), *times, metadata.version(name)]
    except (ImportError, OSError, ValueError):
        return None
