"""The frames a rank trains on: loaded once, kept unspliced, gathered into spliced minibatches by index.

Each utterance is stored with its first frame repeated `left` times before it and its last `right` times after it. The spliced input of
a frame is then the rows i .. i + left + right of the store, which lie one after the other in memory: a window of a strided view, so a
minibatch is one gather of contiguous pieces, and no frame is stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.base.seeds import generator
from pyasr.feats.cmvn import cmvn_stats, normaliser
from pyasr.feats.inputs import FeatureReader
from pyasr.feats.warp import Warper
from pyasr.train.targets import Targets


@dataclass(frozen=True)
class PerturbOptions:
    """How training data are varied from epoch to epoch."""

    vtlp: float = option(0.0, "greatest warping of an utterance's frequencies, drawn anew in every epoch", minimum=0.0, maximum=0.5)


class FrameStore:
    """Unspliced frames of some utterances with their targets.

    `num_frames` frames of `dim` columns; `gather(index)` gives inputs (len(index), (left + 1 + right) dim) and targets (len(index),) of
    frames 0 .. num_frames - 1, counted over utterances.
    """

    def __init__(self, features: list[np.ndarray], targets: list[np.ndarray], left: int, right: int, dim: int, keys: list[str] = ()):
        self.left, self.right, self.dim, self.keys = left, right, dim, list(keys)
        lengths = np.array([len(x) for x in features], np.int64)
        self.num_frames = int(lengths.sum())
        self.offsets = offsets = np.concatenate([[0], np.cumsum(lengths + left + right)])
        self.frames = torch.empty(int(offsets[-1]), dim)
        self._warper = None
        rows = self.frames.numpy()
        for begin, end, x in zip(offsets, offsets[1:], features):
            rows[begin + left : end - right] = x
            rows[begin : begin + left] = x[0]
            rows[end - right : end] = x[-1]
        padding_before = np.arange(len(lengths)).repeat(lengths) * (left + right)
        self._first_row = torch.from_numpy(np.arange(self.num_frames) + padding_before)
        self.targets = torch.from_numpy(np.concatenate(targets).astype(np.int64) if targets else np.zeros(0, np.int64))
        self._view()

    def _view(self) -> None:
        """A view whose row i is the window of rows i .. i + left + right."""
        width = self.left + 1 + self.right
        num_windows = max(len(self.frames) - width + 1, 0)
        self._windows = self.frames.as_strided((num_windows, width * self.dim), (self.dim, 1))

    def warp_by(self, warper: Warper, greatest: float) -> None:
        """From now on `begin_epoch` warps every utterance by a random factor in 1 - greatest .. 1 + greatest. Call before `normalise`."""
        self._warper, self._greatest, self._original = warper, greatest, self.frames.clone()

    def normalise(self, mean: np.ndarray, inverse_std: np.ndarray) -> None:
        """Shift and scale every column."""
        self._normaliser = torch.from_numpy(mean), torch.from_numpy(inverse_std)
        self.frames.sub_(self._normaliser[0]).mul_(self._normaliser[1])

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """Warp the utterances for one epoch: factors depend on the arguments and the utterance alone."""
        if self._warper is None:
            return
        mean, inverse_std = self._normaliser
        for key, begin, end in zip(self.keys, self.offsets, self.offsets[1:]):
            factor = 1 + generator(seed, "vtlp", epoch, key).uniform(-self._greatest, self._greatest)
            matrix = torch.from_numpy(self._warper.matrix(factor))
            original = self._original[begin:end].view(end - begin, -1, len(matrix))  # features and their deltas are warped alike
            warped = (original @ matrix).view(end - begin, self.dim)
            self.frames[begin:end] = warped.sub_(mean).mul_(inverse_std)

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Put the frames where, and in the type in which, the network computes."""
        self.frames = self.frames.to(device, dtype)
        self.targets = self.targets.to(device)
        self._first_row = self._first_row.to(device)
        self._view()

    def gather(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Spliced inputs and targets of the frames `index`."""
        return self._windows[self._first_row[index]], self.targets[index]

    def epoch_order(self, seed: int, epoch: int, rank: int) -> torch.Tensor:
        """All frames in an order that depends on the arguments alone."""
        return torch.from_numpy(generator(seed, "shuffle", epoch, rank).permutation(self.num_frames)).to(self.targets.device)


def load_store(reader: FeatureReader, targets: Targets, keys: list[str], left: int, right: int, dim: int) -> FrameStore:
    """A store of the utterances `keys`. Raises UserError when a feature matrix has not as many frames as utt2num_frames said."""
    features, pdfs = [], []
    for key in keys:
        features.append(reader[key])
        pdfs.append(targets.pdfs_of(key))
        if len(features[-1]) != len(pdfs[-1]):
            counts = f"{len(features[-1])} frames, utt2num_frames says {len(pdfs[-1])}"
            raise UserError(f"{reader.data}: {key} has {counts}; run steps/make_mfcc.py {reader.data} again")
    return FrameStore(features, pdfs, left, right, dim, keys)


def global_normaliser(store: FrameStore, comm) -> tuple[np.ndarray, np.ndarray]:
    """Mean and inverse standard deviation of each column over the stores of all ranks, float32 (dim,)."""
    stats = np.zeros((2, store.dim + 1))
    for block in store.frames.split(1 << 16):
        stats += cmvn_stats(block.numpy())
    comm.allreduce(stats)
    return normaliser(stats, norm_vars=True)
