"""How a program ends that cannot go on: with one sentence on standard error, even where standard output cannot be written.

From the first import of pyasr on, so do programs of pyasr that are ended by an error of the system which they have not caught, such as one
in reading their own modules. Programs of others that import pyasr are left as they are.
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

_PROGRAMS = [Path(__file__).resolve().parents[2] / folder for folder in ("steps", "utils", "egs", "benchmarks")]
_MODULE = "-m"  # the name of a program that is started as a module, as jobs and ranks are


def complain(name: str, error: BaseException) -> int:
    """Print `NAME: error: SENTENCE`, without a name as jobs do; the exit status."""
    with _dropping(1):
        sys.stdout.flush()
    with _dropping(2):
        print(f"{name}: error: {error}" if name else f"error: {error}", file=sys.stderr, flush=True)
    return 1


def drop_output(stream: int = 1) -> None:
    """Have what is still to be written, when the interpreter ends at the latest, not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


@contextlib.contextmanager
def _dropping(stream: int) -> Iterator[None]:
    """Where something is written to standard output or error, and cannot be: the other one may, and the exit status tells as well."""
    try:
        yield
    except OSError:
        drop_output(stream)


def tell_uncaught() -> None:
    """From now on an error of the system that ends a program of pyasr is told in a sentence."""
    program = (sys.argv or [""])[0]
    if program == _MODULE or any(folder in Path(program).resolve().parents for folder in _PROGRAMS):
        sys.excepthook = partial(_tell, "" if program == _MODULE else Path(program).name)


def _tell(name: str, kind, error, trace) -> None:
    """`sys.excepthook` of a program."""
    if told := as_user_error(error) or _of_import(error):
        complain(name, told)
    else:
        sys.__excepthook__(kind, error, trace)


def _of_import(error: BaseException) -> UserError | None:
    """The sentence on a module that was not found or not loaded, for which Python does not keep the system's reason."""
    if not isinstance(error, ImportError):
        return None
    advice = "run the same command again; if that does not help, utils/check_install.py tells what the environment lacks"
    return UserError(f"a part of the program cannot be loaded ({error}); {advice}")
