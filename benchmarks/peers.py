"""Libraries that are compared with."""

from __future__ import annotations

import importlib
from types import ModuleType

from pyasr.base.errors import UserError


def peer(name: str, installed_by: str = "pip install -r requirements-test.txt") -> ModuleType:
    """The module of that name. Raises UserError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise UserError(f"{name}, which is compared with, is not installed; run '{installed_by}'") from None
