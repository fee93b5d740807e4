"""Strategies of mixing parameters over ranks; `base` says what one is."""

from pyasr.parallel.strategies.base import Mixing, Strategy, register
from pyasr.parallel.strategies.making import check_ranks, check_strategy, make_strategy, strategy_names, usable_ranks
from pyasr.parallel.strategies.options import MixingOptions

__all__ = ["Mixing", "MixingOptions", "Strategy", "check_ranks", "check_strategy", "make_strategy", "register", "strategy_names",
           "usable_ranks"]  # fmt: skip
