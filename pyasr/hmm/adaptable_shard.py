"""A shard whose features change during training, because their transforms are estimated there (LDA+MLLT, fMLLR)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.data.datadir import DataDir
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.transforms import apply_transform
from pyasr.hmm.shard import Shard
from pyasr.lang.lang_dir import LangDir


class AdaptableShard(Shard):
    """A `Shard` that keeps the features `base` (T, D0) as they are before deltas, splicing and transforms: `feats` are made of these.

    extend        InputOptions: deltas and splicing
    speakers      {utterance: speaker}
    all_speakers  those of the whole data directory, also where none of their utterances can be used
    """

    def prepare(self, extend: InputOptions, speakers: dict[str, str], all_speakers: set[str]) -> AdaptableShard:
        """Take the features that were loaded as `base`; `feats` stay empty until `transform`."""
        self.extend, self.speakers, self.all_speakers = extend, speakers, all_speakers
        self.base, self.feats = self.feats, np.zeros((len(self.feats), 0), np.float32)
        return self

    @property
    def extended_dim(self) -> int:
        """Columns of the features before transforms."""
        return self.extend.dim(self.base.shape[1])

    def extended(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]` with deltas and splicing, (T, extended_dim)."""
        return self.extend.extend(self.base[self.offsets[index]:self.offsets[index + 1]])

    def transformed(self, matrix_of: Callable[[str], np.ndarray], dim: int) -> np.ndarray:
        """All frames, by the matrix of each utterance, which makes `dim` columns of `extended` frames: float32 (T, dim)."""
        feats = np.empty((len(self.base), dim), np.float32)
        for i, utt in enumerate(self.keys):
            feats[self.offsets[i]:self.offsets[i + 1]] = apply_transform(self.extended(i), matrix_of(utt))
        return feats

    def transform(self, matrix_of: Callable[[str], np.ndarray], dim: int) -> None:
        """Make `feats` anew."""
        self.feats = self.transformed(matrix_of, dim)


def load_adaptable(data: Path, inputs: InputOptions, lang: LangDir, job: int, num_jobs: int) -> AdaptableShard:
    """Shard `job` (1-based) of `num_jobs`, to be fed as `inputs` say; see `Shard.load`."""
    reader = FeatureReader(data, dataclasses.replace(inputs, deltas=0, splice_left=0, splice_right=0))
    shard = AdaptableShard.load(reader, lang, job, num_jobs)
    return shard.prepare(inputs, {utt: reader.speaker(utt) for utt in shard.keys}, set(DataDir(data).spk2utt))
