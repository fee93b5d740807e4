"""Register of schemes and their options."""

from __future__ import annotations

from typing import Any, Protocol

from pyasr.base.compiled.imports import import_modules

_SCHEMES = "pyasr.parallel.strategies"


class Scheme(Protocol):
    """A class of strategies; see `base.Strategy`, which imports this module."""

    options_kind: type
    draws_from_all: bool

    def __call__(self, comm, options) -> Any: ...


REGISTER: dict[str, Scheme] = {}


def register(name: str, options: type | None = None):
    """Class decorator: register a strategy as `name`.

    options  dataclass of its options, a subclass of `SchemeOptions`; None: those of its base class
    """

    def add(cls):
        cls.options_kind = options or cls.options_kind
        REGISTER[name] = cls
        return cls

    return add


def strategy_names() -> list[str]:
    """All registered names; imports every module of `pyasr.parallel.strategies` once."""
    import_modules(_SCHEMES)
    return sorted(REGISTER)


def option_kinds() -> dict[str, type]:
    """The dataclass of each scheme's options."""
    return {name: REGISTER[name].options_kind for name in strategy_names()}
