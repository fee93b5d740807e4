"""Minibatches of whole utterances with their lattices, for criteria of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.seeds import generator
from pyasr.feats.inputs import FeatureReader
from pyasr.nn.acoustic import AcousticModel
from pyasr.parallel.comm import Comm
from pyasr.sequence.hypotheses_store import HypothesesStore
from pyasr.sequence.lattice_objective import LatticeSupervision
from pyasr.train.compute import ComputeOptions
from pyasr.train.targets import Targets
from pyasr.train.usable_features import check_numbers

LatticeMinibatches = Iterator[tuple[torch.Tensor, LatticeSupervision]]


def next_end(ends: np.ndarray, begin: int) -> int:
    """The least of 0 and these ascending `ends` that is at least `begin`."""
    ends = np.append(0, ends)
    return int(ends[np.searchsorted(ends, begin)])


class Utterances:
    """Utterances `keys` of one rank, whose features are read, and whose hypotheses are fetched, whenever they are trained on.

    reader      of the model's input
    model       whose normalisation the input gets
    references  transition-ids of the frames, in place of pdfs
    compute     its `minibatch`: utterances are put together as long as they have no more frames; a longer one is a minibatch by itself
    """

    item_frames = 1

    def __init__(self, reader: FeatureReader, model: AcousticModel, references: Targets, keys: list[str], hypotheses: HypothesesStore,
                 compute: ComputeOptions, seed: int, rank: int):  # fmt: skip
        self.reader, self.references, self.keys, self.hypotheses = reader, references, keys, hypotheses
        self.mean, self.inverse_std, self.minibatch, self.seed, self.rank = model.mean, model.inverse_std, compute.minibatch, seed, rank
        self.device, self.dtype = compute.torch_device(), compute.torch_dtype()
        self.lengths = np.array([len(references.pdfs_of(key)) for key in keys], np.int64)
        self.num_frames = int(self.lengths.sum())

    @property
    def longest(self) -> int:
        """Frames of the longest."""
        return int(self.lengths.max(initial=0))

    def mean_minibatch(self, comm: Comm) -> float:
        """Frames that a minibatch of all ranks has on average, as they are in turn. Every rank must call this."""
        number = sum(1 for _ in self._cut(np.arange(len(self.keys))))
        num_frames, number = comm.allreduce(np.array([self.num_frames, number], np.float64))
        return num_frames / max(number, 1.0)

    def describe(self) -> str:
        """For the log."""
        return f"in {len(self.keys)} utterances, read anew in each epoch"

    def minibatches(self, _size: int, epoch: int, begin: int = 0) -> LatticeMinibatches:
        """(normalised inputs (T, input_dim), supervision) of all utterances of an epoch in random order, but those that begin among the
        first `begin` frames."""
        order, ends = self._order(epoch)
        yield from self._minibatches(order[ends - self.lengths[order] >= begin])

    def border(self, epoch: int, begin: int) -> int:
        """Where an utterance of an epoch begins, at least `begin` frames after the first."""
        return next_end(self._order(epoch)[1], begin)

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(indices into `keys` in the random order of an epoch, the frames up to the end of each)"""
        order = generator(self.seed, "utterances", epoch, self.rank).permutation(len(self.keys))
        return order, np.cumsum(self.lengths[order])

    def in_turn(self, _size: int) -> LatticeMinibatches:
        """The same in the order of `keys`."""
        yield from self._minibatches(np.arange(len(self.keys)))

    def largest(self) -> tuple[torch.Tensor, LatticeSupervision]:
        """The minibatch of the most frames, when the longest utterances come first."""
        return self.minibatch_of(max(self._cut(np.argsort(-self.lengths, kind="stable")), key=self._num_frames))

    def most_frames(self) -> int:
        """Frames of `largest`."""
        return max(map(self._num_frames, self._cut(np.argsort(-self.lengths, kind="stable"))))

    def _num_frames(self, members: Sequence[int]) -> int:
        return int(self.lengths[members].sum())

    def _minibatches(self, order: np.ndarray) -> LatticeMinibatches:
        return map(self.minibatch_of, self._cut(order))

    def _cut(self, order: np.ndarray) -> Iterator[list[int]]:
        """Neighbours together, as many as have no more than `minibatch` frames, one at least."""
        members, num_frames = [], 0
        for i in order:
            if members and num_frames + self.lengths[i] > self.minibatch:
                yield members
                members, num_frames = [], 0
            members.append(i)
            num_frames += self.lengths[i]
        if members:
            yield members

    def minibatch_of(self, members: Sequence[int]) -> tuple[torch.Tensor, LatticeSupervision]:
        """Utterances `members` (indices into `keys`), one after the other."""
        keys = [self.keys[i] for i in members]
        x = torch.from_numpy(np.concatenate([self._features(key) for key in keys]))
        x = ((x - self.mean) * self.inverse_std).to(self.device, self.dtype)
        return x, LatticeSupervision([np.array(self.references.pdfs_of(key)) for key in keys], [self.hypotheses[key] for key in keys])

    def _features(self, key: str) -> np.ndarray:
        """The model's input (T, input_dim). Raises UserError where it is of no use."""
        features, num_frames = self.reader[key], len(self.references.pdfs_of(key))
        if features.shape != (num_frames, len(self.mean)):
            found = f"the input of {key} has {features.shape[0]} frames of {features.shape[1]} columns"
            expected = f"its alignment {num_frames} frames, the model {len(self.mean)} columns"
            raise UserError(f"{self.reader.data}: {found}, {expected}; give the features that the model was trained on")
        check_numbers(features, key, self.reader.data)
        return features
