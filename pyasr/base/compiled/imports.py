"""Imports: of large libraries without garbage collection, which takes a tenth of the time of importing torch,
and of all modules of a package."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection in the block. Objects imported in it are excluded from later collections,
    too (`gc.freeze`)."""
    num_modules, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > num_modules:
            gc.freeze()
        if was_enabled:
            gc.enable()


def import_modules(package: str) -> None:
    """Import the modules of a package, each of which registers something by its import."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
