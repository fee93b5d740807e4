"""Load kernels from numba's cache without filling the registries of its compiler, which takes more CPU time
than loading most kernels. Compiled kernels are passed on to `kernel_objects`.

Importing this module imports numba.
"""

from __future__ import annotations

from pathlib import Path

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys
from numba.cpython import hashing  # noqa: F401  adds symbols that compiled code may refer to

from pyasr.base.compiled.kernel_objects import CompiledObject
from pyasr.base.compiled.kernel_sources import digest_of_sources
from pyasr.base.compiled.kernel_turns import CompileTurn

_OF_HASHES = b"_numba_hashsecret_"  # symbols whose values differ between processes


class LoadedLibrary(JITCodeLibrary):
    """The library of one function. If it comes from the cache, it has object code only: compiled functions
    call kernels that are compiled with them (`Kernel._inner`)."""

    @classmethod
    def _unserialize(cls, codegen, state):
        name, kind, data = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        library = codegen.create_library(name)
        code, _ = data
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        return library


class _LoadingImpl(CompileResultCacheImpl):
    def __init__(self, function):
        super().__init__(function)
        self.payloads: dict[tuple, tuple] = {}  # by the types of arguments

    def reduce(self, compiled):
        """The serialised form of a compiled function."""
        payload = super().reduce(compiled)
        self.payloads[payload[1].argtypes] = payload
        return payload

    def rebuild(self, target_context, payload):
        """The compiled function from its serialised form."""
        self.payloads[payload[1].argtypes] = payload
        description, codegen = payload[1], target_context.codegen()
        codegen._library_class = LoadedLibrary
        codegen._engine._defined_symbols |= {
            description.llvm_func_name,
            description.llvm_cpython_wrapper_name,
        }
        return super().rebuild(target_context, payload)


class LoadingCache(FunctionCache):
    """numba's cache of one function. A kernel that is not cached is compiled as usual: numba's compiler fills
    the registries itself."""

    _impl_class = _LoadingImpl

    def __init__(self, function):
        super().__init__(function)
        self._cache_file._source_stamp = digest_of_sources(function)
        self._turn = CompileTurn(Path(self._cache_path, f"{self._impl.filename_base}.lock"))

    def load_overload(self, sig, target_context):
        """The compiled function for a signature; None if this process has to compile and save it."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
            self._turn.take()
            return self._load_overload(sig, target_context)

    def _load_overload(self, sig, target_context):
        """The cached function for a signature; None if there is none. An index that names classes which the
        sources no longer have is removed."""
        try:
            return super()._load_overload(sig, target_context)
        except (AttributeError, ImportError):
            Path(self._cache_file._index_path).unlink(missing_ok=True)
            return None

    def save_overload(self, sig, data):
        """Save the code compiled for a signature."""
        try:
            super().save_overload(sig, data)
        finally:
            self._turn.end()

    def compiled_object(self, types: tuple) -> CompiledObject | None:
        """The compiled or loaded function for arguments of these types; None if no file can store it."""
        if types not in self._impl.payloads:
            return None
        (_, kind, code), description, own, *_, to_run_again, others = self._impl.payloads[types]
        if kind != "object" or to_run_again or _OF_HASHES in code[0]:
            return None
        constants = {one.env_name: list(one.consts) for one in (own, *others)}
        return CompiledObject(code[0], description.llvm_cpython_wrapper_name, constants)


def compiled_object(dispatcher, arguments: tuple) -> CompiledObject | None:
    """The kernel for arguments of these types, compiled or from numba's cache; None if it cannot be stored in
    a file."""
    try:
        types = tuple(map(numba.typeof, arguments))
    except ValueError:
        return None  # the call of the dispatcher raises the error
    dispatcher.compile(types)
    return dispatcher._cache.compiled_object(types)
