"""Fatal errors of a program: one sentence on standard error, even if standard output cannot be written.

Importing pyasr also installs a hook that reports uncaught system errors of pyasr's programs in this form, for
example an error while loading their own modules. Other programs that import pyasr keep Python's traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.system_errors import as_user_error

_PROGRAMS = [
    Path(__file__).resolve().parents[2] / folder for folder in ("steps", "utils", "egs", "benchmarks")
]
_MODULE = "-m"  # the name of a program that is started as a module, as jobs and ranks are


def print_error(name: str, error: BaseException) -> int:
    """Print `NAME: error: SENTENCE` (`error: SENTENCE` if the name is empty, as in jobs); the exit status."""
    with _dropping(1):
        sys.stdout.flush()
    with _dropping(2):
        print(f"{name}: error: {error}" if name else f"error: {error}", file=sys.stderr, flush=True)
    return 1


def drop_output(stream: int = 1) -> None:
    """Redirect a stream to /dev/null, so that the flush at the end of the interpreter does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


@contextlib.contextmanager
def _dropping(stream: int) -> Iterator[None]:
    """Suppress a failed write to standard output or error; the other stream and the exit status still report
    the error."""
    try:
        yield
    except OSError:
        drop_output(stream)


def report_uncaught() -> None:
    """Install a hook that reports an uncaught system error of a pyasr program in one sentence."""
    program = (sys.argv or [""])[0]
    if program == _MODULE or any(folder in Path(program).resolve().parents for folder in _PROGRAMS):
        sys.excepthook = partial(_report, "" if program == _MODULE else Path(program).name)


def _report(name: str, kind, error, trace) -> None:
    """`sys.excepthook` of a program."""
    if user_error := as_user_error(error) or _of_import(error):
        print_error(name, user_error)
    else:
        sys.__excepthook__(kind, error, trace)


def _of_import(error: BaseException) -> UserError | None:
    """The error for a module that was not found or not loaded; Python does not keep the system's reason."""
    if not isinstance(error, ImportError):
        return None
    advice = (
        "run the same command again; if that does not help, run utils/check_install.py to see what the "
        "environment lacks"
    )
    return UserError(f"a part of the program cannot be loaded ({error}); {advice}")
