"""Strategies of mixing parameters over ranks. Their base class is in `base`."""

from pyasr.parallel.mixing.base import Mixing, Strategy, TrainingView
from pyasr.parallel.mixing.making import check_ranks, check_strategy, make_strategy, usable_ranks
from pyasr.parallel.mixing.register import register, strategy_names
from pyasr.parallel.mixing.scheme_options import MixingOptions, SchemeOptions, mixing_options

__all__ = [
    "Mixing",
    "MixingOptions",
    "SchemeOptions",
    "Strategy",
    "TrainingView",
    "check_ranks",
    "check_strategy",
    "make_strategy",
    "mixing_options",
    "register",
    "strategy_names",
    "usable_ranks",
]
