"""Where minibatches come from: a shard kept in memory, or one that is streamed from disk in blocks.

    frames = open_frames(shard, device, dtype, max_bytes, seed, rank)
    for x, pdfs in frames.minibatches(512, epoch=3):
        ...

A streamed epoch takes all utterances in random order and cuts them into blocks of about equal size. While the frames of one block are
trained on, in random order, a background thread reads the next, and copies it to the device: memory holds two blocks. Everything
depends on seed, epoch and rank alone, so an epoch can be taken up at any of its minibatches. Each frame comes once in an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.seeds import generator
from pyasr.train.frames import FrameStore
from pyasr.train.shard import Shard
from pyasr.train.soft_targets import SoftTargets

Minibatches = Iterator[tuple[torch.Tensor, torch.Tensor]]


class Frames:
    """The frames of a rank.

    num_frames   of an epoch
    item_frames  targets of what is shuffled: 1, or those of a chunk
    num_epochs   that a training wants, which sets it; nothing is read for later ones
    """

    num_frames: int
    item_frames: int
    num_epochs: int = 0

    def border(self, _epoch: int, begin: int) -> int:
        """Where an item begins, at most `begin` frames after the first of an epoch."""
        return begin - begin % self.item_frames


class ResidentFrames(Frames):
    """All frames of a rank, in memory."""

    def __init__(self, store: FrameStore, seed: int, rank: int):
        self.store, self.seed, self.rank = store, seed, rank
        self.num_frames, self.item_frames = store.num_frames, store.item_frames

    def minibatches(self, size: int, epoch: int, begin: int = 0) -> Minibatches:
        """Spliced inputs and targets of all frames of an epoch but the first `begin`, which is where a minibatch of `size` ends."""
        yield from self.store.shuffled(size, begin, self.seed, epoch, self.rank)

    def sample_store(self, num_frames: int) -> FrameStore:
        """A store of at least so many frames, or of all."""
        return self.store

    def describe(self) -> str:
        """Where the frames are, for the log."""
        return f"in {figure(sum(tensor.nbytes for tensor in self.store.tensors()) / 1e6)} MB of memory"


class StreamedFrames(Frames):
    """Frames of a shard, read anew in each epoch, all of them by one thread.

    max_bytes   of the two blocks; 0: one block holds the whole epoch
    """

    def __init__(self, shard: Shard, device: torch.device, dtype: torch.dtype, max_bytes: int, seed: int, rank: int):
        self.shard, self.device, self.dtype, self.seed, self.rank = shard, device, dtype, seed, rank
        self.num_frames, self.item_frames, self.max_bytes = shard.num_frames, shard.packing.item_frames, max_bytes
        self._num_blocks = _num_blocks(shard, max_bytes)
        self._thread = ThreadPoolExecutor(1, "frames")
        self._coming: tuple[tuple[int, int], Future] | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def describe(self) -> str:
        """Where the frames are, for the log."""
        block_mb = self.shard.num_bytes().sum() / self._num_blocks / 1e6
        return f"read anew in each epoch, in {self._num_blocks} blocks of {figure(block_mb)} MB"

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The blocks of an epoch: indices of utterances."""
        order = generator(self.seed, "blocks", epoch, self.rank).permutation(len(self.shard.keys))
        sizes = self.shard.num_bytes()[order]
        block = (np.cumsum(sizes) - sizes) * self._num_blocks // max(sizes.sum(), 1)
        return [order[block == number] for number in range(self._num_blocks)]

    def minibatches(self, size: int, epoch: int, begin: int = 0) -> Minibatches:
        """As of `ResidentFrames`; what is left of a block makes a minibatch with the beginning of the next, but where states are carried
        from each minibatch to the next."""
        left = None
        for number, members in enumerate(self.plan(epoch)):
            num_frames = self.shard.frames_of(members)
            if begin < num_frames:
                block = self._take(epoch, number)
                self._look_ahead(epoch, number + 1)
                for minibatch in block.shuffled(size, begin, self.seed, epoch, self.rank, number, missing=size - _num_frames(left)):
                    left = minibatch if left is None else _joined(left, minibatch)
                    if _num_frames(left) == size or self.shard.packing.carried:
                        yield left
                        left = None
                del block  # before the one after next is loaded
            begin = max(begin - num_frames, 0)
        if left is not None:
            yield left

    def sample_store(self, num_frames: int) -> FrameStore:
        """As of `ResidentFrames`: randomly chosen utterances, in memory for as long as it is held."""
        order = generator(self.seed, "sample", self.rank).permutation(len(self.shard.keys))
        counts = self.shard.packing.num_frames(self.shard.lengths[order])
        store = self._thread.submit(self.shard.store, order[np.cumsum(counts) - counts < num_frames], 0).result()
        store.move(self.device, self.dtype)
        return store

    def _look_ahead(self, epoch: int, number: int) -> None:
        """Begin to load the next block."""
        place = (epoch, number) if number < self._num_blocks else (epoch + 1, 0)
        self._coming = (place, self._thread.submit(self._load, *place)) if place[0] <= max(epoch, self.num_epochs) else None

    def _take(self, epoch: int, number: int) -> FrameStore:
        """The block, which is usually there by now."""
        place, future = self._coming or (None, None)
        if place != (epoch, number):
            future = self._thread.submit(self._load, epoch, number)
        self._coming = None
        store, copied = future.result()
        if copied is not None:
            _wait_on_device(store, copied)
        return store

    def _load(self, epoch: int, number: int) -> tuple[FrameStore, torch.cuda.Event | None]:
        """The block on the device, and when it will be there; runs in the background."""
        store = self.shard.store(self.plan(epoch)[number], epoch, pinned=self._stream is not None)
        if self._stream is None:
            store.move(self.device, self.dtype)
            return store, None
        with torch.cuda.stream(self._stream):
            store.move(self.device, self.dtype)
            return store, self._stream.record_event()


