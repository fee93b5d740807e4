"""A random part of the training frames of all ranks, for what need not be measured on all of them.

`choose_frames` tells which; a `Sample` keeps a small part at hand, for what is measured time and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pyasr.base.cli.seeds import generator
from pyasr.parallel.communication.comm import Comm
from pyasr.train.data.minibatch_stream import Frames
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.minibatches.frames import FrameStore


@dataclass
class Sample:
    """This rank's frames of the sample.

    x     inputs of items, (N, input_dim) or (N, frames, dim), in the type and on the device of the store
    pdfs  their targets, int64 (N,) or (N, item_frames)
    comm  the ranks that hold the others; `num_frames` counts all of them
    """

    x: torch.Tensor
    pdfs: torch.Tensor
    comm: Comm

    def __post_init__(self):
        self.num_frames = int(self.comm.reduce_scalar(int((self.pdfs != NO_TARGET).sum())))

    @property
    def device(self) -> torch.device:
        """Where the frames are."""
        return self.x.device

    def part(self, num_frames: int) -> Sample:
        """About `num_frames` of them. Every rank must call this."""
        share = -(-len(self.pdfs) * num_frames // max(self.num_frames, 1))
        return Sample(self.x[:share], self.pdfs[:share], self.comm)

    def batches(self, size: int = 1024) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(inputs in float32, targets) of up to `size` frames at a time, or of one item."""
        num_items = max(size * len(self.pdfs) // max(self.pdfs.numel(), 1), 1)
        for x, pdfs in zip(self.x.split(num_items), self.pdfs.split(num_items)):
            if len(x):
                yield x.float(), pdfs


def choose_frames(frames: Frames, num_frames: int, comm: Comm, seed: int) -> tuple[FrameStore, torch.Tensor]:
    """About `num_frames` over all ranks: a store and which of its frames are this rank's share of them, at random without repetition.

    They are the same for the same `seed`. Every rank must call this.
    """
    total = int(comm.reduce_scalar(frames.num_frames))
    share = min(frames.num_frames, -(-num_frames * frames.num_frames // max(total, 1)))
    store = frames.sample_store(share)
    chosen = generator(seed, "sample", comm.rank).permutation(store.num_items)[: -(-share // store.item_frames)]
    return store, torch.from_numpy(chosen).to(store.targets.device)


def draw_sample(frames: Frames, num_frames: int, comm: Comm, seed: int) -> Sample:
    """About `num_frames` frames, see `choose_frames`."""
    store, chosen = choose_frames(frames, num_frames, comm, seed)
    return Sample(*store.gather(chosen), comm)
