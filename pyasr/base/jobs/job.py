"""Entry point of one job of `run_jobs`: `python -m pyasr.base.jobs.job MODULE:FUNCTION SPEC.json JOB` calls
FUNCTION(spec, JOB).

When the function has returned, SPEC.JOB.done is written. It proves success: a runner can exit with status 0
without having run the job.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli import options
from pyasr.base.compiled.imports import without_collection
from pyasr.base.errors import UserError
from pyasr.base.jobs.process_end import leave
from pyasr.base.system_errors import as_user_error


def resolve(name: str):
    """The function named by `module:function`. Raises UserError if it does not exist."""
    module, _, function = name.partition(":")
    with without_collection():
        found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise UserError(f"{name}: no such function")
    return found


def done_marker(spec: Path, job: int) -> Path:
    """The file that marks job `job` as successful: `log/extract.spec.json` -> `log/extract.spec.3.done`."""
    return Path(spec).with_suffix(f".{job}.done")


def main(argv: list[str]) -> int:
    """Run job JOB of `argv` = [MODULE:FUNCTION, SPEC.json, JOB]; the exit status. A UserError is printed as
    `error: SENTENCE`, status 1."""
    name, spec, job = argv[0], Path(argv[1]), int(argv[2])
    log.setup(name.partition(":")[2])
    try:
        resolve(name)(options.load(spec), job)
        done_marker(spec, job).touch()
    except Exception as error:
        user_error = as_user_error(error)
        if user_error is None:
            raise
        print(f"error: {user_error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
