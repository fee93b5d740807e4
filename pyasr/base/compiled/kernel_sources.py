"""The source files that a kernel is compiled from: its own, and those of the kernels and modules that it
refers to.

numba's cache checks only the file of the kernel itself, so it would keep code that contains an outdated
kernel of another file.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from types import FunctionType, ModuleType

_PACKAGE = __name__.partition(".")[0]


def sources_of(function: FunctionType) -> list[str]:
    """Sorted paths of these files. A module of pyasr that the kernel refers to counts as a whole."""
    seen: set[int] = set()
    files: set[str] = set()
    left: list[FunctionType | ModuleType] = [function]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, ModuleType):
                assert one.__file__ is not None  # every package has an __init__.py
                files.add(one.__file__)
            else:
                files.add(one.__code__.co_filename)
                left += _referred(one)
    return sorted(files)


def _referred(function: FunctionType) -> list[FunctionType | ModuleType]:
    """Kernels and modules of pyasr among the globals that a function refers to."""
    values = [
        function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__
    ]
    kernels: list[FunctionType | ModuleType] = [
        value.__wrapped__ for value in values if isinstance(getattr(value, "__wrapped__", None), FunctionType)
    ]
    return kernels + [
        value
        for value in values
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == _PACKAGE
    ]


def digest_of_sources(function: FunctionType) -> str:
    """Digest of the contents of the files of `sources_of`."""
    return hashlib.sha256("".join(map(_digest, sources_of(function))).encode()).hexdigest()


@functools.cache
def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
