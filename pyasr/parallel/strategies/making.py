"""All strategies by their names."""

from __future__ import annotations

import importlib
import pkgutil

from pyasr.base.errors import UserError
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies.base import REGISTER, Strategy
from pyasr.parallel.strategies.options import MixingOptions
from pyasr.parallel.threads import run_threads


def strategy_names() -> list[str]:
    """All registered names; imports every module of this package once."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return sorted(REGISTER)


def check_strategy(options: MixingOptions) -> None:
    """Raise UserError unless `options.parallel` is registered, and can do what else is asked for."""
    names = strategy_names()
    if options.parallel not in names:
        raise UserError(f"--parallel '{options.parallel}': there is no such scheme; choose one of {', '.join(names)}")
    able = [name for name in names if REGISTER[name].mixes_anything]
    given = [flag for flag, value in {"--mix-momentum": options.mix_momentum, "--turns-frames": options.turns_frames}.items() if value]
    if given and options.parallel not in able:
        raise UserError(f"{given[0]} does not go with --parallel {options.parallel}; leave it out, or choose one of {', '.join(able)}")
    if options.turns_frames and REGISTER[options.parallel].draws_from_all:
        found = f"--turns-frames does not go with --parallel {options.parallel}, whose ranks do not all learn at first"
        raise UserError(f"{found}; leave it out")
    if options.mix_momentum and options.payload != "float32":
        raise UserError(f"--mix-momentum: velocities travel as float32 only; leave it out, or --payload {options.payload}")


def check_ranks(options: MixingOptions, num_ranks: int) -> None:
    """The same; also unless the strategy takes so many ranks."""
    run_threads(num_ranks, lambda comm: make_strategy(comm, options))


def usable_ranks(options: MixingOptions, most: int) -> int:
    """The greatest number of ranks, at most `most`, that the strategy of `options` takes; 0 where there is none."""

    def is_usable(num_ranks: int) -> bool:
        try:
            check_ranks(options, num_ranks)
        except UserError:
            return False
        return True

    return next(filter(is_usable, range(most, 0, -1)), 0)


def make_strategy(comm: Comm, options: MixingOptions) -> Strategy:
    """The strategy that `options.parallel` names; ranks add as `options.all_reduce` says from now on."""
    check_strategy(options)
    comm.uses_ring = options.all_reduce != "library"
    return REGISTER[options.parallel](comm, options)
