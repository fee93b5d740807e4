"""Compiled kernels in files that are loaded without numba: object code, linked by llvmlite and called through
numba's C modules.

numba compiles a kernel when it is first called with arguments of certain kinds, and writes its file
(`pyasr.base.compiled.kernel_loading`). Every later process loads that file in a few milliseconds, whereas
importing numba takes two tenths of a CPU second. A file is valid for the source, the Python and the numba
that it was compiled with, and for one kind of processor (`pyasr.base.compiled.kernel_cache`).
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType, ModuleType

from pyasr.base.compiled.kernel_cache import CHOSEN, VARIABLE
from pyasr.base.compiled.kernel_sources import digest_of_sources

_FOLDER = "objects"
_HELPERS = ("_helperlib", "_dynfunc", "core.runtime._nrt_python")
_HARMLESS = (VARIABLE, "NUMBA_NUM_THREADS", *CHOSEN)  # numba's other variables may change the generated code


@dataclass(frozen=True)
class CompiledObject:
    """A kernel for arguments of certain kinds.

    code       object file
    wrapper    symbol of the function that Python calls
    constants  {symbol: objects that the code refers to by it}, those of the kernel itself first
    """

    code: bytes
    wrapper: str
    constants: dict[str, list]


def are_used() -> bool:
    """Whether kernels are loaded from such files; not if numba variables of the user may change the code."""
    return sys.platform == "linux" and not any(
        name.startswith("NUMBA_") and name not in _HARMLESS for name in os.environ
    )


def read(function: FunctionType, kinds: tuple) -> CompiledObject | None:
    """The kernel that `write` stored for the same sources; None if its file is missing or damaged."""
    try:
        stamp, compiled = pickle.loads(_path(function, kinds).read_bytes())
    except Exception:  # harmless: numba loads the kernel, or compiles it again
        return None
    return compiled if stamp == _stamp(function, kinds) else None


def write(function: FunctionType, kinds: tuple, compiled: CompiledObject) -> None:
    """Store a kernel if its directory is writable and the objects that it refers to can be pickled."""
    path = _path(function, kinds)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(Exception):  # harmless: the next process loads the kernel with numba
        content = pickle.dumps((_stamp(function, kinds), compiled))
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        os.replace(scratch, path)


def _path(function: FunctionType, kinds: tuple) -> Path:
    name = f"{function.__module__}.{function.__qualname__}.{function.__code__.co_firstlineno}"
    digest = hashlib.sha256(repr((function.__code__.co_filename, kinds)).encode()).hexdigest()[:16]
    return Path(os.environ[VARIABLE]) / _FOLDER / f"{name}.{digest}"


def _stamp(function: FunctionType, kinds: tuple) -> tuple:
    """The kinds of arguments, sources and libraries for which a file is valid."""
    return repr(kinds), digest_of_sources(function), _libraries()


@functools.cache
def _libraries() -> tuple:
    """Python's version, and sizes and times of the libraries of numba and llvmlite."""
    found = [os.stat(_helper(name)) for name in _HELPERS] + [
        os.stat(_folder("llvmlite") / "binding" / "libllvmlite.so")
    ]
    return sys.version, tuple((one.st_size, one.st_mtime_ns) for one in found)


@functools.cache
def _folder(package: str) -> Path:
    """The directory of a package, found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations  # a required package
    return Path(spec.submodule_search_locations[0])


def _helper(name: str) -> Path:
    """The file of one of numba's C modules. Raises StopIteration if it does not exist."""
    place = _folder("numba").joinpath(*name.split("."))
    return next(
        path for suffix in EXTENSION_SUFFIXES if (path := place.with_name(place.name + suffix)).exists()
    )


def function_of(compiled: CompiledObject, function: FunctionType) -> Callable:
    """The compiled `function` as a callable, which does not check the kinds of its arguments."""
    return _linker().function(compiled, function)


@functools.cache
def _linker() -> _Linker:
    return _Linker()


class _Linker:
    """LLVM's linker in this process, and the symbols that kernels refer to."""

    def __init__(self):
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self._llvm, self._alive = binding, []
        self._helpers, self._dynfunc, self._runtime = map(_c_module, _HELPERS)
        self._add_symbols()
        machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)

    def _add_symbols(self) -> None:
        """Add the symbols that numba adds when it is imported."""
        symbols = {
            f"numba_{name}": address
            for helpers in (self._helpers, self._dynfunc)
            for name, address in helpers.c_helpers.items()
        }
        symbols |= {
            name if name.startswith("_") else f"NRT_{name}": address
            for name, address in self._runtime.c_helpers.items()
        }
        kinds = [
            kind
            for kind in vars(builtins).values()
            if isinstance(kind, type) and issubclass(kind, BaseException)
        ]
        symbols |= {"_Py_NoneStruct": id(None), **{f"PyExc_{kind.__name__}": id(kind) for kind in kinds}}
        symbols["numba_unpickle"] = ctypes.cast(_unpickled, ctypes.c_void_p).value
        for name, address in symbols.items():
            self._llvm.add_symbol(name, address)

    def function(self, compiled: CompiledObject, function: FunctionType) -> Callable:
        """See `function_of`."""
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(compiled.code))
        self._engine.finalize_object()
        environments = [
            self._set_environment(symbol, objects, function) for symbol, objects in compiled.constants.items()
        ]
        address = self._engine.get_function_address(compiled.wrapper)
        return self._dynfunc.make_function(
            sys.modules[function.__module__], function.__name__, "", address, environments[0], ()
        )

    def _set_environment(self, symbol: str, objects: list, function: FunctionType):
        """Bind this symbol of the code to an environment with the objects."""
        environment = self._dynfunc.Environment(function.__globals__)
        environment.consts.extend(objects)
        self._alive.append(environment)
        ctypes.c_void_p.from_address(self._engine.get_global_value_address(symbol)).value = id(environment)
        return environment


def _c_module(name: str) -> ModuleType:
    """One of numba's C modules, imported without numba; a later import of numba uses the same module."""
    full = f"numba.{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, _helper(name))
        assert spec is not None and spec.loader is not None  # its suffix is that of an extension module
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


_DIGEST_BYTES = 20  # of SHA-1
_objects: dict[tuple[int, bytes], object] = {}


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def _unpickled(address: int, num_bytes: int, digest: int):
    """An object that compiled code contains as a pickle: a type or an exception."""
    key = address, ctypes.string_at(digest, _DIGEST_BYTES)
    if key not in _objects:
        _objects[key] = pickle.loads(ctypes.string_at(address, num_bytes))
    return _objects[key]
