"""Replacement of closed standard streams."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open /dev/null for each standard stream that the caller has closed (`<&-`). Call it at the start of a
    program.

    Otherwise the next pipe or file would get the number of the stream, and would receive the output meant for
    it, also from children.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))
