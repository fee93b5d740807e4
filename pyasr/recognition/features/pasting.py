"""Pasted features of several kinds, optionally with i-vectors, of a speaker's segments in memory.

Equivalent to `pyasr.feats.extraction.pasted` for data directories, and to `pyasr.ivector.extract_ivectors`
for the speaker's utterances in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import SkippedUtterance
from pyasr.base.errors import UserError
from pyasr.feats.extraction.pasted import PasteOptions, paste, vector_rows
from pyasr.feats.inputs import InputOptions
from pyasr.ivector.extract_ivectors import ExtractDirOptions
from pyasr.ivector.features import check_dim
from pyasr.ivector.online_ivectors import ExtractOptions, OnlineIvectorExtractor, SpeakerStats
from pyasr.recognition.features.adaptation import FirstPasses, read_features
from pyasr.recognition.features.front_end import FEATURES, ModelInputs, inputs_of_speaker

STREAMS_DIR, VECTORS_DIR = "streams", "vectors"


@dataclass(frozen=True)
class PastedStream:
    """One of the kinds of features; `first`: options to estimate its fMLLR transforms, None for no fMLLR."""

    first: FirstPasses | None


@dataclass(frozen=True)
class PastedVectors:
    """Options of i-vectors.

    online     one i-vector every few frames, from the speech until then; else one i-vector from all speech of
               the speaker
    extract    weights of frames
    directory  treatment of speakers with many utterances
    first      as in `PastedStream`, for the features from which they are extracted
    """

    online: bool
    extract: ExtractOptions
    directory: ExtractDirOptions
    first: FirstPasses | None


@dataclass(frozen=True)
class Pasting:
    """Description of pasted features: streams in order, then i-vectors or None.

    paste  number of frames by which streams may differ, and the period of vectors if it differs from theirs
    """

    paste: PasteOptions
    streams: tuple[PastedStream, ...]
    vectors: PastedVectors | None

    def firsts(self) -> dict[str, FirstPasses | None]:
        """{folder within the packed model: options for estimating transforms}."""
        found = {stream_dir(number): stream.first for number, stream in enumerate(self.streams, 1)}
        return found if self.vectors is None else found | {VECTORS_DIR: self.vectors.first}


def stream_dir(number: int) -> str:
    """The folder of a stream, counted from 1, within the packed model."""
    return f"{STREAMS_DIR}/{number}"


class PastedFeatures:
    """The pasted streams of a packed model, each with its own normalisation and context, and i-vectors; a
    `SpeakerFeatures`.

    A segment that is too short for a frame of one of them has no rows. Raises UserError if they need
    different sampling rates.
    """

    def __init__(self, model: Path, pasting: Pasting):
        folders = [model / stream_dir(number) for number, _ in enumerate(pasting.streams, 1)]
        self._options, self._inputs = pasting.paste, [InputOptions.load(folder) for folder in folders]
        self._streams = [
            read_features(folder, model, stream.first) for folder, stream in zip(folders, pasting.streams)
        ]
        self._vectors = None if pasting.vectors is None else SpeakerVectors(model, pasting.vectors)
        makers = [*self._streams, *([self._vectors.features] if self._vectors else [])]
        self.rate_hz, self.frame_shift_s = makers[0].rate_hz, makers[0].frame_shift_s
        self.adaptations = [adaptation for made in makers for adaptation in made.adaptations]
        if any(made.rate_hz != self.rate_hz for made in makers):
            rates = ", ".join(f"{made.rate_hz:g}" for made in makers)
            raise UserError(
                f"{model}: pasted features need audio of different rates ({rates} Hz); extract all of "
                "them at one rate"
            )

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        streams = [
            inputs_of_speaker(made(waves, names, num_threads), inputs)
            for made, inputs in zip(self._streams, self._inputs)
        ]
        vectors = (
            [[entry] for entry in self._vectors(waves, names, num_threads)]
            if self._vectors
            else [[] for _ in waves]
        )
        return [
            self._pasted(name, list(parts), ivectors)
            for name, *parts, ivectors in zip(names, *streams, vectors)
        ]

    def _pasted(self, name: str, parts: list[np.ndarray], ivectors: list[np.ndarray]) -> np.ndarray:
        """A segment's columns; `ivectors` is empty or contains its i-vectors."""
        if not all(map(len, parts + ivectors)):
            return np.zeros((0, sum(part.shape[-1] for part in parts + ivectors)), np.float32)
        try:
            return paste(
                parts, self._options.length_tolerance, partial(self._rows, ivectors[0]) if ivectors else None
            )
        except SkippedUtterance as reason:
            raise UserError(
                f"{name}: {reason}; paste features of equal frames, and pack the model again"
            ) from None

    def _rows(self, entry: np.ndarray, num_frames: int) -> np.ndarray:
        assert self._vectors is not None
        period, where = self._options.vector_period or self._vectors.period, f"the model's {VECTORS_DIR}"
        return vector_rows(entry, period, num_frames, where, self._options.length_tolerance)


class SpeakerVectors:
    """Extracts the i-vectors of a speaker's segments with a packed model, like steps/extract_ivectors.py for
    a speaker's utterances.

    features  computes the features on which the extractor was trained
    period    number of frames per row
    """

    def __init__(self, model: Path, options: PastedVectors):
        self._folder = model / VECTORS_DIR
        self._options = options
        self.period = options.extract.ivector_period
        self.features = read_features(self._folder, model, options.first)
        self._normalised = ModelInputs.read(self._folder)
        self._plain = ModelInputs(replace(self._normalised.options, cmvn="none"), self._normalised.matrix)
        self._online = OnlineIvectorExtractor.read(self._folder, options.extract)

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        """For each segment, the input of `pyasr.feats.extraction.pasted.vector_rows`, float32; no rows for a
        segment that is too short for a frame."""
        features = self.features(waves, names, num_threads)
        views = map(self._view, self._plain(features), self._normalised(features))
        found = list(self._online.in_order(views, self._options.directory.utts_per_spk_max))
        dim = self._online.extractor.dim
        whole = self._online.ivector(sum((own for _, own in filter(None, found)), SpeakerStats.zeros(dim)))
        return [
            np.zeros((0, dim), np.float32) if one is None else one[0] if self._options.online else whole
            for one in found
        ]

    def _view(self, plain: np.ndarray, normalised: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The extractor's input for a segment; None if there are no frames."""
        check_dim(plain.shape[1], self._online.extractor.feat_dim, self._folder / FEATURES, self._folder)
        return (plain, normalised) if len(plain) else None
