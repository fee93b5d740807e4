"""What a strategy must do with shards of any sizes, on any communicator."""

from __future__ import annotations

import numpy as np
import torch

from pyasr.parallel.strategies import MixingOptions, make_strategy

SHARDS = [10, 10, 3, 0, 7, 0, 1, 2]  # utterances of 12 frames
SCHEMES = ["allreduce", "gradient", "fixed-ring", "base2", "d1d", "dpsgd", "easgd"]


def check_uneven(comm) -> None:
    """All ranks mix as often as the one with most data needs, and end with the same parameters, which all moves have gone into."""
    for name in SCHEMES:
        strategy, master = make_strategy(comm, MixingOptions(parallel=name, period_frames=45)), torch.zeros(8)
        strategy.restart(master)
        told = [_epoch(strategy, master, 12 * SHARDS[comm.rank], comm.rank) for _ in range(2)]
        expected = 12 * sum(SHARDS[: comm.size])
        assert [frames for frames, _ in told] == [expected, expected], (name, told)
        assert len({mixings for _, mixings in told}) == 1 and len(set(comm.allgather(told[0][1]))) == 1, (name, told)
        assert np.array_equal(comm.bcast(master.numpy().copy()), master.numpy()), name
        assert [bool(value) for value in master] == [rank < comm.size and shard > 0 for rank, shard in enumerate(SHARDS)], name


def _epoch(strategy, master: torch.Tensor, num_frames: int, rank: int) -> tuple[int, int]:
    """(frames told, mixings) of an epoch in which each minibatch of up to 16 frames moves the rank's own parameter."""
    strategy.begin_epoch(num_frames, 16)
    told, mixings, mixing = 0, 0, None
    while mixing is None or not mixing.last:
        frames = min(16, num_frames)
        num_frames -= frames
        master[rank] += 0.1 * (frames > 0)
        mixing = strategy.step(master, frames)
        if mixing is not None:
            told, mixings = told + mixing.frames, mixings + 1
    return told, mixings
