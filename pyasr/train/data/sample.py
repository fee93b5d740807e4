"""Random samples of the training frames of all ranks, for measurements that do not need all frames.

`choose_frames` selects frames; a `Sample` keeps a small number of them in memory for repeated measurements.
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

    x           inputs of items, (N, input_dim) or (N, frames, dim), in the type and on the device of the
                store
    pdfs        their targets, int64 (N,) or (N, item_frames)
    comm        all ranks; each has a part of the sample
    num_frames  frames with targets over all ranks
    """

    x: torch.Tensor
    pdfs: torch.Tensor
    comm: Comm

    def __post_init__(self):
        self.num_frames = int(self.comm.reduce_scalar(int((self.pdfs != NO_TARGET).sum())))

    @property
    def device(self) -> torch.device:
        """Device of the frames."""
        return self.x.device

    def part(self, num_frames: int) -> Sample:
        """About `num_frames` frames of the sample. Every rank must call this."""
        share = -(-len(self.pdfs) * num_frames // max(self.num_frames, 1))
        return Sample(self.x[:share], self.pdfs[:share], self.comm)

    def batches(self, size: int = 1024) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(inputs in float32, targets) of up to `size` frames at a time, at least one item."""
        num_items = max(size * len(self.pdfs) // max(self.pdfs.numel(), 1), 1)
        for x, pdfs in zip(self.x.split(num_items), self.pdfs.split(num_items)):
            if len(x):
                yield x.float(), pdfs


def choose_frames(frames: Frames, num_frames: int, comm: Comm, seed: int) -> tuple[FrameStore, torch.Tensor]:
    """About `num_frames` random frames over all ranks, without repetition: (a store, indices of this rank's
    share in it).

    The selection depends only on the data and `seed`. Every rank must call this.
    """
    total = int(comm.reduce_scalar(frames.num_frames))
    share = min(frames.num_frames, -(-num_frames * frames.num_frames // max(total, 1)))
    store = frames.sample_store(share)
    chosen = generator(seed, "sample", comm.rank).permutation(store.num_items)[
        : -(-share // store.item_frames)
    ]
    return store, torch.from_numpy(chosen).to(store.targets.device)


def draw_sample(frames: Frames, num_frames: int, comm: Comm, seed: int) -> Sample:
    """A sample of about `num_frames` frames, see `choose_frames`."""
    store, chosen = choose_frames(frames, num_frames, comm, seed)
    return Sample(*store.gather(chosen), comm)
