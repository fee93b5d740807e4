"""All strategies by their names."""

from __future__ import annotations

import importlib
import pkgutil

from pyasr.base.errors import UserError
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies.base import REGISTER, Strategy
from pyasr.parallel.strategies.options import MixingOptions


def strategy_names() -> list[str]:
    """All registered names; imports every module of this package once."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return sorted(REGISTER)


def check_strategy(options: MixingOptions) -> None:
    """Raise UserError unless `options.parallel` is registered."""
    names = strategy_names()
    if options.parallel not in names:
        raise UserError(f"--parallel '{options.parallel}': there is no such scheme; choose one of {', '.join(names)}")


def make_strategy(comm: Comm, options: MixingOptions) -> Strategy:
    """The strategy that `options.parallel` names."""
    check_strategy(options)
    return REGISTER[options.parallel](comm, options)
