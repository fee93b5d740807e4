"""GPUs that a scheduler or runner has allocated to this process."""

from __future__ import annotations

import os
import re

VARIABLE = "CUDA_VISIBLE_DEVICES"
_OF_GRID_ENGINE = "SGE_HGR_gpu"  # allocation of a complex `gpu` of type RSMAP: "0 1", "cuda0 cuda1"
OF_ONE_HOST = (VARIABLE, _OF_GRID_ENGINE)  # valid on one host: on another they would name other GPUs


def granted_by_grid_engine() -> dict[str, str]:
    """Environment with CUDA_VISIBLE_DEVICES if Grid Engine has allocated GPUs by number without setting the
    variable; else empty."""
    numbers = re.findall(r"\d+(?=\s|$)", os.environ.get(_OF_GRID_ENGINE, ""))
    return {VARIABLE: ",".join(numbers)} if numbers and VARIABLE not in os.environ else {}
