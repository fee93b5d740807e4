"""Common base of minibatches of whole utterances, for sequence criteria."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.feats.inputs import FeatureReader
from pyasr.train.compute import ComputeOptions
from pyasr.train.draws import ALL, num_drawn
from pyasr.train.targets.pdf_targets import Targets


class FrameTargets(Protocol):
    """Targets of the frames of a minibatch, of any criterion."""

    def numel(self) -> int:
        """Number of frames."""


class Utterances(ABC):
    """Utterances `keys` of one rank. Their features are read from disk for each use.

    targets     targets of the utterances
    lengths     frames of each utterance, int64
    compute     `minibatch` is the maximum number of frames of a minibatch; a longer utterance is a minibatch
                of its own
    draw        (k, n): how many utterances are drawn in an epoch, see `num_drawn`; `num_frames` is their mean
                number of frames
    num_epochs  epochs of the training, which sets it
    """

    item_frames, num_epochs = 1, 0

    def __init__(
        self,
        reader: FeatureReader,
        targets: Targets,
        keys: list[str],
        lengths: list[int],
        compute: ComputeOptions,
        seed: int,
        rank: int,
        draw: tuple[int, int] = ALL,
    ):
        self.reader = reader
        self.targets = targets
        self.keys = keys
        self.minibatch = compute.minibatch
        self.seed = seed
        self.rank = rank
        self.draw, self.num_drawn = draw, num_drawn(len(keys), draw)
        self.device, self.dtype = compute.torch_device(), compute.torch_dtype()
        self.lengths = np.array(lengths, np.int64)
        self.num_frames = num_drawn(int(self.lengths.sum()), draw)

    def epoch_frames(self, epoch: int) -> int:
        """Frames of the utterances of an epoch."""
        return (
            self.num_frames if self.draw == ALL else int(self.lengths[self._drawn(self._random(epoch))].sum())
        )

    @property
    def longest(self) -> int:
        """Frames of the longest utterance."""
        return int(self.lengths.max(initial=0))

    def describe(self) -> str:
        """Location of the frames, for the log."""
        drawn = "" if self.draw == ALL else f", {self.num_drawn} of them drawn"
        return f"in {len(self.keys)} utterances, read from disk in each epoch{drawn}"

    def border(self, epoch: int, begin: int) -> int:
        """The first border of a minibatch at least `begin` frames after the beginning of an epoch, or the end
        of the epoch."""
        ends = np.append(0, self._epoch(epoch)[1])
        return int(ends[min(int(np.searchsorted(ends, begin)), len(ends) - 1)])

    def largest(self, _minibatch: int) -> tuple[torch.Tensor, FrameTargets] | None:
        """The minibatch with the most frames, with the longest utterances first; None without utterances."""
        return self.minibatch_of(max(self._longest_first(), key=self._num_frames)) if len(self.keys) else None

    def advice(self, _minibatch: int) -> str:
        """What to lower if memory is too small for a minibatch. Features take no lasting memory."""
        longest = (
            f" (the longest is {self.keys[self.lengths.argmax()]}, {self.lengths.max()} frames)"
            if len(self.keys)
            else ""
        )
        return (
            f"lower --minibatch (now {self.minibatch}), cut long utterances{longest}, or run fewer ranks "
            "on a host"
        )

    def most_frames(self) -> int:
        """Frames of `largest`."""
        return max(map(self._num_frames, self._longest_first()))

    @abstractmethod
    def minibatches(
        self, _size: int, epoch: int, begin: int = 0
    ) -> Iterator[tuple[torch.Tensor, FrameTargets]]:
        """(inputs, targets) of the utterances of an epoch in random order, except the first ones, of `begin`
        frames in total."""

    @abstractmethod
    def in_turn(self, _size: int) -> Iterator[tuple[torch.Tensor, FrameTargets]]:
        """(inputs, targets) of all utterances."""

    @abstractmethod
    def minibatch_of(self, members: np.ndarray) -> tuple[torch.Tensor, FrameTargets]:
        """(inputs, targets) of the utterances `members` (indices into `keys`)."""

    @abstractmethod
    def _num_frames(self, members: np.ndarray) -> int:
        """Frames of a minibatch of these utterances."""

    @abstractmethod
    def _epoch(self, epoch: int) -> tuple[object, np.ndarray]:
        """(pieces of an epoch, at whose begin a training can resume; frames up to the end of each piece)."""

    def _random(self, epoch: int) -> np.random.Generator:
        return generator(self.seed, "utterances", epoch, self.rank)

    def _drawn(self, random: np.random.Generator) -> np.ndarray:
        """The utterances of an epoch in random order; `random` is the epoch's generator."""
        return random.permutation(len(self.keys))[: self.num_drawn]

    def _longest_first(self) -> list[np.ndarray]:
        """Minibatches of all utterances, longest first."""
        return self._cut(np.argsort(-self.lengths, kind="stable"))

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Groups of successive utterances with at most `minibatch` frames each, at least one utterance."""
        groups, begin = [], 0
        for end in range(1, len(order) + 1):
            if end == len(order) or self._num_frames(order[begin : end + 1]) > self.minibatch:
                groups.append(order[begin:end])
                begin = end
        return groups
