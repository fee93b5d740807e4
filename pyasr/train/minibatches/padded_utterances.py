"""Minibatches of whole utterances side by side, for networks that learn labels without times.

Utterances of about the same length are put together, each with its last frame repeated up to the longest one's length; the network is told
the lengths, so that it answers each as it answers the utterance alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from pyasr.feats.cmvn import cmvn_stats
from pyasr.feats.inputs import FeatureReader
from pyasr.nn.networks.layered import LayeredNetwork, whole_outputs
from pyasr.parallel.communication.comm import Comm
from pyasr.sequence.ctc import CtcSupervision
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.usable_features import read_features

_POOL = 20  # minibatches whose utterances are put in order of length together


@dataclass(frozen=True)
class CtcMinibatch(CtcSupervision):
    """What the utterances of a minibatch should be, and the frames of their features, int64 (N)."""

    lengths: np.ndarray | None = None

    def numel(self) -> int:
        """All frames, as of the tensors of targets that other criteria take."""
        return int(self.lengths.sum())


class PaddedUtterances(Utterances):
    """Utterances side by side; `arguments` are the last ones of `Utterances`.

    mean, inverse_std  of the columns, float32 (dim,), as `normalise_by` has set them
    """

    def __init__(self, reader: FeatureReader, targets: Targets, keys: list[str], *arguments):
        super().__init__(reader, targets, keys, [reader.num_frames(key) for key in keys], *arguments)

    def mean_units(self, comm: Comm) -> float:
        """Units that a minibatch of all ranks has on average, when all utterances are in order of length. Every rank must call this."""
        units, number = sum(len(self.targets.pdfs_of(key)) for key in self.keys), len(self._by_length())
        return comm.reduce_scalar(units) / max(comm.reduce_scalar(number), 1.0)

    def statistics(self) -> np.ndarray:
        """Sums of the features and their squares, as of `cmvn_stats`."""
        return sum((cmvn_stats(self.features(i)) for i in range(len(self.keys))), np.zeros((2, self.reader.dim + 1)))

    def features(self, member: int) -> np.ndarray:
        """Features of an utterance (an index into `keys`) as they are on disk, float32 (T, dim). Raises UserError where they are of no
        use."""
        return read_features(self.reader, self.keys[member], int(self.lengths[member]))

    def normalise_by(self, mean: np.ndarray, inverse_std: np.ndarray, network: LayeredNetwork) -> None:
        """From now on shift and scale every column, and add the context of `network`."""
        self.mean, self.inverse_std = mean, inverse_std
        self.left, self.right, self.subsampling = network.left, network.right, network.subsampling

    def minibatches(self, _size: int, epoch: int, begin: int = 0) -> Iterator[tuple[torch.Tensor, CtcMinibatch]]:
        """Inputs (N, left + T + right, dim) and what they should be, of all utterances in random order, but those of the first minibatches
        that have `begin` frames together."""
        groups, ends = self._epoch(epoch)
        for members, end in zip(groups, ends):
            if end - self.lengths[members].sum() >= begin:
                yield self.minibatch_of(members)

    def in_turn(self, _size: int) -> Iterator[tuple[torch.Tensor, CtcMinibatch]]:
        """The same of all utterances, shortest first."""
        yield from map(self.minibatch_of, self._by_length())

    def minibatch_of(self, members: np.ndarray) -> tuple[torch.Tensor, CtcMinibatch]:
        """Utterances `members` (indices into `keys`) side by side."""
        keys, lengths = [self.keys[i] for i in members], self.lengths[members]
        frames = np.arange(-self.left, whole_outputs(lengths.max(), self.subsampling) + self.right)
        rows = [np.clip(frames, 0, length - 1) for length in lengths]
        x = np.stack([((self.features(i) - self.mean) * self.inverse_std)[row] for i, row in zip(members, rows)], 1)
        labels = [np.array(self.targets.pdfs_of(key)) for key in keys]
        supervision = replace(CtcMinibatch.of(labels, -(-lengths // self.subsampling), keys), lengths=lengths)
        return torch.from_numpy(x).to(self.device, self.dtype).transpose(0, 1), supervision

    def _by_length(self) -> list[np.ndarray]:
        """Minibatches of all utterances, the shortest first."""
        return self._cut(np.argsort(self.lengths, kind="stable"))

    def _num_frames(self, members: np.ndarray) -> int:
        """With the frames that are repeated."""
        return len(members) * int(self.lengths[members].max())

    def _epoch(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """(the minibatches of an epoch, the frames up to the end of each): utterances are put in order of length within random pools."""
        random = self._random(epoch)
        order, groups = self._drawn(random), []
        pool = max(_POOL * self.minibatch * len(self.keys) // max(int(self.lengths.sum()), 1), 1)
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            groups += self._cut(part[np.argsort(self.lengths[part], kind="stable")])
        shuffled = [groups[i] for i in random.permutation(len(groups))]
        return shuffled, np.cumsum([self.lengths[members].sum() for members in shuffled])
