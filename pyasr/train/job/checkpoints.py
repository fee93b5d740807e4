"""Checkpoints of a training job: every rank writes its own file, then one checkpoint.json names the complete set.

A reader trusts checkpoint.json alone, which is replaced atomically after all ranks have written; a job killed at any moment goes on
from the set it names. The sets before it are deleted. A job of another number of ranks can take a set up: rank r finds what rank r had.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.parallel.communication.comm import Comm
from pyasr.tensor.file import load_tensors, save_tensors
from pyasr.train.job.checkpoint_index import INDEX, read_index, telling


@dataclass
class Checkpoint:
    """A complete set, as one rank sees it.

    shared     what is true for all ranks
    first      what belonged to rank 0
    own        what belonged to the rank of this number; None where there was none
    num_ranks  that wrote it
    """

    shared: dict
    first: dict
    own: dict | None
    num_ranks: int


def save_checkpoint(directory: Path, comm: Comm, shared: dict, own: dict, frames_seen: int = 0) -> None:
    """Write `shared` (rank 0's) and each rank's `own`: dictionaries of tensors and plain values. Every rank must call this.

    frames_seen  to be told of the set without reading it
    """
    number = comm.bcast_object(read_index(directory)["number"] + 1 if comm.rank == 0 else None)
    directory.mkdir(exist_ok=True)
    content = {"own": own, "shared": shared if comm.rank == 0 else None}
    save_tensors(directory / f"{number:06d}.rank-{comm.rank}.pt", content)
    comm.barrier()
    if comm.rank == 0:
        files = [f"{number:06d}.rank-{rank}.pt" for rank in range(comm.size)]
        with atomic_write(directory / INDEX) as f:
            json.dump({"number": number, "files": files, "frames_seen": frames_seen}, f)
        for path in directory.iterdir():
            if path.name not in (INDEX, *files):
                path.unlink()


def load_checkpoint(directory: Path, comm: Comm) -> Checkpoint | None:
    """The last complete set, or None where there is none."""
    files = read_index(directory)["files"]
    if not files:
        return None
    first = _load(directory / files[0])
    own = None if comm.rank >= len(files) else first if comm.rank == 0 else _load(directory / files[comm.rank])
    return Checkpoint(first["shared"], first["own"], own and own["own"], len(files))


def frames_to_leave_out(num_frames: list[int], done: int) -> list[int]:
    """How many of its frames each rank leaves out in an epoch of which other ranks have seen `done` frames.

    num_frames  of each rank in the whole epoch; each leaves out an equal share to within a frame, all together exactly `done`
    """
    ends = [end * done // max(sum(num_frames), 1) for end in accumulate(num_frames, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]


def _load(path: Path) -> dict:
    with telling(path):
        content = load_tensors(path)
        return {part: content[part] for part in ("shared", "own")}


def shapes(parameters: list[torch.Tensor]) -> list[list[int]]:
    """What is kept in a checkpoint to know its network by."""
    return [list(parameter.shape) for parameter in parameters]


def check_shapes(directory: Path, found: list[list[int]], wanted: list[list[int]]) -> None:
    """Raise UserError unless the checkpoint's parameters have the shapes of this job's."""
    if found != wanted:
        theirs, ours = (", ".join("x".join(map(str, shape)) for shape in part if len(shape) > 1) for part in (found, wanted))
        raise UserError(f"{directory}: a checkpoint of another network (layers {theirs}; this one has {ours}); "
                        f"give the options of that network, or --force to train from the start")  # fmt: skip


def random_state(device: torch.device) -> dict:
    """The state of torch's random generators that training on `device` draws from."""
    return {"cpu": torch.get_rng_state(), "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None}


def set_random_state(state: dict, device: torch.device) -> None:
    """Go on from what `random_state` gave."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
