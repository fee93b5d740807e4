"""The utterances of one rank on disk: reads, checks, warps and normalises features, for frame stores."""

from __future__ import annotations

import numpy as np

from pyasr.base import log
from pyasr.base.cli.seeds import generator
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.compute.warp import Warper
from pyasr.feats.inputs import FeatureReader
from pyasr.parallel.communication.comm import Comm
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Bytes, Plain
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.minibatches.padded_utterances import PaddedUtterances
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.soft_target_files import SoftTargetFile
from pyasr.train.targets.usable_features import read_features

_ROUNDING = 1e-12  # relative rounding error of sums of squares over millions of frames
# per rank, for mean and variance; the standard error of the mean is below 0.001 standard deviations
_MEASURED_FRAMES = 2_000_000


class Shard:
    """Some utterances of a data directory with their targets. Not thread-safe.

    keys         utterances, in the order of the reader's table
    packing      layout of utterances in a store: spliced frames or chunks
    code         encoding of features in a store
    lengths      frames of the utterances, int64 (len(keys),)
    """

    def __init__(
        self, reader: FeatureReader, targets: Targets, keys: list[str], packing: Packing, code: Plain | Bytes
    ):
        self.reader, self.targets, self.keys, self.packing, self.code = reader, targets, keys, packing, code
        self.dim = reader.dim
        self.lengths = np.array([len(targets.pdfs_of(key)) for key in keys], np.int64)
        self.mean, self.inverse_std = np.zeros(self.dim, np.float32), np.ones(self.dim, np.float32)
        self._warper: Warper | None = None
        self._soft: SoftTargetFile | None = None

    @property
    def num_frames(self) -> int:
        """Frames of all utterances in a store."""
        return self.frames_of(np.arange(len(self.keys)))

    def frames_of(self, members: np.ndarray) -> int:
        """Frames of the utterances `members` (indices into `keys`) in a store."""
        return int(self.packing.num_frames(self.lengths[members]).sum())

    @property
    def varies(self) -> bool:
        """Whether features differ from epoch to epoch."""
        return self._warper is not None

    def num_bytes(self) -> np.ndarray:
        """Bytes of each utterance in a store, int64 (len(keys),)."""
        num_bytes = self.packing.num_bytes(self.lengths, self.dim, self.code)
        return num_bytes if self._soft is None else num_bytes + self._soft.num_bytes

    def warp_by(self, warper: Warper, greatest: float, seed: int) -> None:
        """Warp every utterance from now on by a random factor in 1 - greatest .. 1 + greatest, which differs
        by epoch."""
        self._warper, self._greatest, self._seed = warper, greatest, seed

    def learn_from(self, soft: SoftTargetFile) -> None:
        """Use the targets `soft`, which are for the same utterances, in stores from now on."""
        self._soft = soft

    def store(self, members: np.ndarray, epoch: int, pinned: bool = False) -> FrameStore:
        """A store of the utterances `members` (indices into `keys`), with the features of this epoch."""
        members = np.sort(members)  # archives are read forward
        keys = [self.keys[i] for i in members]
        pdfs = [self.targets.pdfs_of(key) for key in keys]
        features = (self._input(key, epoch) for key in keys)
        store = self.packing.store(features, pdfs, self.dim, self.code, pinned)
        if self._soft is not None:
            store.targets = self._soft.table(members, pinned)
        return store

    def _input(self, key: str, epoch: int) -> np.ndarray:
        """Warped and normalised features of an utterance, float32 (T, dim)."""
        features = self.features(key)
        if self._warper is not None:
            factor = 1 + generator(self._seed, "vtlp", epoch, key).uniform(-self._greatest, self._greatest)
            matrix = self._warper.matrix(factor)
            # deltas likewise
            features = (features.reshape(len(features), -1, len(matrix)) @ matrix).reshape(features.shape)
        return (features - self.mean) * self.inverse_std

    def features(self, key: str) -> np.ndarray:
        """Features of an utterance as stored, float32 (T, dim). Raises UserError if they are unusable."""
        return read_features(self.reader, key, len(self.targets.pdfs_of(key)))

    def statistics(self) -> np.ndarray:
        """Sums of features and their squares, see `cmvn_stats`, over up to about 2 million frames of randomly
        chosen utterances."""
        order = generator(0, "normaliser").permutation(len(self.keys))
        order = order[np.cumsum(self.lengths[order]) - self.lengths[order] < _MEASURED_FRAMES]
        return sum(
            (cmvn_stats(self.features(self.keys[i])) for i in np.sort(order)), np.zeros((2, self.dim + 1))
        )

    def normalise_by(self, mean: np.ndarray, inverse_std: np.ndarray) -> None:
        """Set the shift and scale of every column."""
        self.mean, self.inverse_std = mean, inverse_std


def global_normaliser(shard: Shard | PaddedUtterances, comm: Comm) -> tuple[np.ndarray, np.ndarray]:
    """Mean and inverse standard deviation of each column over the shards of all ranks, float32 (dim,).

    A constant column gets the factor 0. It carries no information, and another value in other data must not
    become 1e10 standard deviations.
    """
    stats = comm.allreduce(shard.statistics())
    mean, inverse_std = normaliser(stats, norm_vars=True)
    constant = is_constant(stats)
    if constant.any() and comm.rank == 0:
        columns = ", ".join(map(str, np.flatnonzero(constant)))
        log.warning(f"{shard.reader.data}: constant feature columns, which are ignored: {columns}")
    return mean, np.where(constant, np.float32(0), inverse_std)


def is_constant(stats: np.ndarray) -> np.ndarray:
    """Whether each column's variance is 0 up to rounding, bool (D,), from statistics as in `cmvn_stats`."""
    mean, power = stats[:, :-1] / max(stats[0, -1], 1.0)
    return power - mean**2 <= _ROUNDING * power
