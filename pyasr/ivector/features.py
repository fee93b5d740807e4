"""Features for i-vectors in two versions: normalised, to find the Gaussians of each frame, and plain, to keep
speaker characteristics.

Both have the derivatives, the splicing and the matrix (LDA+MLLT) given by `input.json` and `final.mat` of the
extractor's directory.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import SkippedUtterance
from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import JobPart
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.transforms import MATRIX_FILE, read_matrix


class IvectorFeatures:
    """Features of a data directory, or of a part of it, by utterance, for the extractor in `directory`."""

    def __init__(self, data: Path, directory: Path, part: JobPart | None = None):
        options, path = InputOptions.load(directory), Path(directory) / MATRIX_FILE
        matrix = read_matrix(path) if path.exists() else None
        self._normalised = FeatureReader(data, options, matrix, part=part)
        self._plain = FeatureReader(data, dataclasses.replace(options, cmvn="none"), matrix, part=part)
        self._known = set(self._plain.keys)

    @property
    def dim(self) -> int:
        """Number of columns of both versions."""
        return self._plain.dim

    def num_frames(self, utt: str) -> int:
        """Number of frames of an utterance. Raises SkippedUtterance if it has no usable frames."""
        if utt not in self._known:
            raise SkippedUtterance("no features in feats.scp")
        raw = self._plain.raw(utt)
        if not len(raw):
            raise SkippedUtterance("no frames")
        if not np.isfinite(raw).all():
            raise SkippedUtterance("its features are not finite")
        return len(raw)

    def __getitem__(self, utt: str) -> tuple[np.ndarray, np.ndarray]:
        """(plain, normalised), float32 (T, D). Raises SkippedUtterance as `num_frames`."""
        self.num_frames(utt)
        return self._plain[utt], self._normalised[utt]


def write_inputs(directory: Path, inputs: InputOptions, model_dir: Path | None) -> None:
    """Write the files that `IvectorFeatures` reads: `inputs`, or the matrix, the splicing and the derivatives
    of a model directory.

    Raises UserError for a model directory that cannot be read.
    """
    if model_dir is not None:
        found = InputOptions.load(model_dir)
        inputs = dataclasses.replace(
            inputs, deltas=found.deltas, splice_left=found.splice_left, splice_right=found.splice_right
        )
        if (Path(model_dir) / MATRIX_FILE).exists():
            shutil.copy(Path(model_dir) / MATRIX_FILE, directory)
    inputs.save(directory)


def check_dim(found: int, expected: int, data: Path, directory: Path) -> None:
    """Raise UserError unless features have the dimension that the extractor in `directory` was trained on."""
    if found != expected:
        raise UserError(
            f"{data}: features of {found} columns, but {directory} was trained on {expected}; use the same "
            "features"
        )
