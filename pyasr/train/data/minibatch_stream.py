"""Sources of minibatches: a shard in memory, or one that is streamed from disk in blocks.

    frames = open_frames(shard, device, dtype, max_bytes, seed, rank, draw)
    for x, pdfs in frames.minibatches(512, epoch=3):
        ...

A streamed epoch takes all utterances in random order and divides them into blocks of about equal size. While
the rank trains on the frames of one block, in random order, a background thread reads the next and copies it
to the device, so memory contains two blocks. The order depends only on seed, epoch and rank, so an epoch can
be resumed at any minibatch. Each frame occurs once in an epoch.

A learner that draws from all data (`pyasr.train.draws`) keeps all of them in memory, or streams only the
utterances that it draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.train.data.data_shard import Shard
from pyasr.train.draws import ALL, num_drawn
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.targets.soft_targets import SoftTargets

Minibatch = tuple[torch.Tensor, torch.Tensor]  # spliced inputs, targets
Minibatches = Iterator[Minibatch]


class Frames:
    """The frames of a rank.

    num_frames   frames of an epoch, on average
    item_frames  targets of a shuffled item: 1, or those of a chunk
    num_epochs   epochs of the training, which sets it; nothing is read ahead for later ones
    draw         (k, n), see `num_drawn`
    """

    num_frames: int
    item_frames: int
    num_epochs: int = 0
    draw: tuple[int, int] = ALL

    def epoch_frames(self, epoch: int) -> int:
        """Number of frames of an epoch."""
        raise NotImplementedError

    def minibatches(self, size: int, epoch: int, begin: int = 0) -> Minibatches:
        """Spliced inputs and targets of all frames of an epoch except the first `begin`, at which a minibatch
        of `size` ends."""
        raise NotImplementedError

    def sample_store(self, num_frames: int) -> FrameStore:
        """A store of at least `num_frames` frames, or of all."""
        raise NotImplementedError

    def describe(self) -> str:
        """Location of the frames, for the log."""
        raise NotImplementedError

    def memory_advice(self) -> str:
        """Advice, for messages, on how the frames take less memory."""
        raise NotImplementedError

    def border(self, _epoch: int, begin: int) -> int:
        """The last beginning of an item at most `begin` frames after the first frame of an epoch."""
        return begin - begin % self.item_frames

    def largest(self, minibatch: int) -> Minibatch | None:
        """The minibatch that takes the most memory; None without frames."""
        return next(self.sample_store(minibatch).in_turn(minibatch), None) if self.num_frames else None

    def advice(self, minibatch: int) -> str:
        """What to lower if memory is too small for a minibatch."""
        chunk = ", --chunk" if self.item_frames > 1 else ""
        return (
            f"lower --minibatch (now {minibatch}){chunk}, {self.memory_advice()}, or run fewer ranks on "
            "a host"
        )


class ResidentFrames(Frames):
    """Frames in memory."""

    def __init__(self, store: FrameStore, seed: int, rank: int, draw: tuple[int, int] = ALL):
        self.store, self.seed, self.rank, self.draw = store, seed, rank, draw
        self.item_frames = store.item_frames
        self.num_frames = num_drawn(store.num_items, draw) * self.item_frames

    def minibatches(self, size: int, epoch: int, begin: int = 0) -> Minibatches:
        """See `Frames.minibatches`."""
        yield from self.store.shuffled(size, begin, self.seed, epoch, self.rank, draw=self.draw)

    def epoch_frames(self, epoch: int) -> int:
        return self.store.drawn_frames(self.draw, self.seed, epoch, self.rank)

    def sample_store(self, num_frames: int) -> FrameStore:
        """See `Frames.sample_store`; the store of all frames."""
        return self.store

    def memory_advice(self) -> str:
        """See `Frames.memory_advice`."""
        return (
            f"give a --max-store-mb below {figure(self._num_bytes() / 1e6)} MB to stream the frames from disk"
        )

    def _num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.store.tensors())

    def describe(self) -> str:
        """Location of the frames, for the log."""
        drawn = (
            "" if self.draw == ALL else f", {self.num_frames} of {self.store.num_frames} drawn in each epoch"
        )
        return f"in {figure(self._num_bytes() / 1e6)} MB of memory{drawn}"


class StreamedFrames(Frames):
    """Frames of a shard, read from disk in each epoch by one background thread.

    max_bytes   of the two blocks; 0: one block for the whole epoch
    """

    def __init__(
        self,
        shard: Shard,
        device: torch.device,
        dtype: torch.dtype,
        max_bytes: int,
        seed: int,
        rank: int,
        draw: tuple[int, int] = ALL,
    ):
        self.shard = shard
        self.device = device
        self.dtype = dtype
        self.seed = seed
        self.rank = rank
        self.draw = draw
        self.item_frames, self.max_bytes = shard.packing.item_frames, max_bytes
        self.num_frames = num_drawn(shard.num_frames // self.item_frames, draw) * self.item_frames
        self._room = _room(shard, max_bytes)
        self._thread = ThreadPoolExecutor(1, "frames")
        self._coming: tuple[tuple[int, int], Future] | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def describe(self) -> str:
        """Location of the frames, for the log."""
        blocks, sizes = self.plan(1), self.shard.num_bytes()
        block_mb = sum(sizes[members].sum() for members in blocks) / len(blocks) / 1e6
        drawn = "" if self.draw == ALL else f", {self.num_frames} drawn from {self.shard.num_frames}"
        return f"streamed from disk in each epoch{drawn}, in {len(blocks)} blocks of {figure(block_mb)} MB"

    def memory_advice(self) -> str:
        """See `Frames.memory_advice`."""
        return f"lower --max-store-mb{f' (now {self.max_bytes // 1_000_000})' if self.max_bytes else ''}"

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Indices of the utterances of each block of an epoch."""
        order = self._drawn(epoch)
        sizes = self.shard.num_bytes()[order]
        num_blocks = _num_blocks(int(sizes.sum()), self._room)
        block = (np.cumsum(sizes) - sizes) * num_blocks // max(sizes.sum(), 1)
        return [order[block == number] for number in range(num_blocks)]

    def epoch_frames(self, epoch: int) -> int:
        return self.shard.frames_of(self._drawn(epoch))

    def _drawn(self, epoch: int) -> np.ndarray:
        """The utterances of an epoch, in random order."""
        num_utterances = len(self.shard.keys)
        return generator(self.seed, "blocks", epoch, self.rank).permutation(num_utterances)[
            : num_drawn(num_utterances, self.draw)
        ]

    def minibatches(self, size: int, epoch: int, begin: int = 0) -> Minibatches:
        """See `Frames.minibatches`. The rest of a block forms a minibatch with the beginning of the
        next block, unless states are carried from one minibatch to the next."""
        left, plan = None, self.plan(epoch)
        for number, members in enumerate(plan):
            num_frames = self.shard.frames_of(members)
            if begin < num_frames:
                block = self._take(epoch, number)
                self._look_ahead(*((epoch, number + 1) if number + 1 < len(plan) else (epoch + 1, 0)))
                for minibatch in block.shuffled(
                    size, begin, self.seed, epoch, self.rank, number, missing=size - _num_frames(left)
                ):
                    left = minibatch if left is None else _joined(left, minibatch)
                    if _num_frames(left) == size or self.shard.packing.carried:
                        yield left
                        left = None
                del block  # free it before the block after the next is loaded
            begin = max(begin - num_frames, 0)
        if left is not None:
            yield left

    def sample_store(self, num_frames: int) -> FrameStore:
        """See `Frames.sample_store`; a new store of randomly chosen utterances."""
        order = generator(self.seed, "sample", self.rank).permutation(len(self.shard.keys))
        counts = self.shard.packing.num_frames(self.shard.lengths[order])
        store = self._thread.submit(
            self.shard.store, order[np.cumsum(counts) - counts < num_frames], 0
        ).result()
        store.move(self.device, self.dtype)
        return store

    def _look_ahead(self, epoch: int, number: int) -> None:
        """Start loading a block, unless its epoch is after the last one."""
        place, within = (epoch, number), number or epoch <= self.num_epochs
        self._coming = (place, self._thread.submit(self._load, *place)) if within else None

    def _take(self, epoch: int, number: int) -> FrameStore:
        """The block, which is usually loaded already."""
        if self._coming and self._coming[0] == (epoch, number):
            future = self._coming[1]
        else:
            future = self._thread.submit(self._load, epoch, number)
        self._coming = None
        store, copied = future.result()
        if copied is not None:
            _wait_on_device(store, copied)
        return store

    def _load(self, epoch: int, number: int) -> tuple[FrameStore, torch.cuda.Event | None]:
        """(block on the device, event after its copy); runs in the background thread."""
        store = self.shard.store(self.plan(epoch)[number], epoch, pinned=self._stream is not None)
        if self._stream is None:
            store.move(self.device, self.dtype)
            return store, None
        with torch.cuda.stream(self._stream):
            store.move(self.device, self.dtype)
            return store, self._stream.record_event()


