r"""Minibatches of chunks of neighbouring frames of an utterance, for networks over time.

An utterance of T frames is cut into ceil(T / c) chunks of c frames. The last chunk ends with the utterance,
so it may overlap the chunk before; the frames of the overlap have the target `NO_TARGET` in the last chunk,
so they are not learned twice. An utterance of fewer than c frames is one chunk: its last frame is repeated,
and the repeated frames have no target. Context is added on both sides: frames of the utterance, or its first
and last frame repeated. With subsampling s, every s-th frame has a target, the first one included, and chunks
begin at such frames. The last chunk may have up to s - 1 frames more than the utterance, whose last frame is
repeated.

If the state of recurrent layers is carried from chunk to chunk, every chunk begins where the previous one
ends, the last frame of an utterance is repeated to fill its last chunk, and minibatches consist of
`pyasr.train.minibatches.rows`.

Every chunk counts as ceil(c / s) frames, however many targets it has, so all minibatches have the same size.
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

NO_TARGET = -100  # ignored by torch's cross-entropy
RowMinibatches = Iterator[tuple[Rows, torch.Tensor]]


@dataclass(frozen=True)
class Packing:
    """How a store divides utterances.

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
        """Number of frames that an item counts as."""
        return -(-self.chunk // self.subsampling) if self.chunk else 1

    def whole(self, minibatch: int) -> int:
        """The largest number of frames up to `minibatch` that whole items have, at least one item."""
        return max(minibatch // self.item_frames, 1) * self.item_frames

    @property
    def width(self) -> int:
        """Frames of a spliced input; 1 if the network splices."""
        return 1 if self.chunk else self.left + 1 + self.right

    def num_frames(self, lengths: np.ndarray) -> np.ndarray:
        """Number of frames that utterances of these lengths count as, int64."""
        return -(-lengths // self.chunk) * self.item_frames if self.chunk else lengths

    def taken(self, lengths: np.ndarray) -> np.ndarray:
        """Frames that utterances of these lengths occupy in a store, repeated frames included, int64."""
        whole = self.chunk if self.carried else self.subsampling
        return np.maximum(-(-lengths // whole) * whole, self.chunk)

    def num_bytes(self, lengths: np.ndarray, dim: int, code: Plain | Bytes) -> np.ndarray:
        """Memory for each utterance, in bytes, int64."""
        return store_bytes(self.taken(lengths), self.left, self.right, dim, code)

    def store(
        self,
        features: Iterable[np.ndarray],
        targets: list[np.ndarray],
        dim: int,
        code: Plain | Bytes,
        pinned: bool,
    ) -> FrameStore:
        """A store of utterances with features (T, dim) and targets (T,) each."""
        if not self.chunk:
            return FrameStore(features, targets, self.left, self.right, dim, code, pinned)
        return (RowStore if self.carried else ChunkStore)(features, targets, self, dim, code, pinned)


class ChunkStore(FrameStore):
    """Frames in memory, gathered into chunks: inputs (N, left + c + right, dim), targets (N, ceil(c / s))."""

    def __init__(
        self,
        features: Iterable[np.ndarray],
        targets: list[np.ndarray],
        packing: Packing,
        dim: int,
        code: Plain | Bytes | None = None,
        pinned: bool = False,
    ):
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
        """As `FrameStore.move`."""
        super().move(device, dtype)
        self._frame, self._num_known = self._frame.to(device), self._num_known.to(device)
        self._offsets, self._rows = self._offsets.to(device), self._rows.to(device)

    def tensors(self) -> list[torch.Tensor]:
        """As `FrameStore.tensors`."""
        return [*super().tensors(), self._frame, self._num_known, self._offsets, self._rows]

    def gather(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of the chunks `index`. Inputs have a time-major memory layout."""
        frame = self._frame[index]
        rows = (self._rows[:, None] + self._first_row[frame]).flatten()
        inputs = self.code.decode(self.frames.index_select(0, rows), self.dtype).view(
            len(self._rows), len(index), self.dim
        )
        targets = self.targets[frame[:, None] + self._offsets].long()
        return inputs.transpose(0, 1), targets.masked_fill_(
            self._offsets < self._num_known[index][:, None], NO_TARGET
        )


class RowStore(ChunkStore):
    """Chunks in rows: minibatches are (`Rows`, targets), each of which continues the previous one."""

    def __init__(
        self, features: Iterable[np.ndarray], targets: list[np.ndarray], packing: Packing, *arguments
    ):
        super().__init__(features, targets, packing, *arguments)
        self._num_chunks = (
            packing.num_frames(np.array([len(pdfs) for pdfs in targets], np.int64)) // self.item_frames
        )
        self._begins = torch.zeros(self.num_items, dtype=torch.bool)
        self._begins[(np.cumsum(self._num_chunks) - self._num_chunks)[self._num_chunks > 0]] = True

    def move(self, device: torch.device, dtype: torch.dtype) -> None:
        """As `FrameStore.move`."""
        super().move(device, dtype)
        self._begins = self._begins.to(device)

    def tensors(self) -> list[torch.Tensor]:
        """As `FrameStore.tensors`."""
        return [*super().tensors(), self._begins]

    def in_turn(self, minibatch: int) -> RowMinibatches:
        """All chunks; utterances are dealt in their order in memory."""
        yield from self._in_rows(np.arange(len(self._num_chunks)), minibatch, 0)

    def shuffled(
        self,
        minibatch: int,
        begin: int,
        seed: int,
        *names: object,
        missing: int = 0,
        draw: tuple[int, int] = ALL,
    ) -> RowMinibatches:
        """As `FrameStore.shuffled`; utterances are drawn and dealt in an order that depends only on `seed`
        and `names`. `missing` is ignored, because all rows begin with the first minibatch."""
        yield from self._in_rows(self._drawn(draw, seed, *names), minibatch, begin // self.item_frames)

    def drawn_frames(self, draw: tuple[int, int], seed: int, *names: object) -> int:
        """As `FrameStore.drawn_frames`."""
        return int(self._num_chunks[self._drawn(draw, seed, *names)].sum()) * self.item_frames

    def _drawn(self, draw: tuple[int, int], seed: int, *names: object) -> np.ndarray:
        """Utterances in random order."""
        num_utterances = len(self._num_chunks)
        return generator(seed, "rows", *names).permutation(num_utterances)[: num_drawn(num_utterances, draw)]

    def _in_rows(self, order: np.ndarray, minibatch: int, begin: int) -> RowMinibatches:
        """All chunks of the utterances `order` except the first `begin` chunks."""
        chunks, sizes = deal(self._num_chunks, order, max(minibatch // self.item_frames, 1))
        for start, size in zip(np.cumsum(sizes) - sizes, sizes):
            first = max(begin - start, 0)
            if first < size:
                index = torch.from_numpy(chunks[start + first : start + size]).to(self.targets.device)
                x, targets = self.gather(index)
                yield Rows(x, self._begins[index], first), targets


def places(lengths: np.ndarray, taken: np.ndarray, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """The first frame of every chunk, counted over utterances, and the number of its frames that belong to
    the chunk before; int64.

    lengths  frames of each utterance
    taken    frames that each utterance occupies in a store, at least `chunk`
    """
    numbers = -(-lengths // chunk)
    utterance = np.arange(len(lengths)).repeat(numbers)
    number = np.arange(len(utterance)) - (np.cumsum(numbers) - numbers)[utterance]
    begin = np.minimum(number * chunk, taken[utterance] - chunk)
    return (np.cumsum(taken) - taken)[utterance] + begin, number * chunk - begin


def _repeat_last(x: np.ndarray, num: int) -> np.ndarray:
    """`x` with its last row repeated up to at least `num` rows; zeros if `x` is empty."""
    if len(x) >= num:
        return x
    return (
        np.concatenate([x, x[-1:].repeat(num - len(x), 0)])
        if len(x)
        else np.zeros((num, *x.shape[1:]), x.dtype)
    )


def _fill(pdfs: np.ndarray, num: int) -> np.ndarray:
    """`pdfs` with `NO_TARGET` appended up to at least `num` targets."""
    return (
        pdfs if len(pdfs) >= num else np.concatenate([pdfs, np.full(num - len(pdfs), NO_TARGET, pdfs.dtype)])
    )
