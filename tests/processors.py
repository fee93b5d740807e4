"""Emulation of other processors, by environment variables that restrict numerical libraries to fewer
instruction sets.

python tests/processors.py avx2 python -m pytest tests/nn          # as on a processor without AVX-512
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

NAMES = ("this", "avx512", "avx2", "sse")  # avx512: without bfloat16
_INSTRUCTIONS = {
    "this": {},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
    },
    "sse": {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NUMBA_CPU_NAME": "nehalem",
        "NUMBA_CPU_FEATURES": "",
    },
}
_BEYOND = {"avx2": r"AVX512|X86_V4", "sse": r"AVX|X86_V[34]|FMA|F16C|BMI|LZCNT|MOVBE"}  # of numpy


def has_avx512() -> bool:
    """Whether this processor has AVX-512."""
    import torch  # here, as a program that only asks for variables needs none

    return torch.cpu.get_capabilities().get("avx512_f", False)


def variables(name: str) -> dict[str, str]:
    """Environment variables that make a process use the instruction sets of the processor `name`."""
    if name not in _BEYOND:
        return _INSTRUCTIONS[name]
    code = (
        "from numpy._core._multiarray_umath import __cpu_dispatch__ as d, __cpu_features__ as f; "
        "print(*(n for n in d if f.get(n)))"
    )
    kinds = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    hidden = [kind for kind in kinds if re.match(_BEYOND[name], kind)]
    return {**_INSTRUCTIONS[name], **({"NPY_DISABLE_CPU_FEATURES": " ".join(hidden)} if hidden else {})}


def environment(name: str) -> dict[str, str]:
    """The environment of a process that uses the instruction sets of the processor `name`."""
    known = {variable for settings in _INSTRUCTIONS.values() for variable in settings} | {
        "NPY_DISABLE_CPU_FEATURES",
        "DNNL_MAX_CPU_ISA",
    }
    return {
        **{variable: value for variable, value in os.environ.items() if variable not in known},
        **variables(name),
    }


def run(name: str, command: list[str]) -> None:
    """Replace this process by `command`, with the instruction sets of the processor `name`."""
    os.execvpe(command[0], command, environment(name))


if __name__ == "__main__":  # NAME COMMAND...
    if sys.argv[1] == "avx2" and not has_avx512():
        print(
            "not run with the instruction sets of another processor, because this one has no AVX-512:",
            *sys.argv[2:],
            flush=True,
        )
    else:
        run(sys.argv[1], sys.argv[2:])
