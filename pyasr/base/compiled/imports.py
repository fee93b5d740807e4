"""Imports of large libraries without Python's collector of garbage, which takes a tenth of the time of torch's."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """In the block nothing is collected. The collector does not look at the objects that were imported there afterwards, either."""
    num_modules, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > num_modules:
            gc.freeze()
        if was_enabled:
            gc.enable()
