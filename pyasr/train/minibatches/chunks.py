r"""Minibatches of chunks: for networks over time, some neighbouring frames of an utterance at once.

An utterance of T frames is cut into ceil(T / c) chunks of c frames, the last of which ends where it ends, so that it begins inside the one
before: what both have is not learned twice, its targets are `NO_TARGET` in the last. A shorter utterance is one chunk, its last frame
repeated up to c, without targets there. Context is added to both sides, frames of the utterance, or its first and last one repeated.
With subsampling s there is a target for every s-th frame, the first one included, and chunks begin at such frames: the last one may have
up to s - 1 frames more than the utterance, its last one repeated.

Where the state of recurrent layers is carried from chunk to chunk, every chunk begins where the one before has ended, the last frame of
an utterance is repeated up to whole chunks, and minibatches are of `pyasr.train.minibatches.rows`.

Every chunk counts as ceil(c / s) frames, whatever it has targets for, so that minibatches are all of one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.train.draws import ALL, num_drawn
from pyasr.train.minibatches.feature_codec import Bytes, Plain
from pyasr.train.minibatches.frames import FrameStore, store_bytes
from pyasr.train.minibatches.rows import Rows, deal

NO_TARGET = -100  # what torch's cross-entropy leaves out
RowMinibatches = Iterator[tuple[Rows, torch.Tensor]]


@dataclass(frozen=True)
class Packing:
    """What a store makes of utterances.

    left, right  frames of context
    chunk        frames of a chunk, c; 0: single frames, spliced with their context
    subsampling  s
    carried      whether chunks follow each other without overlap, in rows
    """

    left: int = 0
    right: int = 0
    chunk: int = 0
    subsampling: int = 1
    carried: bool = False

    @property
    def item_frames(self) -> int:
        """What an item counts."""
        return -(-self.chunk // self.subsampling) if self.chunk else 1

    def whole(self, minibatch: int) -> int:
        """The number of frames nearest to `minibatch`, but not greater, that items make; of one item at least."""
        return max(minibatch // self.item_frames, 1) * self.item_frames

    @property
    def width(self) -> int:
        """Frames of a spliced input; 1 where the network splices."""
        return 1 if self.chunk else self.left + 1 + self.right

    def num_frames(self, lengths: np.ndarray) -> np.ndarray:
        """What utterances of these lengths count, int64."""
        return -(-lengths // self.chunk) * self.item_frames if self.chunk else lengths

    def taken(self, lengths: np.ndarray) -> np.ndarray:
        """Frames that utterances of these lengths take in a store, those that are repeated included, int64."""
        whole = self.chunk if self.carried else self.subsampling
        return np.maximum(-(-lengths // whole) * whole, self.chunk)

    def num_bytes(self, lengths: np.ndarray, dim: int, code: Plain | Bytes) -> np.ndarray:
        """Memory for each utterance, int64."""
        return store_bytes(self.taken(lengths), self.left, self.right, dim, code)

    def store(self, features: Iterable[np.ndarray], targets: list[np.ndarray], dim: int, code: Plain | Bytes, pinned: bool) -> FrameStore:
        """A store of utterances: features (T, dim) and targets (T,) of each."""
        if not self.chunk:
            return FrameStore(features, targets, self.left, self.right, dim, code, pinned)
        return (RowStore if self.carried else ChunkStore)(features, targets, self, dim, code, pinned)


class ChunkStore(FrameStore):
    """Frames in memory, gathered in chunks: inputs (N, left + c + right, dim), targets (N, ceil(c / s))."""

    def __init__(self, features: Iterable[np.ndarray], targets: list[np.ndarray], packing: Packing, dim: int,
                 code: Plain | Bytes | None = None, pinned: bool = False):  # fmt: skip
        lengths, chunk = np.array([len(pdfs) for pdfs in targets], np.int64), packing.chunk
        taken = packing.taken(lengths)
        long_enough = (_repeat_last(x, num) for x, num in zip(features, taken, strict=True))
        padded = [_fill(pdfs, num) for pdfs, num in zip(targets, taken)]
        super().__init__(long_enough, padded, packing.left, packing.right, dim, code, pinned)
        self._frame, self._num_known = map(torch.from_numpy, places(lengths, taken, chunk))
        self._offsets = torch.arange(0, chunk, packing.subsampling, dtype=torch.int32)
        self._rows = torch.arange(packing.left + chunk + packing.right, dtype=torch.int32)
        self.num_items, self.item_frames = len(self._frame), packing.item_frames

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """As of all stores."""
        super().move(device, dtype)
        self._frame, self._num_known = self._frame.to(device), self._num_known.to(device)
        self._offsets, self._rows = self._offsets.to(device), self._rows.to(device)

    def tensors(self) -> list[torch.Tensor]:
        """As of all stores."""
        return [*super().tensors(), self._frame, self._num_known, self._offsets, self._rows]

    def gather(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of the chunks `index`; inputs lie in memory time first."""
        frame = self._frame[index]
        rows = (self._rows[:, None] + self._first_row[frame]).flatten()
        inputs = self.code.decode(self.frames.index_select(0, rows), self.dtype).view(len(self._rows), len(index), self.dim)
        targets = self.targets[frame[:, None] + self._offsets].long()
        return inputs.transpose(0, 1), targets.masked_fill_(self._offsets < self._num_known[index][:, None], NO_TARGET)


