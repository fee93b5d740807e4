"""Strategies of mixing parameters over ranks; `base` says what one is."""

from pyasr.parallel.strategies.base import Mixing, MixingOptions, Strategy, register
from pyasr.parallel.strategies.making import check_strategy, make_strategy, strategy_names

__all__ = ["Mixing", "MixingOptions", "Strategy", "check_strategy", "make_strategy", "register", "strategy_names"]
