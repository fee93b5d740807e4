"""The GPUs of this machine, and who has which."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.device_lock import DeviceLock, claim, held_for_a_job
from pyasr.base.errors import UserError
from pyasr.base.granted_gpus import VARIABLE, granted_by_grid_engine


def visible_gpus() -> dict[str, str]:
    """{UUID: name, as CUDA_VISIBLE_DEVICES takes it} of the GPUs that this process may use; none where there is no driver. The name stands
    for a UUID that the driver does not tell."""
    allowed, listed = {**os.environ, **granted_by_grid_engine()}.get(VARIABLE), _listed()
    if allowed is None:
        return {uuid: number for number, uuid in listed.items()}
    names = [name.strip() for name in allowed.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    return {_uuid(name, listed): name for name in names}


def _listed() -> dict[str, str]:
    """{number: UUID} of the GPUs of this machine."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}  # harmless: a machine without NVIDIA's driver has no GPU for us
    return {number: uuid or number for number, uuid in re.findall(r"(?m)^GPU (\d+):(?:.*\(UUID: (\S+)\))?", listed.stdout)}


def _uuid(name: str, listed: dict[str, str]) -> str:
    """Of a GPU that is named by its number, its UUID, or what that begins with."""
    return listed.get(name) or next((uuid for uuid in listed.values() if uuid.startswith(name)), name)


@dataclass(frozen=True)
class HeldGpu:
    """One that a runner has for its jobs, under the name that CUDA_VISIBLE_DEVICES takes."""

    name: str
    lock: DeviceLock


def environment_of(gpus: list[HeldGpu]) -> dict[str, str]:
    """What tells a job, as a part of its environment, which GPUs it has; nothing where it has asked for none."""
    if not gpus:
        return {}
    numbers = {} if VARIABLE in os.environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the driver's numbers, not CUDA's own
    return {VARIABLE: ",".join(gpu.name for gpu in gpus), **numbers, **held_for_a_job([gpu.lock for gpu in gpus])}


class GpuSlots:
    """Hands `num` GPUs to each job that runs at a time: `take()` gives them, `give_back(gpus)` frees them for the next.

    Where no GPU is wanted (`num` 0) or there is none at all, jobs have none. Raises UserError where there are some, but fewer than one job
    wants.
    """

    def __init__(self, num: int):
        self._names = visible_gpus() if num else {}
        self._free: list[HeldGpu] = []
        self.num = num if self._names else 0
        if 0 < len(self._names) < self.num:
            raise UserError(f"--gpu {num}: this machine has {len(self._names)} GPU(s) for us; ask for fewer")

    def hold(self, num_jobs: int, log: str, share: bool) -> int:
        """Keep GPUs for so many jobs, or as many as are free, from others; how many jobs can run at a time. Raises UserError where
        there are not enough for one."""
        if not self.num:
            return num_jobs
        num_gpus = min(num_jobs, len(self._names) // self.num) * self.num
        called = {uuid: f"GPU {name}" for uuid, name in self._names.items()}
        locks = claim([list(self._names)] * num_gpus, called, Path(log), share, least=self.num)
        self._free = [HeldGpu(self._names[lock.device], lock) for lock in locks]
        self.let_go(self._take(len(locks) % self.num))
        return len(locks) // self.num

    def take(self) -> list[HeldGpu]:
        """Those of the next job."""
        return self._take(self.num)

    def give_back(self, gpus: list[HeldGpu]) -> None:
        """A job has ended; the next will have its GPUs."""
        self._free += gpus

    def let_go(self, gpus: list[HeldGpu]) -> None:
        """There is no next job: others may have them."""
        for gpu in gpus:
            gpu.lock.release()

    def _take(self, num: int) -> list[HeldGpu]:
        taken, self._free = self._free[:num], self._free[num:]
        return taken
