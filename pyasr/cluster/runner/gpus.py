"""The GPUs of this machine and their assignment to jobs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.host.device_lock import DeviceLock, claim, held_for_a_job
from pyasr.base.host.granted_gpus import VARIABLE, granted_by_grid_engine


def visible_gpus() -> dict[str, str]:
    """{UUID: name for CUDA_VISIBLE_DEVICES} of the GPUs that this process may use; empty without a driver. If
    the driver does not report a UUID, the name is the key."""
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
        return {}  # harmless: a machine without NVIDIA's driver has no usable GPU
    return {
        number: uuid or number
        for number, uuid in re.findall(r"(?m)^GPU (\d+):(?:.*\(UUID: (\S+)\))?", listed.stdout)
    }


def _uuid(name: str, listed: dict[str, str]) -> str:
    """The UUID of a GPU that is named by its number, its UUID or a prefix of its UUID."""
    return listed.get(name) or next((uuid for uuid in listed.values() if uuid.startswith(name)), name)


@dataclass(frozen=True)
class HeldGpu:
    """A GPU that a runner has locked for its jobs; `name` is its name for CUDA_VISIBLE_DEVICES."""

    name: str
    lock: DeviceLock


def environment_of(gpus: list[HeldGpu]) -> dict[str, str]:
    """The environment variables that assign GPUs to a job; empty if it requested none."""
    if not gpus:
        return {}
    # the driver's numbers, not CUDA's own
    numbers = {} if VARIABLE in os.environ else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {
        VARIABLE: ",".join(gpu.name for gpu in gpus),
        **numbers,
        **held_for_a_job([gpu.lock for gpu in gpus]),
    }


class GpuSlots:
    """Assigns `num` GPUs to each running job: `take()` returns them, `give_back(gpus)` frees them for the
    next job.

    Jobs get no GPU if `num` is 0 or the machine has none. Raises UserError if the machine has some, but fewer
    than `num`.
    """

    def __init__(self, num: int):
        self._names = visible_gpus() if num else {}
        self._free: list[HeldGpu] = []
        self.num = num if self._names else 0
        if 0 < len(self._names) < self.num:
            raise UserError(
                f"--gpu {num}: only {len(self._names)} GPU(s) of this machine are available; request fewer"
            )

    def hold(self, num_jobs: int, log: str, share: bool) -> int:
        """Lock GPUs for `num_jobs` jobs, or for fewer if not enough are free; return how many jobs can run at
        a time. Raises UserError if one job cannot get its GPUs."""
        if not self.num:
            return num_jobs
        num_gpus = min(num_jobs, len(self._names) // self.num) * self.num
        called = {uuid: f"GPU {name}" for uuid, name in self._names.items()}
        locks = claim([list(self._names)] * num_gpus, called, Path(log), share, least=self.num)
        self._free = [HeldGpu(self._names[lock.device], lock) for lock in locks]
        self.let_go(self._take(len(locks) % self.num))
        return len(locks) // self.num

    def take(self) -> list[HeldGpu]:
        """The GPUs of the next job."""
        return self._take(self.num)

    def give_back(self, gpus: list[HeldGpu]) -> None:
        """Return the GPUs of a job that has ended, for the next job."""
        self._free += gpus

    def let_go(self, gpus: list[HeldGpu]) -> None:
        """Unlock the GPUs for other runners, because no job is waiting."""
        for gpu in gpus:
            gpu.lock.release()

    def _take(self, num: int) -> list[HeldGpu]:
        taken, self._free = self._free[:num], self._free[num:]
        return taken
