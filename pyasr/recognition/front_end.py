"""From samples to what a model sees, with all that a data directory would say kept in the model's directory.

What makes the features of a speaker's segments, as feats.scp of a data directory would have them, is a `SpeakerFeatures`:

    PlainFeatures       those of one kind, of samples alone
    AdaptedFeatures     these, after the transforms of a GMM system's fMLLR    (`pyasr.recognition.adaptation`)
    PastedFeatures      several of both side by side, i-vectors beside them    (`pyasr.recognition.pasting`)

`ModelInputs` then make of features what a model sees. One recording is one speaker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base.options import load
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.extractor import KINDS, Extractor
from pyasr.feats.inputs import InputOptions
from pyasr.feats.online import KnownBefore
from pyasr.feats.transforms import MATRIX_FILE, apply_transform, read_matrix

FEATURES, EVERYONE = "features.json", "global_cmvn"
DITHER_KEY = "recording"  # names the stream of noise of every segment


class SpeakerFeatures(Protocol):
    """What makes the features of the segments of a speaker.

    rate_hz        of the samples that it takes, which are at int16 scale
    frame_shift_s  from one frame to the next
    adaptations    what estimates fMLLR transforms in it
    """

    rate_hz: float
    frame_shift_s: float
    adaptations: list

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        """Features of each segment, float32 (frames, dim); one that is too short has no rows. Errors tell a segment's name, of `names`."""


class PlainFeatures:
    """Features with these options, of each segment alone; a `SpeakerFeatures`."""

    def __init__(self, options):
        self.extractor, self.rate_hz, self.adaptations = Extractor(options), options.frame.sample_frequency, []
        self.frame_shift_s = options.frame.shift_s

    def __call__(self, waves: list[np.ndarray], names: list[str], num_threads: int = 1) -> list[np.ndarray]:
        return [self.extract(wave) for wave in waves]

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Features of a segment, float32 (frames, dim)."""
        return self.extractor([wave], [DITHER_KEY])[0]


class ModelInputs:
    """How features become the input of a model: normalisation, deltas, splicing and the system's matrix.

    everyone  statistics of CMVN of many speakers, (2, D + 1), or None
    """

    def __init__(self, options: InputOptions, matrix: np.ndarray | None = None, everyone: np.ndarray | None = None):
        self.options, self.matrix, self.everyone = options, matrix, everyone

    @classmethod
    def read(cls, model_dir: Path) -> ModelInputs:
        """By input.json, final.mat and global_cmvn of a directory."""
        optional = [path if path.exists() else None for path in (Path(model_dir) / name for name in (MATRIX_FILE, EVERYONE))]
        return cls(InputOptions.load(model_dir), *(path and read_matrix(path) for path in optional))

    def __call__(self, features: list[np.ndarray]) -> list[np.ndarray]:
        """The input from the features of all utterances of a speaker; some may have no frames."""
        return [self.finished(matrix) for matrix in self.normalised(features)]

    def normalised(self, features: list[np.ndarray]) -> list[np.ndarray]:
        """Features of all utterances of a speaker after CMVN; `finished` makes the input of each, which may be many times as large."""
        return normalised_of_speaker(features, self.options)

    def finished(self, normalised: np.ndarray) -> np.ndarray:
        """The input from an utterance's normalised features."""
        return self.transformed(self.options.extend(normalised))

    def before(self) -> KnownBefore | None:
        """What the normalisation of a stream begins with."""
        return None if self.everyone is None else KnownBefore.of_everyone(self.everyone)

    def transformed(self, extended: np.ndarray) -> np.ndarray:
        """After the system's matrix, where it has one."""
        return extended if self.matrix is None else apply_transform(extended, self.matrix, "the model's matrix")


def inputs_of_speaker(features: list[np.ndarray], options: InputOptions) -> list[np.ndarray]:
    """Normalised and extended features of all utterances of a speaker; some may have no frames."""
    return list(map(options.extend, normalised_of_speaker(features, options)))


def normalised_of_speaker(features: list[np.ndarray], options: InputOptions) -> list[np.ndarray]:
    """Normalised features of all utterances of a speaker; some may have no frames."""
    of_speaker = None
    if options.cmvn == "speaker" and features:
        of_speaker = normaliser(sum(map(cmvn_stats, features)), options.norm_vars)
    return [options.normalise(matrix, of_speaker) if len(matrix) else matrix for matrix in features]


def with_frames(features: list[np.ndarray]) -> list[int]:
    """Which segments are long enough for a frame."""
    return [number for number, matrix in enumerate(features) if len(matrix)]


def load_features(path: Path):
    """Options of one of the kinds of features. Raises UserError where a file has others, or a value that no command line may have."""
    return load(path, tuple(KINDS))
