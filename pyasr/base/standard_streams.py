"""Standard input, output and error, open whatever the caller has closed."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open /dev/null in place of each of them that is closed, as by `<&-`; for the beginning of a program.

    Else the next pipe or file would get its number, and what is meant for the one would reach the other; children inherit that.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))
