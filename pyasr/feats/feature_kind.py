"""Kinds of features of audio. A new kind is a new module of `pyasr.feats.kinds` that uses the decorator
`feature_kind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyasr.base.compiled.imports import import_modules
from pyasr.base.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_MODULES = "pyasr.feats.kinds"
_KINDS: dict[type, type[FeatureKind]] = {}


class FeatureKind:
    """Base class of kinds of features, which `Extractor` computes from the spectra of frames.

    name        the program is `steps/make_NAME.py`
    title       name in messages
    options     options, a frozen dataclass with the groups `frame`, `utterance` and `pitch` and with `dim`,
                the number of columns without those of pitch
    power       True: computed from the power spectrum; False: from the magnitude
    logarithms  True: `columns` gets ln max(E, eps) instead of the energies E
    place       the columns that `columns` returns
    energy      the column of the log energy, for which `options` has `energy_floor`; None: there is none
    """

    name = title = ""
    power = True
    logarithms = False
    place = slice(None)
    energy: int | None = None

    def __init__(self, options):
        self.options = options

    def filters(self, warp: float) -> np.ndarray | None:
        """Weights (fft_size / 2 + 1, number of filters), float64, for a warp factor of the speaker's
        frequencies; None: the spectrum itself."""
        raise NotImplementedError

    def columns(self, energies: np.ndarray) -> np.ndarray:
        """float64 (T, number of filters) to float64 (T, number of columns in `place`)."""
        raise NotImplementedError

    def refuse_warp(self, warp: float) -> None:
        """Raise UserError for a warp factor other than 1."""
        if warp != 1:
            raise UserError(
                f"{self.title} cannot be warped; remove spk2warp and utt2warp from the data directory"
            )


def feature_kind(name: str, title: str, options: type) -> Callable[[type[FeatureKind]], type[FeatureKind]]:
    """Class decorator: register a `FeatureKind`, computed by `steps/make_NAME.py`, for a class of options."""

    def add(cls: type[FeatureKind]) -> type[FeatureKind]:
        cls.name, cls.title = name, title
        _KINDS[options] = cls
        return cls

    return add


def feature_kinds() -> dict[type, type[FeatureKind]]:
    """{class of options: kind}; imports every module of `pyasr.feats.kinds` once."""
    import_modules(_MODULES)
    return _KINDS


def kind_of_options(cls: type) -> type[FeatureKind]:
    """The kind of features with this class of options."""
    return _KINDS.get(cls) or feature_kinds()[cls]


def option_classes() -> tuple[type, ...]:
    """The classes of options of all kinds."""
    return tuple(feature_kinds())


def class_of_saved(name: str) -> type:
    """The class of saved options by their `"type"`. Raises KeyError if it is not one of features."""
    return {f"{cls.__module__}:{cls.__qualname__}": cls for cls in option_classes()}[name]


def num_columns(options) -> int:
    """Columns of the features, including those of pitch."""
    return options.dim + (options.pitch.process.dim if options.pitch.add_pitch else 0)
