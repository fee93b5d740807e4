"""A shard whose features change during training, because their transforms are estimated there (LDA+MLLT, fMLLR)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.data.tables.datadir import DataDir
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.transforms import apply_transform
from pyasr.hmm.shards.gmm_shard import Shard
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.lang.lang_dirs.lang_dir import LangDir


class AdaptableShard(Shard):
    """A `Shard` whose reader gives features before deltas, splicing and transforms.

    extend        InputOptions: deltas and splicing
    speakers      {utterance: speaker}
    all_speakers  those of the whole data directory, also where none of their utterances can be used
    extended_dim  columns of the features before transforms
    """

    def prepare(self, extend: InputOptions, speakers: dict[str, str], all_speakers: set[str]) -> AdaptableShard:
        """Set what is done to the features; they can be had after `transform`."""
        self.extend, self.speakers, self.all_speakers = extend, speakers, all_speakers
        self.extended_dim = extend.dim(self.reader.dim)
        return self

    def extended(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]` with deltas and splicing, (T, extended_dim)."""
        return self.extend.extend(self._read(index))

    def transformed(self, index: int, matrix: np.ndarray) -> np.ndarray:
        """The same after a transform, float32 (T, rows of the matrix)."""
        return apply_transform(self.extended(index), matrix)

    def features(self, index: int) -> np.ndarray:
        """The same after the transform of the utterance."""
        return self.transformed(index, self._matrix_of(self.keys[index]))

    def transform(self, matrix_of: Callable[[str], np.ndarray], dim: int) -> None:
        """From now on apply to each utterance the matrix that belongs to it, which makes `dim` columns of `extended` frames."""
        self._matrix_of, self.dim = matrix_of, dim
        self.forget_frames()


def load_adaptable(data: Path, inputs: InputOptions, lang: LangDir, comm, store: MemoryOptions,
                   folder: Path) -> AdaptableShard:  # fmt: skip
    """The shard of this rank, to be fed as `inputs` say; see `Shard.load`."""
    reader = FeatureReader(data, dataclasses.replace(inputs.unspliced(), deltas=0))
    shard = AdaptableShard.load(reader, lang, comm.rank + 1, comm.size, store, comm, folder)
    return shard.prepare(inputs, {utt: reader.speaker(utt) for utt in shard.keys}, set(DataDir(data).spk2utt))
