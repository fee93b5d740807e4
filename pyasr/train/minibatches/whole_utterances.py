"""Whole utterances as minibatches, for criteria of sequences: what these have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.feats.inputs import FeatureReader
from pyasr.train.compute import ComputeOptions
from pyasr.train.draws import ALL, num_drawn
from pyasr.train.targets.pdf_targets import Targets


class Utterances(ABC):
    """Utterances `keys` of one rank, read whenever they are trained on.

    targets  what each of them should be
    lengths  frames of each, int64
    compute  its `minibatch`: utterances are put together as long as they have no more frames; a longer one is a minibatch by itself
    draw     (k, n): how many of them are drawn in an epoch, see `num_drawn`; `num_frames` is what they have on average
    """

    item_frames = 1

    def __init__(self, reader: FeatureReader, targets: Targets, keys: list[str], lengths: list[int], compute: ComputeOptions, seed: int,
                 rank: int, draw: tuple[int, int] = ALL):  # fmt: skip
        self.reader, self.targets, self.keys, self.minibatch, self.seed, self.rank = reader, targets, keys, compute.minibatch, seed, rank
        self.draw, self.num_drawn = draw, num_drawn(len(keys), draw)
        self.device, self.dtype = compute.torch_device(), compute.torch_dtype()
        self.lengths = np.array(lengths, np.int64)
        self.num_frames = num_drawn(int(self.lengths.sum()), draw)

    def epoch_frames(self, epoch: int) -> int:
        """Frames of the utterances of an epoch."""
        return self.num_frames if self.draw == ALL else int(self.lengths[self._drawn(self._random(epoch))].sum())

    @property
    def longest(self) -> int:
        """Frames of the longest."""
        return int(self.lengths.max(initial=0))

    def describe(self) -> str:
        """For the log."""
        drawn = "" if self.draw == ALL else f", of which it draws {self.num_drawn}"
        return f"in {len(self.keys)} utterances, read anew in each epoch{drawn}"

    def border(self, epoch: int, begin: int) -> int:
        """Where a minibatch of an epoch may begin, at least `begin` frames after the first, or where the epoch ends."""
        ends = np.append(0, self._epoch(epoch)[1])
        return int(ends[min(np.searchsorted(ends, begin), len(ends) - 1)])

    def largest(self, _minibatch: int) -> tuple | None:
        """The minibatch of the most frames, when the longest utterances come first; None without utterances."""
        return self.minibatch_of(max(self._longest_first(), key=self._num_frames)) if len(self.keys) else None

    def advice(self, _minibatch: int) -> str:
        """What to lower if memory is too small for a minibatch; features are read as they are needed."""
        longest = f" (the longest is {self.keys[self.lengths.argmax()]}, {self.lengths.max()} frames)" if len(self.keys) else ""
        return f"lower --minibatch (now {self.minibatch}), cut long utterances{longest}, or run fewer ranks on a host"

    def most_frames(self) -> int:
        """Frames of `largest`."""
        return max(map(self._num_frames, self._longest_first()))

    @abstractmethod
    def minibatch_of(self, members: np.ndarray) -> tuple[torch.Tensor, object]:
        """(inputs, what they should be) of utterances `members`, indices into `keys`."""

    @abstractmethod
    def _num_frames(self, members: np.ndarray) -> int:
        """Of a minibatch of these utterances."""

    @abstractmethod
    def _epoch(self, epoch: int) -> tuple[object, np.ndarray]:
        """(what comes in an epoch, piece by piece, at the beginning of any of which a training may go on; the frames up to the end of
        each)"""

    def _random(self, epoch: int) -> np.random.Generator:
        return generator(self.seed, "utterances", epoch, self.rank)

    def _drawn(self, random: np.random.Generator) -> np.ndarray:
        """The utterances of an epoch, whose random numbers are these, in random order."""
        return random.permutation(len(self.keys))[: self.num_drawn]

    def _longest_first(self) -> list[np.ndarray]:
        """Minibatches of all utterances."""
        return self._cut(np.argsort(-self.lengths, kind="stable"))

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Neighbours together, as many as have no more than `minibatch` frames, one at least."""
        groups, begin = [], 0
        for end in range(1, len(order) + 1):
            if end == len(order) or self._num_frames(order[begin : end + 1]) > self.minibatch:
                groups.append(order[begin:end])
                begin = end
        return groups
