"""Text is UTF-8, whatever the locale says."""

from __future__ import annotations

import os
import sys


def insist_on_utf8() -> None:
    """Start this program anew in Python's UTF-8 mode, unless arguments, file names and output are UTF-8 already, as under path.sh."""
    if sys.getfilesystemencoding().lower() == "utf-8":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def as_utf8(name: str) -> str:
    """The name of a file, for texts: bytes that are no UTF-8 are shown as \\xff."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
