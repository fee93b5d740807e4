"""Compiled functions. numba, which compiles them, is imported when one is called for which no compiled code is kept, so programs that end
early do not load it (`--help`, a wrong option, an output that is up to date), nor do jobs whose kernels have been compiled before.

    @njit(nogil=True, cache=True)
    def total(x): ...
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import NoneType

import numpy as np

_LAYOUT = 0x1 | 0x2 | 0x100 | 0x400  # NPY_ARRAY_C_CONTIGUOUS, F_CONTIGUOUS, ALIGNED, WRITEABLE
_SCALARS = (int, float, complex, bool, NoneType)
_LOADING = threading.RLock()


def njit(**options) -> Callable[[Callable], Kernel]:
    """Decorator: compile a function by `numba.njit(**options)` when it is first called, or called by another that is compiled."""
    return lambda function: Kernel(function, options)


class Kernel:
    """A function that is compiled when it is first called; all other attributes are those of numba's dispatcher."""

    def __init__(self, function: Callable, options: dict):
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._by_kinds: dict[tuple, Callable] = {}

    @functools.cached_property
    def _dispatcher(self):
        import numba

        from pyasr.base.compiled.kernel_loading import LoadingCache

        dispatcher = numba.njit(**{**self._options, "cache": False})(self._function)
        if self._options.get("cache"):
            dispatcher._cache = LoadingCache(self._function)
        return dispatcher

    @property
    def _numba_type_(self):
        """The type that numba gives this kernel where compiled code calls it."""
        import numba

        return numba.typeof(self._dispatcher)

    def __call__(self, *arguments, **keywords):
        if keywords:
            return self._dispatcher(*arguments, **keywords)
        kinds = tuple(map(_kind_of, arguments))
        function = self._by_kinds.get(kinds) or self._first(kinds, arguments)
        return function(*arguments)

    def _first(self, kinds: tuple, arguments: tuple) -> Callable:
        """What to call with arguments of these kinds, which it has not been called with before."""
        if not self._options.get("cache") or not _are_plain(kinds) or len(kinds) < self._function.__code__.co_argcount:
            return self._dispatcher
        with _LOADING:
            return self.load(kinds) or self._compile(kinds, arguments)

    def load(self, kinds: tuple) -> Callable | None:
        """The kernel for arguments of these kinds, from its file; None if the file is missing or damaged."""
        from pyasr.base.compiled import kernel_objects

        if kinds not in self._by_kinds and kernel_objects.are_used() and (found := kernel_objects.read(self._function, kinds)):
            self._by_kinds[kinds] = kernel_objects.function_of(found, self._function)
        return self._by_kinds.get(kinds)

    def _compile(self, kinds: tuple, arguments: tuple) -> Callable:
        """The same by numba, which writes the file."""
        from pyasr.base.compiled import kernel_objects
        from pyasr.base.compiled.kernel_loading import compiled_object

        if kernel_objects.are_used() and (compiled := compiled_object(self._dispatcher, arguments)):
            kernel_objects.write(self._function, kinds, compiled)
        self._by_kinds[kinds] = self._dispatcher
        return self._dispatcher

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dispatcher, name)


def _kind_of(value) -> object:
    """What the code that is compiled for a value depends on."""
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return value.dtype, value.ndim, value.flags.num & _LAYOUT
    if kind is tuple:
        return tuple(map(_kind_of, value))
    return (kind, kind._fields, *map(_kind_of, value)) if hasattr(kind, "_fields") and isinstance(value, tuple) else kind


def _are_plain(kinds: tuple) -> bool:
    """Whether these kinds say all: those of arrays, scalars, and tuples of them, with names or without."""
    return all(map(_is_plain, kinds))


def _is_plain(kind) -> bool:
    if isinstance(kind, tuple):
        is_array = bool(kind) and isinstance(kind[0], np.dtype)
        return is_array or _are_plain(kind[2:] if _has_names(kind) else kind)
    return kind in _SCALARS or issubclass(kind, np.generic)


def _has_names(kind: tuple) -> bool:
    """Whether this is the kind of a named tuple."""
    return len(kind) > 1 and isinstance(kind[0], type) and issubclass(kind[0], tuple)


def loaded_kernels() -> list[tuple[str, str, list]]:
    """(module, name, kinds of arguments) of the kernels that this process has loaded or compiled."""
    found = [(module, name, kernel) for module, names in list(sys.modules.items()) if module.startswith("pyasr.")
             for name, kernel in vars(names).items() if isinstance(kernel, Kernel) and kernel.__module__ == module]  # fmt: skip
    return [(module, name, list(kernel._by_kinds)) for module, name, kernel in found if kernel._by_kinds]


def load_kernels(kernels: list[tuple[str, str, list]]) -> None:
    """Load what `loaded_kernels` gave in another process, which has imported the same modules."""
    for module, name, of_kernel in kernels:
        for kinds in of_kernel:
            getattr(sys.modules[module], name).load(kinds)
