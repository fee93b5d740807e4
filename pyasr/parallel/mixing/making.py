"""Construction of a strategy from options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasr.base.errors import UserError
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.mixing.base import Strategy
from pyasr.parallel.mixing.register import REGISTER
from pyasr.parallel.mixing.scheme_options import MixingOptions

if TYPE_CHECKING:
    from pyasr.parallel.communication.comm import Comm


def check_strategy(options: MixingOptions) -> None:
    """Raise UserError if the scheme does not support its options."""
    scheme = options.scheme
    assert scheme is not None
    if REGISTER[options.parallel].draws_from_all and scheme.data_assignment == "shards":
        reason = f"with --parallel {options.parallel} each rank draws from all data, and fast ranks draw more"
        raise UserError(f"--data-assignment shards: {reason}; omit the option")
    if scheme.mix_momentum and scheme.payload != "float32":
        raise UserError(
            f"--mix-momentum: velocities travel as float32 only; omit it, or omit --payload {scheme.payload}"
        )


def check_ranks(options: MixingOptions, num_ranks: int) -> None:
    """Raise UserError if the scheme does not support its options or this number of ranks."""
    run_threads(num_ranks, lambda comm: make_strategy(comm, options))


def usable_ranks(options: MixingOptions, most: int) -> int:
    """Largest number of ranks, at most `most`, that the scheme supports; 0 if there is none."""

    def is_usable(num_ranks: int) -> bool:
        try:
            check_ranks(options, num_ranks)
        except UserError:
            return False
        return True

    return next(filter(is_usable, range(most, 0, -1)), 0)


def make_strategy(comm: Comm, options: MixingOptions) -> Strategy:
    """The strategy `options.parallel`; from now on, `comm` sums as `--all-reduce` says."""
    check_strategy(options)
    scheme = options.scheme
    assert scheme is not None
    comm.uses_ring = scheme.all_reduce != "library"
    return REGISTER[options.parallel](comm, scheme)
