"""Assignment of GPUs to ranks.

Each rank of a host takes a GPU of its own, in the order of the ranks, from those that CUDA makes visible to
it. So CUDA_VISIBLE_DEVICES, set by Slurm and run.pl, is respected, whether it is the same for all ranks or
differs between them: GPUs are identified by their UUIDs. The driver's exclusive mode is not needed: locks
(`pyasr.base.host.device_lock`), which the first rank of each host holds, keep other jobs of the user away.
Ranks or jobs share a GPU on request only.
"""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.host.device_lock import PATIENCE_S, DeviceLock, claim
from pyasr.parallel.communication.comm import Comm


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use.

    uuid  its identifier, the same in all processes of the host
    name  name of the model
    """

    uuid: str
    name: str


def visible_gpus() -> list[Gpu]:
    """The GPUs that torch can use, in CUDA's order; empty if torch has not been imported or finds none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    properties = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [Gpu(str(found.uuid), found.name) for found in properties]


def take_number(number: int) -> None:
    """Select the GPU that torch uses as `cuda`."""
    sys.modules["torch"].cuda.set_device(number)


def choose(visible: Sequence[Sequence[str]]) -> list[int]:
    """For each rank of a host, given the GPUs visible to it, the number of its GPU: the first of those taken
    by the fewest ranks.

    >>> choose([["a", "b"], ["a", "b"], ["a", "b"]])
    [0, 1, 0]
    """
    taken: Counter[str] = Counter()
    chosen = []
    for uuids in visible:
        chosen.append(min(range(len(uuids)), key=lambda number: taken[uuids[number]]))
        taken[uuids[chosen[-1]]] += 1
    return chosen


def take_gpu(
    comm: Comm,
    spec,
    share: bool,
    log: Path,
    find: Callable[[], list[Gpu]] = visible_gpus,
    take: Callable[[int], None] = take_number,
    patience_s: float = PATIENCE_S,
) -> list[DeviceLock]:
    """Let every rank take its GPU, if the work uses GPUs; the log shows the assignment. Collective: every
    rank must call this.

    spec        the work; its option `--device`, at any depth, says whether it uses GPUs
    share       whether ranks or jobs may share a GPU
    log         the job's log, named in messages of other jobs
    patience_s  seconds to wait for other jobs to release GPUs

    Returns the locks that this rank holds, for all ranks of its host or none, until it releases them or ends.
    Raises UserError, on every rank, if there are fewer GPUs than ranks, if other jobs use them, or if only
    some hosts have GPUs.
    """
    if option_value(spec, "device") in (None, "cpu"):
        return []
    gpus, host = find(), comm.split_by_host()
    seen = host.allgather(gpus)
    _require_gpus_on_all_hosts(comm, bool(gpus))
    if not gpus:
        comm.log("all ranks compute on the CPU")
        return []
    chosen = choose([[gpu.uuid for gpu in of_rank] for of_rank in seen])
    _require_enough(
        comm, len({of_rank[number].uuid for of_rank, number in zip(seen, chosen)}), host.size, share
    )
    locks, refusal = _lock(seen, share, log, patience_s) if host.rank == 0 else ([], "")
    _require_free(comm, locks, refusal)
    taken = host.bcast_object([lock.device for lock in locks])[host.rank]
    number = [gpu.uuid for gpu in gpus].index(taken)
    take(number)
    set_products(option_value(spec, "precision"))
    for line in comm.allgather(f"{comm.name} computes on GPU {number}, {gpus[number].name} ({taken})"):
        comm.log(line)
    return locks


def _lock(seen: list[list[Gpu]], share: bool, log: Path, patience_s: float) -> tuple[list[DeviceLock], str]:
    """Locks on GPUs for ranks with these visible GPUs, in the order of the ranks; or why there are none."""
    names = {gpu.uuid: f"GPU {number}, {gpu.name}" for of_rank in seen for number, gpu in enumerate(of_rank)}
    try:
        return claim(
            [[gpu.uuid for gpu in of_rank] for of_rank in seen], names, log, share, patience_s=patience_s
        ), ""
    except UserError as refusal:
        return [], str(refusal)


def set_products(precision: str | None) -> None:
    """Set the precision of matrix products on GPUs. Products of bfloat16 are accumulated in float32 (torch
    allows bfloat16). Products of float32 use tf32 only with `--precision tf32` (torch allows cuDNN to use it
    by default)."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def option_value(spec, name: str) -> str | None:
    """The value of an option in a work's options, at any depth; None if there is no such option."""
    for field in dataclasses.fields(spec) if dataclasses.is_dataclass(spec) else ():
        value = getattr(spec, field.name)
        found = value if field.name == name else option_value(value, name)
        if found is not None:
            return found
    return None


def _require_gpus_on_all_hosts(comm: Comm, here: bool) -> None:
    """Raise UserError if only some ranks have a GPU: the model would depend on which rank did what."""
    found = comm.allgather((socket.gethostname(), here))
    without = sorted({name for name, has in found if not has})
    if without and any(has for _, has in found):
        raise UserError(
            f"{', '.join(without)}: no GPU, but other hosts have one; request GPUs on every host, or give "
            "--device cpu"
        )


def _require_enough(comm: Comm, num_taken: int, num_ranks: int, share: bool) -> None:
    crowded = [
        found for found in comm.allgather((socket.gethostname(), num_taken, num_ranks)) if found[1] < found[2]
    ]
    if crowded and not share:
        name, gpus, ranks = crowded[0]
        there = f"{name}: {ranks} ranks, but only {gpus} GPU{'s' if gpus > 1 else ''}"
        raise UserError(
            f"{there}; run as many ranks as GPUs (--num-ranks), request more (--cmd 'run.pl --gpu {ranks}'), "
            "share GPUs with --share-devices true, or give --device cpu"
        )


def _require_free(comm: Comm, locks: list[DeviceLock], refusal: str) -> None:
    """Raise UserError and release the locks of all hosts if one host has too few free GPUs."""
    with ExitStack() as releasing:
        for lock in locks:
            releasing.callback(lock.release)
        refused = [found for found in comm.allgather(refusal) if found]
        if refused:
            raise UserError(f"{refused[0]}, or give --device cpu")
        releasing.pop_all()
