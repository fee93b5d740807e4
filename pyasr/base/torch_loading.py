"""An import of torch in 0.7 CPU seconds instead of 1.2: without the parts that only its compiler, its exporter and fake tensors use.

They are loaded when something asks for their contents. The operators' Python rules for tensors without memory ("meta") are among them:
layers are made by operators whose rules are compiled in, and others raise NotImplementedError. So this is for pyasr's own processes, not
for programs that import pyasr.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder

_DEFERRED = ("torch._meta_registrations", "torch.distributed._meta_registrations", "torch.export")


def defer_parts_of_torch() -> None:
    """Have these parts loaded late, if torch has not been imported."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in _DEFERRED or not (spec := PathFinder.find_spec(name, path, target)):
            return None
        spec.loader = _Deferring(spec.loader)
        return spec


class _Deferring(Loader):
    """Runs a module's code when an attribute is asked for that the module does not have."""

    def __init__(self, loader: Loader):
        self._loader = loader

    def create_module(self, spec):
        """Python's own."""
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        """Leave the module without its contents."""

        def contents(name: str):
            del module.__getattr__
            self._loader.exec_module(module)
            return getattr(module, name)

        module.__getattr__ = contents
