"""Work of ranks that exchange parameters in 16 bits: over threads, in simulated time, or as MPI ranks."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scheme_toys import mixing_of

from pyasr.parallel.strategies import Mixing, MixingOptions, make_strategy

DIM = 40
OVER_MPI = ("allreduce", "base2", "d1d", "dpsgd", "easgd")


class Mixed(NamedTuple):
    """Parameters of a rank before and after a mixing, and the result of the mixing."""

    before: np.ndarray
    after: np.ndarray
    report: Mixing


def start(size: float) -> torch.Tensor:
    """Initial parameters of this size."""
    return torch.from_numpy(size * (1 + np.random.default_rng(99).random(DIM))).float()


def move(rank: int, step: int, size: float) -> torch.Tensor:
    """Change of the parameters by a minibatch of this rank."""
    return torch.from_numpy(size * np.random.default_rng([rank, step]).standard_normal(DIM)).float()


def train(
    comm, options: MixingOptions, parameters: float = 1000.0, moves: float = 1.0, resume=None
) -> list[Mixed]:
    """Two epochs of 6 minibatches per rank. After mixing number `resume[0]`, another strategy with the
    options `resume[1]` continues."""
    strategy, master = make_strategy(comm, options), start(parameters)
    strategy.training.objective = lambda: -float(comm.rank)
    strategy.restart(master)
    strategy, first = _epoch(comm, strategy, master, lambda step: move(comm.rank, step, moves), resume)
    return first + _epoch(comm, strategy, master, lambda step: move(comm.rank, 100 + step, moves))[1]


def _epoch(comm, strategy, master: torch.Tensor, move_of, resume=None):
    """(strategy, its mixings)."""
    left, mixings = 6 if strategy.share == (comm.rank, comm.size) else 6 * comm.size, []
    strategy.begin_epoch(10 * left if strategy.share else 0, 10)
    while not mixings or not mixings[-1].report.last:
        learns = strategy.share is not None and not strategy.is_idle and left > 0
        if learns:
            comm.sleep(1e-4 * (1 + 0.1 * comm.rank))
            master += move_of(left)
            left -= 1
        before, report = master.numpy().copy(), strategy.step(master, 10 * learns)
        if report:
            mixings.append(Mixed(before, master.numpy().copy(), report))
        if report and resume and len(mixings) == resume[0]:
            strategy = _successor(strategy, comm, resume[1], master, 60)
    return strategy, mixings


def _successor(strategy, comm, options: MixingOptions, master: torch.Tensor, frames: int):
    """The strategy of a job that starts from the checkpoint of another job."""
    successor = make_strategy(comm, options)
    successor.begin_epoch(frames, 10)
    successor.restart(master)
    successor.load_state_dict(strategy.state_dict())
    return successor


def over_mpi(spec, comm):
    """Write the results of each scheme into the directory `spec.cmd`."""
    output = {name: train(comm, mixing_of(name, period_frames=20, payload="bfloat16")) for name in OVER_MPI}
    np.savez(
        Path(spec.cmd) / f"rank{comm.rank}.npz",
        **{name: [mixed.after for mixed in mixings] for name, mixings in output.items()},
    )
