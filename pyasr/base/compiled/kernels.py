"""Compiled functions. numba is imported only when a function is called for which no compiled code is stored.
Programs that end early (`--help`, a wrong option, an output that is up to date) and jobs whose kernels were
compiled before do not import it.

    @njit(nogil=True, cache=True)
    def total(x): ...
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FunctionType, NoneType

import numpy as np

from pyasr.base.compiled.imports import without_collection

_LAYOUT = 0x1 | 0x2 | 0x100 | 0x400  # NPY_ARRAY_C_CONTIGUOUS, F_CONTIGUOUS, ALIGNED, WRITEABLE
_SCALARS = (int, float, complex, bool, NoneType)
_LOADING = threading.RLock()


def njit(**options) -> Callable[[Callable], Kernel]:
    """Decorator: compile a function with `numba.njit(**options)` when it is first called, also by another
    compiled function."""
    return lambda function: Kernel(function, options)


class Kernel:
    """A function that is compiled at its first call; other attributes are those of numba's dispatcher."""

    def __init__(self, function: Callable, options: dict):
        assert isinstance(function, FunctionType)
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._by_kinds: dict[tuple, Callable] = {}

    @functools.cached_property
    def _dispatcher(self):
        """numba's dispatcher for calls by Python."""
        from pyasr.base.compiled.kernel_loading import LoadingCache

        dispatcher = self._new_dispatcher()
        if self._options.get("cache"):
            dispatcher._cache = LoadingCache(self._function)
        return dispatcher

    @functools.cached_property
    def _inner(self):
        """numba's dispatcher for calls by compiled code, without the wrapper that converts Python's
        objects."""
        return self._new_dispatcher(no_cpython_wrapper=True)

    @property
    def _numba_type_(self):
        """numba's type of this kernel, for calls by compiled code."""
        import numba

        return numba.typeof(self._inner)

    def _new_dispatcher(self, no_cpython_wrapper: bool = False):
        import numba

        options = {**self._options, "cache": False, "no_cfunc_wrapper": True}
        return numba.njit(**options, no_cpython_wrapper=no_cpython_wrapper)(self._function)

    def __call__(self, *arguments, **keywords):
        if keywords:
            return self._dispatcher(*arguments, **keywords)
        kinds = tuple(map(_kind_of, arguments))
        function = self._by_kinds.get(kinds) or self._first(kinds, arguments)
        return function(*arguments)

    def _first(self, kinds: tuple, arguments: tuple) -> Callable:
        """The callable for arguments of these kinds, at the first call with them."""
        if (
            not self._options.get("cache")
            or not _are_plain(kinds)
            or len(kinds) < self._function.__code__.co_argcount
        ):
            return self._dispatcher
        with _LOADING:
            return self.load(kinds) or self._compile(kinds, arguments)

    def load(self, kinds: tuple) -> Callable | None:
        """The kernel for arguments of these kinds, from its file; None if the file is missing or damaged."""
        from pyasr.base.compiled import kernel_objects

        if (
            kinds not in self._by_kinds
            and kernel_objects.are_used()
            and (found := kernel_objects.read(self._function, kinds))
        ):
            self._by_kinds[kinds] = kernel_objects.function_of(found, self._function)
        return self._by_kinds.get(kinds)

    def _compile(self, kinds: tuple, arguments: tuple) -> Callable:
        """The kernel for arguments of these kinds, compiled or loaded by numba; writes its file."""
        from pyasr.base.compiled import kernel_objects

        with without_collection():  # it takes a tenth of the time
            from pyasr.base.compiled.kernel_loading import compiled_object

            compiled = compiled_object(self._dispatcher, arguments) if kernel_objects.are_used() else None
        if compiled:
            kernel_objects.write(self._function, kinds, compiled)
        self._by_kinds[kinds] = self._dispatcher
        return self._dispatcher

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dispatcher, name)


def _kind_of(value) -> object:
    """The properties of an argument on which its compiled code depends: type, and dtype, dimensions and
    layout of an array."""
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return value.dtype, value.ndim, value.flags.num & _LAYOUT
    if kind is tuple:
        return tuple(map(_kind_of, value))
    return (
        (kind, kind._fields, *map(_kind_of, value))
        if hasattr(kind, "_fields") and isinstance(value, tuple)
        else kind
    )


def _are_plain(kinds: tuple) -> bool:
    """Whether these kinds determine the code: arrays, scalars, and (named) tuples of them."""
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
    """(module, name, list of kinds of arguments) of the kernels that this process has loaded or compiled."""
    found = [
        (module, name, kernel)
        for module, names in list(sys.modules.items())
        if module.startswith("pyasr.")
        for name, kernel in vars(names).items()
        if isinstance(kernel, Kernel) and kernel.__module__ == module
    ]
    return [(module, name, list(kernel._by_kinds)) for module, name, kernel in found if kernel._by_kinds]


def load_kernels(kernels: list[tuple[str, str, list]]) -> None:
    """Load the kernels that `loaded_kernels` returned in another process with the same imported modules."""
    for module, name, of_kernel in kernels:
        for kinds in of_kernel:
            getattr(sys.modules[module], name).load(kinds)