class RowStore(ChunkStore):
    """Chunks in rows: minibatches are (`Rows`, targets), each of which goes on where the one before has ended."""

    def __init__(self, features: Iterable[np.ndarray], targets: list[np.ndarray], packing: Packing, *arguments):
        super().__init__(features, targets, packing, *arguments)
        self._num_chunks = packing.num_frames(np.array([len(pdfs) for pdfs in targets], np.int64)) // self.item_frames
        self._begins = torch.zeros(self.num_items, dtype=torch.bool)
        self._begins[(np.cumsum(self._num_chunks) - self._num_chunks)[self._num_chunks > 0]] = True

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """As of all stores."""
        super().move(device, dtype)
        self._begins = self._begins.to(device)

    def tensors(self) -> list[torch.Tensor]:
        """As of all stores."""
        return [*super().tensors(), self._begins]

    def in_turn(self, minibatch: int) -> RowMinibatches:
        """All chunks, utterances dealt as they lie."""
        yield from self._in_rows(np.arange(len(self._num_chunks)), minibatch, 0)

    def shuffled(self, minibatch: int, begin: int, seed: int, *names: object, missing: int = 0,
                 draw: tuple[int, int] = ALL) -> RowMinibatches:  # fmt: skip
        """As of all stores, utterances drawn and dealt in an order that depends on `seed` and `names` alone; nothing is `missing` before
        the first minibatch, with which all rows begin."""
        yield from self._in_rows(self._drawn(draw, seed, *names), minibatch, begin // self.item_frames)

    def drawn_frames(self, draw: tuple[int, int], seed: int, *names: object) -> int:
        """As of all stores."""
        return int(self._num_chunks[self._drawn(draw, seed, *names)].sum()) * self.item_frames

    def _drawn(self, draw: tuple[int, int], seed: int, *names: object) -> np.ndarray:
        """Utterances in random order."""
        num_utterances = len(self._num_chunks)
        return generator(seed, "rows", *names).permutation(num_utterances)[: num_drawn(num_utterances, draw)]

    def _in_rows(self, order: np.ndarray, minibatch: int, begin: int) -> RowMinibatches:
        """All chunks of the utterances `order` but the first `begin`."""
        chunks, sizes = deal(self._num_chunks, order, max(minibatch // self.item_frames, 1))
        for start, size in zip(np.cumsum(sizes) - sizes, sizes):
            first = max(begin - start, 0)
            if first < size:
                index = torch.from_numpy(chunks[start + first : start + size]).to(self.targets.device)
                x, targets = self.gather(index)
                yield Rows(x, self._begins[index], first), targets


def places(lengths: np.ndarray, taken: np.ndarray, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every chunk of utterances of these lengths, which take `taken` frames of a store, at least `chunk`: its first frame, counted over
    utterances, and how many of its frames belong to the chunk before; int64."""
    numbers = -(-lengths // chunk)
    utterance = np.arange(len(lengths)).repeat(numbers)
    number = np.arange(len(utterance)) - (np.cumsum(numbers) - numbers)[utterance]
    begin = np.minimum(number * chunk, taken[utterance] - chunk)
    return (np.cumsum(taken) - taken)[utterance] + begin, number * chunk - begin


def _repeat_last(x: np.ndarray, num: int) -> np.ndarray:
    """At least `num` rows; zeros where there is none to repeat."""
    if len(x) >= num:
        return x
    return np.concatenate([x, x[-1:].repeat(num - len(x), 0)]) if len(x) else np.zeros((num, *x.shape[1:]), x.dtype)


def _fill(pdfs: np.ndarray, num: int) -> np.ndarray:
    """At least `num` targets."""
    return pdfs if len(pdfs) >= num else np.concatenate([pdfs, np.full(num - len(pdfs), NO_TARGET, pdfs.dtype)])
