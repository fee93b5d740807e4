"""Checkpoints of a training job: every rank writes its own file, then one checkpoint.json names the complete set.

A reader trusts checkpoint.json alone, which is replaced atomically after all ranks have written; a job killed at any moment goes on
from the set it names. The sets before it are deleted.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import torch

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write
from pyasr.parallel.comm import Comm
from pyasr.tensor.file import load_tensors, save_tensors

DIRECTORY, INDEX = "checkpoint", "checkpoint.json"


def save_checkpoint(directory: Path, comm: Comm, shared: dict, own: dict) -> None:
    """Write `shared` (rank 0's) and each rank's `own`: dictionaries of tensors and plain values. Every rank must call this."""
    number = comm.bcast_object(_read_index(directory)[0] + 1 if comm.rank == 0 else None)
    directory.mkdir(exist_ok=True)
    content = {"own": own, "shared": shared if comm.rank == 0 else None}
    save_tensors(directory / f"{number:06d}.rank-{comm.rank}.pt", content)
    comm.barrier()
    if comm.rank == 0:
        files = [f"{number:06d}.rank-{rank}.pt" for rank in range(comm.size)]
        with atomic_write(directory / INDEX) as f:
            json.dump({"number": number, "files": files}, f)
        for path in directory.iterdir():
            if path.name not in (INDEX, *files):
                path.unlink()


def load_checkpoint(directory: Path, comm: Comm) -> tuple[dict, dict] | None:
    """(shared, own) of the last complete set, or None where there is none. Raises UserError if it is of another number of ranks."""
    _, files = _read_index(directory)
    if not files:
        return None
    if len(files) != comm.size:
        found = f"a checkpoint of {len(files)} ranks, now there are {comm.size}"
        raise UserError(f"{directory}: {found}; give --num-ranks {len(files)} or --force")
    return _load(directory / files[0], "shared"), _load(directory / files[comm.rank], "own")


def _load(path: Path, part: str) -> dict:
    with _told(path):
        return load_tensors(path)[part]


def _read_index(directory: Path) -> tuple[int, list[str]]:
    """Number and files of the last complete set; 0 and none where there is none."""
    path = directory / INDEX
    if not path.exists():
        return 0, []
    with _told(path):
        index = json.loads(path.read_text(encoding="utf-8"))
        return index["number"], index["files"]


@contextlib.contextmanager
def _told(path: Path):
    """A damaged file fails in many ways; all mean the same to the user."""
    try:
        yield
    except Exception as error:
        sentence = f"this checkpoint cannot be read ({type(error).__name__}); delete {path.parent} to train from the start"
        raise UserError(f"{path}: {sentence}") from error


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
