"""An import of torch in 0.9 CPU seconds instead of 1.1: without the parts that only its compiler, its exporter and fake tensors use.

They are loaded when something asks for their contents. The operators' Python rules for tensors without memory ("meta") are among them:
layers are made by operators whose rules are compiled in, and others raise NotImplementedError. So this is for pyasr's own processes, not
for programs that import pyasr, nor for the ranks of a training. Hosts with a GPU, on which it has not been tried, import all of torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder

_NEEDED = "torch._prims.rng_prims"  # without which torch.Generator cannot be made; the first of the deferred parts would import it
_DEFERRED = {"torch.distributed._meta_registrations": "", "torch._meta_registrations": _NEEDED, "torch.export": ""}
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")


def defer_parts_of_torch() -> None:
    """Have these parts loaded late, if torch has not been imported, and there is no GPU."""
    if "torch" not in sys.modules and not any(map(os.path.exists, _DRIVERS)):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in _DEFERRED or not (spec := PathFinder.find_spec(name, path, target)):
            return None
        spec.loader = _Deferring(spec.loader, _DEFERRED[name])
        return spec


class _Deferring(Loader):
    """Runs a module's code when an attribute is asked for that the module does not have; imports another module instead, if it is named."""

    def __init__(self, loader: Loader, instead: str):
        self._loader, self._instead = loader, instead

    def create_module(self, spec):
        """Python's own."""
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        """Leave the module without its contents."""
        if self._instead:
            importlib.import_module(self._instead)

        def contents(name: str):
            del module.__getattr__
            self._loader.exec_module(module)
            return getattr(module, name)

        module.__getattr__ = contents
