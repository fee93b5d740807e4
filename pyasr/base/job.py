"""Entry point of one job of `run_jobs`: `python -m pyasr.base.job MODULE:FUNCTION SPEC.json JOB` calls FUNCTION(spec, JOB)."""

from __future__ import annotations

import importlib
import sys

from pyasr.base import log, options
from pyasr.base.errors import UserError


def resolve(name: str):
    """The function that `module:function` names. Raises UserError when there is none."""
    module, _, function = name.partition(":")
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise UserError(f"{name}: no such function")
    return found


def main(argv: list[str]) -> int:
    name, spec, job = argv
    log.setup(name.partition(":")[2])
    try:
        resolve(name)(options.load(spec), int(job))
    except UserError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
