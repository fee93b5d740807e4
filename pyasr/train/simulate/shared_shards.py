"""Shards of learners that share a process: data that several learners use are read once and kept in memory
once.

shards = SharedShards()
one, other = (open_corpus(..., make_shard=shards) for rank in (0, 1))
"""

from __future__ import annotations

import numpy as np

from pyasr.feats.inputs import FeatureReader
from pyasr.train.data.data_shard import Shard
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Bytes, Plain
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.targets.pdf_targets import Targets


class SharedShard(Shard):
    """A shard in memory, in one immutable store. Its features are the same in all epochs."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._statistics: np.ndarray | None = None
        self._store: FrameStore | None = None
        self._kept: dict[str, np.ndarray] = {}
        self._keeps = False

    def features(self, key: str) -> np.ndarray:
        """See `Shard.features`. Features read for the statistics are cached until the store is built."""
        features = self._kept.pop(key, None)
        if features is None:
            features = super().features(key)
        if self._keeps:
            self._kept[key] = features
        return features

    def statistics(self) -> np.ndarray:
        """See `Shard.statistics`. Computed once; returns a copy."""
        if self._statistics is None:
            self._keeps = True
            self._statistics = super().statistics()
            self._keeps = False
        return self._statistics.copy()

    def store(self, members: np.ndarray, epoch: int, pinned: bool = False) -> FrameStore:
        """See `Shard.store`. Always returns the same store of all utterances. Raises ValueError if only some
        are requested."""
        if len(members) != len(self.keys):
            raise ValueError(
                f"a store of {len(members)} of {len(self.keys)} utterances: a shared shard has one store of "
                "all"
            )
        if self._store is None:
            self._store = super().store(members, epoch, pinned)
        return self._store


class SharedShards:
    """Creates shards, with the arguments of `Shard`. Learners with the same utterances get the same shard."""

    def __init__(self):
        self._shards: dict[tuple[str, ...], SharedShard] = {}

    def __call__(
        self, reader: FeatureReader, targets: Targets, keys: list[str], packing: Packing, code: Plain | Bytes
    ) -> SharedShard:
        names = tuple(keys)
        if names not in self._shards:
            self._shards[names] = SharedShard(reader, targets, keys, packing, code)
        return self._shards[names]
