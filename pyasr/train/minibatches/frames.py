"""Frames in memory, stored once, unspliced and compact, and gathered into spliced minibatches by index.

Each utterance is stored with its first frame repeated `left` times before it and its last frame `right` times
after it. The spliced input of a frame is then the rows i .. i + left + right of the store, so a minibatch is
one selection of rows, and no frame is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.tensor.copies import moved
from pyasr.train.draws import ALL, num_drawn
from pyasr.train.minibatches.feature_codec import Bytes, Plain

# of a frame in addition to its features: target, first row, place in the order of the epoch
_FRAME_BYTES = 12


class FrameStore:
    """Unspliced frames of some utterances with their targets.

    `num_frames` frames of `dim` columns; `gather(index)` returns inputs (len(index), (left + 1 + right) dim)
    and targets (len(index),) of frames 0 .. num_frames - 1, counted over utterances.

    The unit of gathering and shuffling is an item: a frame here; an item of a subclass may have several
    targets.

    num_items    number of items
    item_frames  targets per item; num_frames is the product of both
    features  one float32 (T, dim) for each utterance, read one after the other
    targets   one (T,) for each utterance
    code      storage of features
    pinned    whether frames are in pinned host memory, from which a GPU copies by itself
    """

    def __init__(
        self,
        features: Iterable[np.ndarray],
        targets: list[np.ndarray],
        left: int,
        right: int,
        dim: int,
        code: Plain | Bytes | None = None,
        pinned: bool = False,
    ):
        self.left = left
        self.right = right
        self.dim = dim
        self.code = code or Plain(torch.float32)
        self.dtype = torch.float32
        lengths = np.array([len(pdfs) for pdfs in targets], np.int64)
        self.num_items, self.item_frames = int(lengths.sum()), 1
        offsets = np.concatenate([[0], np.cumsum(lengths + left + right)])
        self.frames = torch.empty(int(offsets[-1]), dim, dtype=self.code.stored, pin_memory=pinned)
        for begin, end, x in zip(offsets[:-1], offsets[1:], features, strict=True):
            self._put(int(begin), int(end), torch.from_numpy(x))
        number = np.int32 if _index_type(len(self.frames)) == torch.int32 else np.int64
        first_row = (np.arange(len(lengths), dtype=number) * number(left + right)).repeat(lengths)
        first_row += np.arange(self.num_items, dtype=number)
        self._first_row = torch.from_numpy(first_row)
        self.targets = torch.from_numpy(
            np.concatenate([np.zeros(0, np.int32), *targets]).astype(np.int32, copy=False)
        )
        self._window = torch.arange(left + 1 + right, dtype=torch.int32)

    @property
    def num_frames(self) -> int:
        """Number of targets of all items."""
        return self.num_items * self.item_frames

    def _put(self, begin: int, end: int, x: torch.Tensor) -> None:
        """Write an utterance to rows begin .. end - 1."""
        if not len(x):
            return
        first, behind = begin + self.left, end - self.right
        self.frames[first:behind] = self.code.encode(x)
        self.frames[begin:first] = self.frames[first]
        self.frames[behind:end] = self.frames[behind - 1]

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Return inputs on `device` in type `dtype` from now on. Features in float32 are narrowed to it,
        which loses no more precision than the conversion of minibatches."""
        kept = dtype if self.frames.dtype == torch.float32 else self.frames.dtype
        self.frames = moved(self.frames, device, kept)
        self.targets = self.targets.to(device, non_blocking=True)
        self._first_row = self._first_row.to(device, non_blocking=True)
        self._window = self._window.to(device)
        self.dtype = dtype

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that `move` moves."""
        return [self.frames, self.targets, self._first_row, self._window]

    def gather(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Spliced inputs, and targets (int64), of the frames `index`."""
        rows = (self._first_row[index].unsqueeze(1) + self._window).flatten()
        inputs = self.frames.index_select(0, rows).view(len(index), len(self._window) * self.dim)
        return self.code.decode(inputs, self.dtype), self.targets[index].long()

    def in_turn(self, minibatch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All items in minibatches of `minibatch` frames, in stored order."""
        yield from self._minibatches(torch.arange(self.num_items), minibatch)

    def shuffled(
        self,
        minibatch: int,
        begin: int,
        seed: int,
        *names: object,
        missing: int = 0,
        draw: tuple[int, int] = ALL,
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All drawn items except those of the first `begin` frames, in minibatches, in an order that depends
        only on `seed` and `names`.

        missing  frames of an additional minibatch before the others; 0: none
        """
        order = self.epoch_order(seed, *names)[begin // self.item_frames : num_drawn(self.num_items, draw)]
        first = missing // self.item_frames
        yield from self._minibatches(order[:first], minibatch)
        yield from self._minibatches(order[first:], minibatch)

    def drawn_frames(self, draw: tuple[int, int], _seed: int, *_names: object) -> int:
        """Number of targets of the items that `shuffled` yields."""
        return num_drawn(self.num_items, draw) * self.item_frames

    def epoch_order(self, seed: int, *names: object) -> torch.Tensor:
        """All items in an order that depends only on the arguments and on the kind of device."""
        device = self.targets.device
        random = torch.Generator(device).manual_seed(
            int(generator(seed, "shuffle", *names).integers(1 << 62))
        )
        return torch.randperm(
            self.num_items, generator=random, device=device, dtype=_index_type(self.num_items)
        )

    def _minibatches(
        self, order: torch.Tensor, minibatch: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in order.to(self.targets.device).split(max(minibatch // self.item_frames, 1)):
            if len(index):
                yield self.gather(index)


def store_bytes(lengths: np.ndarray, left: int, right: int, dim: int, code: Plain | Bytes) -> np.ndarray:
    """Bytes of a store for each utterance of `lengths` frames, int64 (len(lengths),)."""
    return (lengths + left + right) * (dim * code.stored.itemsize) + lengths * _FRAME_BYTES


def _index_type(number: int) -> torch.dtype:
    """The narrowest index type for indices below `number`."""
    return torch.int32 if number < 1 << 31 else torch.int64