def _num_frames(minibatch: Minibatch | None) -> int:
    return 0 if minibatch is None else minibatch[1].numel()


def _joined(one: Minibatch, other: Minibatch) -> Minibatch:
    """The frames of both minibatches as one minibatch."""
    (x, targets), (more_x, more_targets) = one, other
    joined = (
        targets.followed_by(more_targets)
        if isinstance(targets, SoftTargets)
        else torch.cat([targets, more_targets])
    )
    return torch.cat([x, more_x]), joined


def _wait_on_device(store: FrameStore, copied: torch.cuda.Event) -> None:
    """Make later work on the device wait for the copy, without blocking the host."""
    present = torch.cuda.current_stream(store.frames.device)
    present.wait_event(copied)
    for tensor in store.tensors():
        tensor.record_stream(present)


def _num_blocks(num_bytes: int, room: int) -> int:
    """Number of blocks of an epoch whose utterances have `num_bytes` bytes; `room`: see `_room`."""
    return max(-(-num_bytes // room), 1) if room else 1


def _room(shard: Shard, max_bytes: int) -> int:
    """Bytes within which the utterances of a block begin, so that two blocks take at most `max_bytes`; 0: no
    limit."""
    sizes = shard.num_bytes()
    if not max_bytes or not len(sizes):
        return 0
    longest = int(sizes.argmax())
    room = max_bytes // 2 - int(sizes[longest])
    if room <= 0:
        found = (
            f"too small for two blocks, since utterance {shard.keys[longest]} has "
            f"{shard.lengths[longest]} frames"
        )
        raise UserError(
            f"--max-store-mb {max_bytes // 1_000_000}: {found}; give "
            f"{-(-4 * int(sizes[longest]) // 1_000_000)} or more"
        )
    return room


def open_frames(
    shard: Shard,
    device: torch.device,
    dtype: torch.dtype,
    max_bytes: int,
    seed: int,
    rank: int,
    draw: tuple[int, int] = ALL,
) -> Frames:
    """ResidentFrames if the shard fits into `max_bytes` (0: no limit) and its features are the same in all
    epochs, else StreamedFrames.

    draw   (k, n), see `num_drawn`
    """
    if shard.varies or max_bytes and shard.num_bytes().sum() > max_bytes:
        return StreamedFrames(shard, device, dtype, max_bytes, seed, rank, draw)
    store = shard.store(np.arange(len(shard.keys)), 0)
    store.move(device, dtype)
    return ResidentFrames(store, seed, rank, draw)
