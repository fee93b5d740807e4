"""Minibatches of padded whole utterances, for networks that are trained on labels without times (CTC).

Utterances of similar length share a minibatch. The last frame of each is repeated up to the length of the
longest. The network gets the lengths, so that its outputs for an utterance are the same as for the utterance
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

_POOL = 20  # minibatches per pool; utterances are sorted by length within a pool


@dataclass(frozen=True)
class CtcMinibatch(CtcSupervision):
    """Labels of the utterances of a minibatch, and their numbers of feature frames `lengths`, int64 (N)."""

    lengths: np.ndarray

    def numel(self) -> int:
        """Number of frames, like `numel` of the target tensors of other criteria."""
        return int(self.lengths.sum())


class PaddedUtterances(Utterances):
    """Utterances of a rank, padded to equal lengths in a minibatch; `arguments` are passed to `Utterances`.

    mean, inverse_std  of the columns, float32 (dim,), set by `normalise_by`
    """

    def __init__(self, reader: FeatureReader, targets: Targets, keys: list[str], *arguments):
        super().__init__(reader, targets, keys, [reader.num_frames(key) for key in keys], *arguments)

    def mean_units(self, comm: Comm) -> float:
        """Mean number of units per minibatch over all ranks, with all utterances sorted by length. Every rank
        must call this."""
        units, number = sum(len(self.targets.pdfs_of(key)) for key in self.keys), len(self._by_length())
        return comm.reduce_scalar(units) / max(comm.reduce_scalar(number), 1.0)

    def statistics(self) -> np.ndarray:
        """Sums of the features and their squares, see `cmvn_stats`."""
        return sum(
            (cmvn_stats(self.features(i)) for i in range(len(self.keys))), np.zeros((2, self.reader.dim + 1))
        )

    def features(self, member: int) -> np.ndarray:
        """Features of an utterance (an index into `keys`) as stored on disk, float32 (T, dim). Raises
        UserError if they are unusable."""
        return read_features(self.reader, self.keys[member], int(self.lengths[member]))

    def normalise_by(self, mean: np.ndarray, inverse_std: np.ndarray, network: LayeredNetwork) -> None:
        """Set the shift and scale of every column, and the context and subsampling of `network`."""
        self.mean, self.inverse_std = mean, inverse_std
        self.left, self.right, self.subsampling = network.left, network.right, network.subsampling

    def minibatches(
        self, _size: int, epoch: int, begin: int = 0
    ) -> Iterator[tuple[torch.Tensor, CtcMinibatch]]:
        """Inputs (N, left + T + right, dim) and labels of all utterances in random order, without the first
        minibatches, which have `begin` frames in total."""
        groups, ends = self._epoch(epoch)
        for members, end in zip(groups, ends):
            if end - self.lengths[members].sum() >= begin:
                yield self.minibatch_of(members)

    def in_turn(self, _size: int) -> Iterator[tuple[torch.Tensor, CtcMinibatch]]:
        """Inputs and labels of all utterances, shortest first."""
        yield from map(self.minibatch_of, self._by_length())

    def minibatch_of(self, members: np.ndarray) -> tuple[torch.Tensor, CtcMinibatch]:
        """Minibatch of the utterances `members` (indices into `keys`)."""
        keys, lengths = [self.keys[i] for i in members], self.lengths[members]
        frames = np.arange(-self.left, whole_outputs(lengths.max(), self.subsampling) + self.right)
        rows = [np.clip(frames, 0, length - 1) for length in lengths]
        x = np.stack(
            [((self.features(i) - self.mean) * self.inverse_std)[row] for i, row in zip(members, rows)], 1
        )
        labels = [np.array(self.targets.pdfs_of(key)) for key in keys]
        supervision = CtcSupervision.of(labels, -(-lengths // self.subsampling), keys)
        minibatch = CtcMinibatch(**vars(supervision), lengths=lengths)
        return torch.from_numpy(x).to(self.device, self.dtype).transpose(0, 1), minibatch

    def _by_length(self) -> list[np.ndarray]:
        """Minibatches of all utterances, shortest first."""
        return self._cut(np.argsort(self.lengths, kind="stable"))

    def _num_frames(self, members: np.ndarray) -> int:
        """Frames of a minibatch, padding included."""
        return len(members) * int(self.lengths[members].max())

    def _epoch(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """(minibatches of an epoch, frames up to the end of each); utterances are sorted by length within
        random pools."""
        random = self._random(epoch)
        order, groups = self._drawn(random), []
        pool = max(_POOL * self.minibatch * len(self.keys) // max(int(self.lengths.sum()), 1), 1)
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            groups += self._cut(part[np.argsort(self.lengths[part], kind="stable")])
        shuffled = [groups[i] for i in random.permutation(len(groups))]
        return shuffled, np.cumsum([self.lengths[members].sum() for members in shuffled])
