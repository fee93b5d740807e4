"""The source files that a kernel is compiled from: its own, and those of the kernels and modules that it refers to.

numba's cache looks at the file of the kernel alone, so it would keep code that has a changed kernel of another file in it.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from types import FunctionType, ModuleType

_PACKAGE = __name__.partition(".")[0]


def sources_of(function: FunctionType) -> list[str]:
    """Paths of these files, sorted. A module of pyasr stands for what the kernel takes from it."""
    seen: set[int] = set()
    files: set[str] = set()
    left = [function]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            files.add(one.__file__ if isinstance(one, ModuleType) else one.__code__.co_filename)
            left += [] if isinstance(one, ModuleType) else _referred(one)
    return sorted(files)


def _referred(function: FunctionType) -> list[FunctionType | ModuleType]:
    """Kernels and modules of pyasr among the globals that a function names."""
    values = [function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__]
    kernels = [value.__wrapped__ for value in values if isinstance(getattr(value, "__wrapped__", None), FunctionType)]
    return kernels + [value for value in values if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == _PACKAGE]


def digest_of_sources(function: FunctionType) -> str:
    """A digest of the content of these files."""
    return hashlib.sha256("".join(map(_digest, sources_of(function))).encode()).hexdigest()


@functools.cache
def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
