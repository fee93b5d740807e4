"""From samples to the input of a model, with the options that a data directory would contain taken from the
model's directory.

A `SpeakerFeatures` computes the features of a speaker's segments, as feats.scp of a data directory would
contain them:

    PlainFeatures       features of one kind, from samples only
    AdaptedFeatures     the same, after the fMLLR transforms of a GMM system
                        (`pyasr.recognition.features.adaptation`)
    PastedFeatures      features of several kinds, pasted, optionally with i-vectors
                        (`pyasr.recognition.features.pasting`)

`ModelInputs` converts features to the input of a model. One recording is one speaker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base.cli.options import load
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.extraction.streamed_features import KnownBefore
from pyasr.feats.feature_kind import option_classes
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import MATRIX_FILE, apply_transform, read_matrix

FEATURES, EVERYONE = "features.json", "global_cmvn"
DITHER_KEY = "recording"  # key of the random stream for the dither of every segment


class SpeakerFeatures(Protocol):
    """Computes the features of a speaker's segments.

    rate_hz        sampling rate of the input, which is at int16 scale
    frame_shift_s  seconds from one frame to the next
    adaptations    its estimators of fMLLR transforms
    """

    rate_hz: float
    frame_shift_s: float
    adaptations: list

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        """Features of each segment, float32 (frames, dim); a segment that is too short has no rows. Errors
        name the segment by `names`."""


class PlainFeatures:
    """Features with these options, from each segment separately; a `SpeakerFeatures`."""

    def __init__(self, options):
        self.extractor = Extractor(options)
        self.rate_hz = options.frame.sample_frequency
        self.adaptations = []
        self.frame_shift_s = options.frame.shift_s

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        return [self.extract(wave) for wave in waves]

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Features of a segment, float32 (frames, dim)."""
        return self.extractor([wave], [DITHER_KEY])[0]


class ModelInputs:
    """Converts features to the input of a model: normalisation, deltas, splicing and the system's matrix.

    everyone  CMVN statistics of many speakers, (2, D + 1), or None
    """

    def __init__(
        self, options: InputOptions, matrix: np.ndarray | None = None, everyone: np.ndarray | None = None
    ):
        self.options, self.matrix, self.everyone = options, matrix, everyone

    @classmethod
    def read(cls, model_dir: Path) -> ModelInputs:
        """Read input.json, final.mat and global_cmvn of a directory."""
        optional = [Path(model_dir) / name for name in (MATRIX_FILE, EVERYONE)]
        matrices = (read_matrix(path) if path.exists() else None for path in optional)
        return cls(InputOptions.load(model_dir), *matrices)

    def __call__(self, features: list[np.ndarray]) -> list[np.ndarray]:
        """The input for the features of all utterances of a speaker; some may have no frames."""
        return [self.finished(matrix) for matrix in self.normalised(features)]

    def normalised(self, features: list[np.ndarray]) -> list[np.ndarray]:
        """Features of all utterances of a speaker after CMVN; `finished` converts each to the input, which
        may be many times larger."""
        return normalised_of_speaker(features, self.options)

    def finished(self, normalised: np.ndarray) -> np.ndarray:
        """The input for an utterance's normalised features."""
        return self.transformed(self.options.extend(normalised))

    def before(self) -> KnownBefore | None:
        """The statistics with which the normalisation of a stream begins."""
        return None if self.everyone is None else KnownBefore.of_everyone(self.everyone)

    def transformed(self, extended: np.ndarray) -> np.ndarray:
        """Apply the system's matrix, if it has one."""
        return (
            extended if self.matrix is None else apply_transform(extended, self.matrix, "the model's matrix")
        )


def inputs_of_speaker(features: list[np.ndarray], options: InputOptions) -> list[np.ndarray]:
    """Normalised and extended features of all utterances of a speaker; some may have no frames."""
    return list(map(options.extend, normalised_of_speaker(features, options)))


def normalised_of_speaker(features: list[np.ndarray], options: InputOptions) -> list[np.ndarray]:
    """Normalised features of all utterances of a speaker; some may have no frames."""
    of_speaker = None
    if options.cmvn == "speaker" and features:
        of_speaker = normaliser(sum(map(cmvn_stats, features), np.zeros(())), options.norm_vars)
    return [options.normalise(matrix, of_speaker) if len(matrix) else matrix for matrix in features]


def with_frames(features: list[np.ndarray]) -> list[int]:
    """Indices of the segments with at least one frame."""
    return [number for number, matrix in enumerate(features) if len(matrix)]


def load_features(path: Path):
    """Read the options of one of the kinds of features. Raises UserError for a file with other options or
    invalid values."""
    return load(path, option_classes())
