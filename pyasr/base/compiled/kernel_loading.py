"""Kernels from numba's cache without the registries of its compiler, which take more processor time to fill than most kernels to load,
and without the code that only the compilation of other kernels needs. What numba has compiled is handed on to `kernel_objects`.

Importing it imports numba.
"""

from __future__ import annotations

from pathlib import Path

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary, ll
from numba.core.runtime import rtsys
from numba.cpython import hashing  # noqa: F401  adds symbols that compiled code may refer to

from pyasr.base.compiled.kernel_objects import CompiledObject
from pyasr.base.compiled.kernel_sources import digest_of_sources
from pyasr.base.compiled.kernel_turns import Turn

_OF_HASHES = b"_numba_hashsecret_"  # symbols that are the process's own


class LoadedLibrary(JITCodeLibrary):
    """The library of one function. Where it comes from the cache, its bitcode is parsed when another function is to be linked with it."""

    _bitcode = b""

    @classmethod
    def _unserialize(cls, codegen, state):
        name, kind, data = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        library = codegen.create_library(name)
        code, library._bitcode = data
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        return library

    def _parse(self) -> None:
        if self._bitcode and self._shared_module is None:
            self._shared_module = ll.parse_bitcode(self._bitcode)
            self._codegen._engine._load_defined_symbols(self._shared_module)

    def _get_module_for_linking(self):
        self._parse()
        return super()._get_module_for_linking()

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function of this library; 0 where there is none of this name."""
        if not self._codegen._engine.is_symbol_defined(name):
            self._parse()
        return super().get_pointer_to_function(name)


class _LoadingImpl(CompileResultCacheImpl):
    def __init__(self, function):
        super().__init__(function)
        self.payloads: dict[tuple, tuple] = {}  # by the types of arguments

    def reduce(self, compiled):
        """What is kept of a function."""
        payload = super().reduce(compiled)
        self.payloads[payload[1].argtypes] = payload
        return payload

    def rebuild(self, target_context, payload):
        """The function that `payload` was made from."""
        self.payloads[payload[1].argtypes] = payload
        description, codegen = payload[1], target_context.codegen()
        codegen._library_class = LoadedLibrary
        codegen._engine._defined_symbols |= {description.llvm_func_name, description.llvm_cpython_wrapper_name}
        return super().rebuild(target_context, payload)


class LoadingCache(FunctionCache):
    """numba's cache of one function. A kernel that it lacks is compiled as usual: numba's compiler fills the registries itself."""

    _impl_class = _LoadingImpl

    def __init__(self, function):
        super().__init__(function)
        self._cache_file._source_stamp = digest_of_sources(function)
        self._turn = Turn(Path(self._cache_path, f"{self._impl.filename_base}.lock"))

    def load_overload(self, sig, target_context):
        """The compiled function for a signature. None: it is this process's turn to compile and save it."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
            if found is not None:
                return found
            self._turn.take()
            return self._load_overload(sig, target_context)

    def save_overload(self, sig, data):
        """Save what was compiled for a signature."""
        try:
            super().save_overload(sig, data)
        finally:
            self._turn.end()

    def compiled_object(self, types: tuple) -> CompiledObject | None:
        """The function for arguments of these types, which has been compiled or loaded; None where a file cannot hold it."""
        if types not in self._impl.payloads:
            return None
        (_, kind, code), description, own, *_, to_run_again, others = self._impl.payloads[types]
        if kind != "object" or to_run_again or _OF_HASHES in code[0]:
            return None
        constants = {one.env_name: list(one.consts) for one in (own, *others)}
        return CompiledObject(code[0], description.llvm_cpython_wrapper_name, constants)


def compiled_object(dispatcher, arguments: tuple) -> CompiledObject | None:
    """The kernel for arguments such as these, compiled or from numba's cache; None where a file cannot hold it."""
    try:
        types = tuple(map(numba.typeof, arguments))
    except ValueError:
        return None  # the call of the dispatcher tells of it
    dispatcher.compile(types)
    return dispatcher._cache.compiled_object(types)
