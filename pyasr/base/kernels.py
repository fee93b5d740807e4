"""Compiled functions. numba, which compiles them, is imported when the first of them is called, so programs that end early do not
load it: `--help`, a wrong option, an output that is up to date.

    @njit(nogil=True, cache=True)
    def total(x): ...
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable


def njit(**options) -> Callable[[Callable], Kernel]:
    """Decorator: compile a function by `numba.njit(**options)` when it is first called, or called by another that is compiled."""
    return lambda function: Kernel(function, options)


class Kernel:
    """A function that is compiled when it is first called; all other attributes are those of numba's dispatcher."""

    def __init__(self, function: Callable, options: dict):
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    @functools.cached_property
    def _dispatcher(self):
        import numba

        from pyasr.base.kernel_loading import LoadingCache

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
        return self._dispatcher(*arguments, **keywords)

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dispatcher, name)


def loaded_kernels() -> list[tuple[str, str, list]]:
    """(module, name, signatures) of the kernels of this process that have been compiled or loaded."""
    found = [(module, name, kernel) for module, names in list(sys.modules.items()) if module.startswith("pyasr.")
             for name, kernel in vars(names).items() if isinstance(kernel, Kernel) and kernel.__module__ == module]  # fmt: skip
    return [(module, name, kernel.signatures) for module, name, kernel in found if "_dispatcher" in vars(kernel)]


def load_kernels(kernels: list[tuple[str, str, list]]) -> None:
    """Load what `loaded_kernels` gave in another process, which has imported the same modules."""
    for module, name, signatures in kernels:
        for signature in signatures:
            getattr(sys.modules[module], name).compile(signature)
