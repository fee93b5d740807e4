"""Features of several kinds side by side, with i-vectors beside them, of a speaker's segments in memory.

It is what `pyasr.feats.pasted` makes of data directories, and `pyasr.ivector.extract` of the speaker's utterances one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.left_out import LeftOut
from pyasr.feats.inputs import InputOptions
from pyasr.feats.pasted import PasteOptions, paste, vector_rows
from pyasr.ivector.extract import ExtractDirOptions
from pyasr.ivector.features import check_dim
from pyasr.ivector.online import ExtractOptions, OnlineExtractor, SpeakerStats
from pyasr.recognition.adaptation import FirstPasses, read_features
from pyasr.recognition.front_end import FEATURES, ModelInputs, inputs_of_speaker

STREAMS_DIR, VECTORS_DIR = "streams", "vectors"


@dataclass(frozen=True)
class PastedStream:
    """One of the kinds of features; `first`: how its fMLLR transforms are estimated, None where it is used as it is."""

    first: FirstPasses | None


@dataclass(frozen=True)
class PastedVectors:
    """How i-vectors are found.

    online     one every few frames, of what has been said until then; else one of all that the speaker says
    extract    how frames count
    directory  what becomes of speakers with many utterances
    first      as of `PastedStream`, of the features that they are found from
    """

    online: bool
    extract: ExtractOptions
    directory: ExtractDirOptions
    first: FirstPasses | None


@dataclass(frozen=True)
class Pasting:
    """What stands side by side: streams in their order, then i-vectors, or None.

    paste  frames by which streams may differ, and the period of vectors where it is not theirs
    """

    paste: PasteOptions
    streams: tuple[PastedStream, ...]
    vectors: PastedVectors | None

    def firsts(self) -> dict[str, FirstPasses | None]:
        """How transforms are estimated, by the folder in that of the packed model."""
        found = {stream_dir(number): stream.first for number, stream in enumerate(self.streams, 1)}
        return found if self.vectors is None else found | {VECTORS_DIR: self.vectors.first}


def stream_dir(number: int) -> str:
    """The folder of a stream, 1-based, in that of the packed model."""
    return f"{STREAMS_DIR}/{number}"


class PastedFeatures:
    """Streams side by side, each normalised and extended in its own way, and i-vectors, of a packed model; a `SpeakerFeatures`.

    A segment that is too short for a frame of one of them has no rows. Raises UserError where they need different sampling rates.
    """

    def __init__(self, model: Path, pasting: Pasting):
        folders = [model / stream_dir(number) for number, _ in enumerate(pasting.streams, 1)]
        self._options, self._inputs = pasting.paste, [InputOptions.load(folder) for folder in folders]
        self._streams = [read_features(folder, model, stream.first) for folder, stream in zip(folders, pasting.streams)]
        self._vectors = pasting.vectors and SpeakerVectors(model, pasting.vectors)
        makers = [*self._streams, *([self._vectors.features] if self._vectors else [])]
        self.rate_hz, self.frame_shift_s = makers[0].rate_hz, makers[0].frame_shift_s
        self.adaptations = [adaptation for made in makers for adaptation in made.adaptations]
        if any(made.rate_hz != self.rate_hz for made in makers):
            rates = ", ".join(f"{made.rate_hz:g}" for made in makers)
            raise UserError(f"{model}: features side by side of audio of different rates ({rates} Hz); make all of them at one rate")

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        streams = [inputs_of_speaker(made(waves, names, num_threads), inputs) for made, inputs in zip(self._streams, self._inputs)]
        vectors = [[entry] for entry in self._vectors(waves, names, num_threads)] if self._vectors else [[] for _ in waves]
        return [self._pasted(name, list(parts), beside) for name, *parts, beside in zip(names, *streams, vectors)]

    def _pasted(self, name: str, parts: list[np.ndarray], beside: list[np.ndarray]) -> np.ndarray:
        """A segment's columns; `beside` is empty or has its i-vectors."""
        if not all(map(len, parts + beside)):
            return np.zeros((0, sum(part.shape[-1] for part in parts + beside)), np.float32)
        try:
            return paste(parts, self._options.length_tolerance, partial(self._rows, *beside) if beside else None)
        except LeftOut as reason:
            raise UserError(f"{name}: {reason}; paste features of equal frames, and pack the model again") from None

    def _rows(self, entry: np.ndarray, num_frames: int) -> np.ndarray:
        period, where = self._options.vector_period or self._vectors.period, f"the model's {VECTORS_DIR}"
        return vector_rows(entry, period, num_frames, where, self._options.length_tolerance)


class SpeakerVectors:
    """The i-vectors of a speaker's segments, as steps/extract_ivectors.py finds those of a speaker's utterances; of a packed model.

    features  what makes the features that the extractor was trained on
    period    frames that a row stands for
    """

    def __init__(self, model: Path, options: PastedVectors):
        self._folder, self._options, self.period = model / VECTORS_DIR, options, options.extract.ivector_period
        self.features = read_features(self._folder, model, options.first)
        self._normalised = ModelInputs.read(self._folder)
        self._plain = ModelInputs(replace(self._normalised.options, cmvn="none"), self._normalised.matrix)
        self._online = OnlineExtractor.read(self._folder, options.extract)

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        """Of each segment what `pyasr.feats.pasted.vector_rows` takes, float32; of one that is too short for a frame, no rows."""
        features = self.features(waves, names, num_threads)
        views = map(self._view, self._plain(features), self._normalised(features))
        found = list(self._online.in_order(views, self._options.directory.utts_per_spk_max))
        dim = self._online.extractor.dim
        whole = self._online.ivector(sum((own for _, own in filter(None, found)), SpeakerStats.zeros(dim)))
        return [np.zeros((0, dim), np.float32) if one is None else one[0] if self._options.online else whole for one in found]

    def _view(self, plain: np.ndarray, normalised: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """What the extractor takes of a segment; None where there are no frames."""
        check_dim(plain.shape[1], self._online.extractor.feat_dim, self._folder / FEATURES, self._folder)
        return (plain, normalised) if len(plain) else None
