"""Import of the libraries with which benchmarks compare pyasr."""

from __future__ import annotations

import importlib
from types import ModuleType

from pyasr.base.errors import UserError


def peer(name: str, installed_by: str = "pip install -r requirements-test.txt") -> ModuleType:
    """The module of this name. Raises UserError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise UserError(
            f"{name} is needed for the comparison and is not installed; run '{installed_by}'"
        ) from None
