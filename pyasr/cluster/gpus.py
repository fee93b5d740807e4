"""The GPUs of this machine, and who has which."""

from __future__ import annotations

import os
import re
import subprocess

from pyasr.base.errors import UserError

VARIABLE = "CUDA_VISIBLE_DEVICES"
_OF_GRID_ENGINE = "SGE_HGR_gpu"  # what a complex `gpu` of type RSMAP has given a job: "0 1", "cuda0 cuda1"


def granted_by_grid_engine() -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES as an environment, where a Grid Engine has given out GPUs by number and leaves the variable to the job."""
    numbers = re.findall(r"\d+(?=\s|$)", os.environ.get(_OF_GRID_ENGINE, ""))
    return {VARIABLE: ",".join(numbers)} if numbers and VARIABLE not in os.environ else {}


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them; none where there is no driver."""
    allowed = {**os.environ, **granted_by_grid_engine()}.get(VARIABLE)
    if allowed is not None:
        return [name.strip() for name in allowed.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []  # harmless: a machine without NVIDIA's driver has no GPU for us
    return [str(number) for number in range(sum(line.startswith("GPU ") for line in listed.stdout.splitlines()))]


class GpuSlots:
    """Hands `num` GPUs to each job: `take()` gives the environment of a job, `give_back(environment)` frees what it had.

    Where no GPU is wanted (`num` 0) or there is none at all, jobs keep the environment as it is. Raises UserError where there are some,
    but fewer than one job wants.
    """

    def __init__(self, num: int):
        self._free = visible_gpus() if num else []
        self.num = num if self._free else 0
        if 0 < len(self._free) < self.num:
            raise UserError(f"--gpu {num}: this machine has {len(self._free)} GPU(s) for us; ask for fewer")

    @property
    def max_jobs(self) -> int | None:
        """How many jobs have GPUs at a time, before any has taken one; None where GPUs set no limit."""
        return len(self._free) // self.num if self.num else None

    def take(self) -> dict[str, str]:
        taken, self._free = self._free[: self.num], self._free[self.num :]
        return {VARIABLE: ",".join(taken)} if self.num else {}

    def give_back(self, environment: dict[str, str]) -> None:
        if VARIABLE in environment:
            self._free += environment[VARIABLE].split(",")
