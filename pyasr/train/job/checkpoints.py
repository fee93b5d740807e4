"""Checkpoints of a training job: every rank writes its own file, then one checkpoint.json names the complete
set.

A reader trusts only checkpoint.json, which is replaced atomically after all ranks have written. A job that is
killed at any moment resumes from the set that it names. Earlier sets are deleted. A job with another number
of ranks can resume from a set: rank r gets the state that the former rank r had.
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
from pyasr.train.job.checkpoint_index import INDEX, naming_damaged_file, read_index


@dataclass
class Checkpoint:
    """A complete set, as seen by one rank.

    shared     state that is common to all ranks
    first      state of rank 0
    own        state of the rank with this number; None if that rank did not exist
    num_ranks  number of ranks that wrote the set
    """

    shared: dict
    first: dict
    own: dict | None
    num_ranks: int


def save_checkpoint(directory: Path, comm: Comm, shared: dict, own: dict, frames_seen: int = 0) -> None:
    """Write `shared` (rank 0's) and each rank's `own`: dictionaries of tensors and plain values. Every rank
    must call this.

    frames_seen  written to the index, which can be read without the set
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
    """The last complete set; None without one."""
    files = read_index(directory)["files"]
    if not files:
        return None
    first = _load(directory / files[0])
    own = (
        None if comm.rank >= len(files) else first if comm.rank == 0 else _load(directory / files[comm.rank])
    )
    return Checkpoint(first["shared"], first["own"], own and own["own"], len(files))


def frames_to_leave_out(num_frames: list[int], done: int) -> list[int]:
    """Number of frames that each rank skips in an epoch of which a job with other ranks has processed `done`
    frames.

    num_frames  frames of each rank in the whole epoch; each rank skips the same share of them, to within a
                frame, and all together skip exactly `done`
    """
    ends = [end * done // max(sum(num_frames), 1) for end in accumulate(num_frames, initial=0)]
    return [end - begin for begin, end in pairwise(ends)]


def _load(path: Path) -> dict:
    with naming_damaged_file(path):
        content = load_tensors(path)
        return {part: content[part] for part in ("shared", "own")}


def shapes(parameters: list[torch.Tensor]) -> list[list[int]]:
    """Shapes of the parameters, by which a checkpoint identifies its network."""
    return [list(parameter.shape) for parameter in parameters]


def check_shapes(directory: Path, found: list[list[int]], wanted: list[list[int]]) -> None:
    """Raise UserError unless the parameters in the checkpoint have the shapes of this job's parameters."""
    if found != wanted:
        theirs, ours = (
            ", ".join("x".join(map(str, shape)) for shape in part if len(shape) > 1)
            for part in (found, wanted)
        )
        raise UserError(
            f"{directory}: a checkpoint of another network (layers {theirs}; this one has {ours}); "
            f"give the options of that network, or --force to train from the start"
        )


def random_state(device: torch.device) -> dict:
    """The state of torch's random generators that training on `device` uses."""
    return {
        "cpu": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict, device: torch.device) -> None:
    """Restore the state that `random_state` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
