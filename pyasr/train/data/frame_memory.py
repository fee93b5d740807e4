"""The memory check for frames: decides, before any are loaded, whether the frames of all ranks of a host fit
or have to be streamed.

A rank keeps its held-out frames, and its training frames or two blocks of them
(`pyasr.train.data.minibatch_stream`). The available memory is the free memory of the host and of the job's
control group, for all ranks of the host together, and the rest within the rank's own limits (`ulimit -v`);
with a GPU also its free memory. 300 MB per rank and a quarter of the rest are reserved for libraries, the
network, its gradients and minibatches, which have a check of their own (`pyasr.train.job.memory_check`).

The limit of a rank determines which frames share a minibatch. It is therefore written to the training's
directory, and an interrupted training resumes with the same limit, as long as it fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.host import host_memory
from pyasr.base.memory_errors import enough_for
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays
from pyasr.parallel.communication.comm import Comm
from pyasr.train.data.data_shard import Shard
from pyasr.train.training_options import StoreOptions

STORE_FILE = "store.npz"
_MB = 1_000_000
# share for frames of the free memory, after subtracting the reserved bytes of each rank
_SHARE, _RESERVED = 0.75, 300 * _MB
_MAX_STREAMED_MB = 1000  # the first minibatch waits for a block, half of this
_ADVICE = "lower --heldout-share, run fewer ranks on a host, or give the job more memory"


@dataclass(frozen=True)
class MemoryBudget:
    """Required and free bytes of memory. Every rank must call each of the methods.

    training, heldout  all training and held-out frames of this rank
    least              minimum for blocks, since utterances are not cut
    free               free for all ranks of this host together
    own                free for this rank by its own limits and on its GPU
    comm, host         all ranks, and those of this host
    """

    training: int
    heldout: int
    least: int
    free: float
    own: float
    comm: Comm
    host: Comm

    @staticmethod
    def of(training: Shard, heldout: Shard, comm: Comm, device: torch.device) -> MemoryBudget:
        """Measure the free memory. No rank may load frames before all ranks have called this."""
        sizes, host = training.num_bytes(), comm.split_by_host()
        shared = host.reduce_scalar(_if_known(host_memory.free_bytes()), "min")
        on_gpu = free_bytes(device) if device.type == "cuda" else None
        own = min(host_memory.left_in_limits(), _if_known(on_gpu))
        copies = 2 if training.varies else 1  # features that vary are read in each epoch, in two blocks
        return MemoryBudget(
            copies * int(sizes.sum()),
            int(heldout.num_bytes().sum()),
            4 * int(sizes.max(initial=0)),
            shared,
            own,
            comm,
            host,
        )

    def needed(self, limit: int) -> int:
        """Bytes that this rank needs if training frames may take `limit`; 0: no limit."""
        return self.heldout + (min(self.training, limit) if limit else self.training)

    def fits(self, limit: int, with_reserve: bool = False) -> bool:
        """Whether that fits on all ranks; `with_reserve`: also with the reserve for the rest of the
        training."""
        of_host, of_rank = self.host.reduce_scalar(self.needed(limit)), self.needed(limit)
        free, own = (
            (_after_reserve(self.free, self.host.size), _after_reserve(self.own, 1))
            if with_reserve
            else (self.free, self.own)
        )
        return not self.comm.reduce_scalar(of_host > free or of_rank > own, "max")

    def left(self) -> int:
        """Bytes of training frames that fit on every rank, with the reserve."""
        return int(
            self.comm.reduce_scalar(
                _after_reserve(min(self.free / self.host.size, self.own), 1) - self.heldout, "min"
            )
        )

    def most(self, number: float) -> float:
        """Maximum over all ranks."""
        return self.comm.reduce_scalar(number, "max")

    def text(self, limit: int) -> str:
        """Required and free memory of a rank, as text, for the host with the smallest margin."""
        needed = max(self.host.reduce_scalar(self.needed(limit), "mean"), self.needed(limit))
        found = self.comm.allgather((min(self.free / self.host.size, self.own), needed, self.host.size))
        free, needed, num_ranks = min(found, key=lambda one: one[0] - one[1])
        of_each = f" for each of the {num_ranks} ranks of a host" if num_ranks > 1 else ""
        return f"take {figure(needed / _MB)} MB of memory, {figure(free / _MB)} MB are free{of_each}"


def limit_of_frames(
    training: Shard,
    heldout: Shard,
    store: StoreOptions,
    comm: Comm,
    device: torch.device,
    directory: Path | None,
) -> int:
    """Limit in bytes on the training frames of a rank, for `open_frames`; 0: no limit. Every rank must call
    this.

    directory  of the training, where the limit is saved for a resumed job; None: not saved

    Raises UserError if the memory is not enough for the limit of `store`, or not even for blocks.
    """
    budget, asked = MemoryBudget.of(training, heldout, comm, device), _MB * store.max_store_mb
    if asked:
        _check_asked(budget, asked)
        return asked
    before = comm.bcast_object(_read(directory, comm.size) if comm.rank == 0 else None)
    if before is not None and budget.fits(before):
        return before
    limit = 0 if budget.fits(0, with_reserve=True) else _streamed(budget, training.reader.data)
    if directory and comm.rank == 0:
        save_arrays(directory / STORE_FILE, limit=np.array(limit), num_ranks=np.array(comm.size))
    return limit


def requested_limit(_training: Shard, _heldout: Shard, store: StoreOptions, *_) -> int:
    """The limit of `limit_of_frames` from --max-store-mb alone, without a memory check."""
    return _MB * store.max_store_mb


def check_enough(needed: int, num_learners: int) -> None:
    """Raise UserError if less than `needed` bytes are free for frames of learners that share a process."""
    free = min(_if_known(host_memory.free_bytes()), host_memory.left_in_limits())
    if needed > free:
        found = (
            f"the frames of {num_learners} learners take {figure(needed / _MB)} MB of memory, "
            f"{figure(free / _MB)} MB are free"
        )
        advice = (
            f"give --max-store-mb {max(int(_after_reserve(free, 1) / _MB / num_learners), 1)} to stream each "
            "learner's frames from disk"
        )
        raise UserError(f"{found}; {advice}, --store-type byte, or fewer learners")


def _check_asked(budget: MemoryBudget, asked: int) -> None:
    if budget.fits(asked):
        return
    found, left, least = budget.text(asked), budget.left(), budget.most(budget.least)
    advice = f"give {left // _MB} or less, or omit --max-store-mb" if left > max(least, _MB) else _ADVICE
    raise UserError(f"--max-store-mb {asked // _MB}: the frames of a rank {found}; {advice}")


def _streamed(budget: MemoryBudget, data: Path) -> int:
    """The limit for streaming in blocks, which is logged; 0 if all frames fit, but blocks with the reserve do
    not."""
    found, limit = budget.text(0), min(budget.left() // _MB, _MAX_STREAMED_MB) * _MB
    if limit <= budget.most(budget.least):
        if budget.fits(0):
            return 0
        heldout = figure(budget.most(budget.heldout) / _MB)
        raise UserError(
            f"{data}: memory is not enough for blocks of frames: the frames of a rank {found}, and "
            f"{heldout} MB of held-out frames are not streamed; {_ADVICE}"
        )
    streamed = f"the frames are streamed from disk, as with --max-store-mb {limit // _MB}"
    budget.comm.log(f"the frames of a rank would {found}, for frames and network together: {streamed}")
    return limit


def _if_known(free: int | None) -> float:
    """Free bytes; infinite if unknown."""
    return math.inf if free is None else free


def _after_reserve(free: float, num_ranks: int) -> float:
    """Share of `free` bytes that the frames of `num_ranks` ranks may take."""
    return _SHARE * (free - num_ranks * _RESERVED)


def _read(directory: Path | None, num_ranks: int) -> int | None:
    """The limit that an earlier run with as many ranks saved; None without one."""
    if directory is None or not (directory / STORE_FILE).exists():
        return None
    content = load_arrays(directory / STORE_FILE, ("limit", "num_ranks"))
    return int(content["limit"]) if content["num_ranks"] == num_ranks else None


@contextmanager
def loading(shard: Shard) -> Iterator[None]:
    """Context of loading frames. Raises UserError if the memory is not enough in spite of the checks."""
    advice = "give a lower --max-store-mb to stream frames from disk, or run fewer ranks on a host"
    with enough_for(str(shard.reader.data), "the frames of a rank", advice):
        yield


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device, or of this host for a CPU, in bytes; None if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return host_memory.free_bytes()
