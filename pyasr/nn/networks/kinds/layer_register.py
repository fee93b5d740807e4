"""Register of the kinds of layers in network files. A new kind is a new module of this package that uses the
decorator `kind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from pyasr.base.compiled.imports import import_modules
from pyasr.nn.layers.sequence_layers import SequenceLayer

_KINDS: dict[str, type[LayerKind]] = {}


class LayerKind(Protocol):
    """Options of a layer, a frozen dataclass of `option(...)` fields. Layers without parameters need no
    `initialise`."""

    def build(self, dim_in: int) -> SequenceLayer:
        """The layer for inputs of `dim_in` elements, uninitialised. Raises UserError for options that cannot
        be combined."""

    def initialise(self, layer: SequenceLayer, is_first: bool, random: torch.Generator) -> None:
        """Draw the parameters of a layer; `is_first`: its inputs are the normalised features."""


def kind(name: str) -> Callable[[type], type]:
    """Class decorator: register a `LayerKind` under the name used in files."""

    def add(cls: type) -> type:
        _KINDS[name] = cls
        return cls

    return add


def kinds() -> dict[str, type[LayerKind]]:
    """The class of each kind's options; imports every module of this package once."""
    import_modules(__package__)
    return _KINDS


def find_kind(name: str) -> type[LayerKind] | None:
    """The class of a kind's options; None for an unknown name."""
    return _KINDS.get(name) or kinds().get(name)
