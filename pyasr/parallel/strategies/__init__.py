"""Strategies of mixing parameters over ranks. Their base class is in `base`."""

from pyasr.parallel.strategies.base import Mixing, Strategy, TrainingView
from pyasr.parallel.strategies.making import check_ranks, check_strategy, make_strategy, usable_ranks
from pyasr.parallel.strategies.options import MixingOptions, SchemeOptions, mixing_options
from pyasr.parallel.strategies.register import register, strategy_names

__all__ = ["Mixing", "MixingOptions", "SchemeOptions", "Strategy", "TrainingView", "check_ranks", "check_strategy", "make_strategy",
           "mixing_options", "register", "strategy_names", "usable_ranks"]  # fmt: skip
