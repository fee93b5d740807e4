"""A shard whose feature transforms (LDA+MLLT, fMLLR) are estimated during training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyasr.data.tables.datadir import DataDir
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.transforms import apply_transform
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.lang.lang_dirs.lang_dir import LangDir


class AdaptableShard(GmmShard):
    """A `GmmShard` whose reader returns features before deltas, splicing and transforms.

    extend        InputOptions: deltas and splicing
    speakers      {utterance: speaker}
    all_speakers  speakers of the whole data directory, including those without usable utterances
    extended_dim  number of feature columns before transforms
    """

    def prepare(
        self, extend: InputOptions, speakers: dict[str, str], all_speakers: set[str]
    ) -> AdaptableShard:
        """Set the processing of the features; returns the object itself. `features` needs a call of
        `transform` first."""
        self.extend, self.speakers, self.all_speakers = extend, speakers, all_speakers
        self.extended_dim = extend.dim(self.reader.dim)
        return self

    def extended(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]` with deltas and splicing, (T, extended_dim)."""
        return self.extend.extend(self._read(index))

    def transformed(self, index: int, matrix: np.ndarray) -> np.ndarray:
        """Frames of utterance `keys[index]` with deltas and splicing, transformed by `matrix`, float32 (T,
        rows of the matrix)."""
        return apply_transform(self.extended(index), matrix)

    def features(self, index: int) -> np.ndarray:
        """Frames of utterance `keys[index]` after its own transform, float32 (T, dim)."""
        return self.transformed(index, self._matrix_of(self.keys[index]))

    def transform(self, matrix_of: Callable[[str], np.ndarray], dim: int) -> None:
        """Set the matrix of each utterance, with `dim` rows, which `features` applies to `extended` frames
        from now on."""
        self._matrix_of, self.dim = matrix_of, dim
        self.forget_frames()


def load_adaptable(
    data: Path, inputs: InputOptions, lang: LangDir, comm, store: MemoryOptions, folder: Path
) -> AdaptableShard:
    """The shard of this rank, with the deltas and splicing of `inputs`; see `GmmShard.load`."""
    reader = FeatureReader(data, inputs.normalised())
    shard = AdaptableShard.load(reader, lang, comm.rank + 1, comm.size, store, comm, folder)
    return shard.prepare(inputs, {utt: reader.speaker(utt) for utt in shard.keys}, set(DataDir(data).spk2utt))
