"""Which GPUs of its host a process may use, as schedulers and runners say it."""

from __future__ import annotations

import os
import re

VARIABLE = "CUDA_VISIBLE_DEVICES"
_OF_GRID_ENGINE = "SGE_HGR_gpu"  # what a complex `gpu` of type RSMAP has given a job: "0 1", "cuda0 cuda1"
OF_ONE_HOST = (VARIABLE, _OF_GRID_ENGINE)  # on another they would name other GPUs


def granted_by_grid_engine() -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES as an environment, where a Grid Engine has given out GPUs by number and leaves the variable to the job."""
    numbers = re.findall(r"\d+(?=\s|$)", os.environ.get(_OF_GRID_ENGINE, ""))
    return {VARIABLE: ",".join(numbers)} if numbers and VARIABLE not in os.environ else {}