def _num_frames(minibatch: tuple[torch.Tensor, torch.Tensor] | None) -> int:
    return 0 if minibatch is None else minibatch[1].numel()


def _joined(one: tuple, other: tuple) -> tuple:
    """The frames of both minibatches, as one."""
    (x, targets), (more_x, more_targets) = one, other
    joined = targets.followed_by(more_targets) if isinstance(targets, SoftTargets) else torch.cat([targets, more_targets])
    return torch.cat([x, more_x]), joined


def _wait_on_device(store: FrameStore, copied: torch.cuda.Event) -> None:
    """Let what the device does from now on come after the copy; the host waits for nothing."""
    present = torch.cuda.current_stream(store.frames.device)
    present.wait_event(copied)
    for tensor in store.tensors():
        tensor.record_stream(present)


def _num_blocks(shard: Shard, max_bytes: int) -> int:
    """Blocks of an epoch such that two of them take no more than `max_bytes`. An utterance lies in the block in which it begins."""
    sizes = shard.num_bytes()
    if not max_bytes or not len(sizes):
        return 1
    longest = int(sizes.argmax())
    room = max_bytes // 2 - int(sizes[longest])
    if room <= 0:
        found = f"too little for two blocks of utterances, of which {shard.keys[longest]} has {shard.lengths[longest]} frames"
        raise UserError(f"--max-store-mb {max_bytes // 1_000_000} is {found}; give {-(-4 * int(sizes[longest]) // 1_000_000)} or more")
    return max(-(-int(sizes.sum()) // room), 1)


def open_frames(shard: Shard, device: torch.device, dtype: torch.dtype, max_bytes: int, seed: int, rank: int) -> Frames:
    """ResidentFrames where `max_bytes` (0: no limit) are enough and every epoch sees the same features, else StreamedFrames."""
    if shard.varies or max_bytes and shard.num_bytes().sum() > max_bytes:
        return StreamedFrames(shard, device, dtype, max_bytes, seed, rank)
    store = shard.store(np.arange(len(shard.keys)), 0)
    store.move(device, dtype)
    return ResidentFrames(store, seed, rank)
