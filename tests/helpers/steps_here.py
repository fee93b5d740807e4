"""Steps run inside the test's process, with their jobs in sequence: for cases that do not need separate
processes."""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from pyasr.base import log
from pyasr.base.cli import options
from pyasr.base.errors import UpToDate
from pyasr.base.jobs.job import resolve

ROOT = Path(__file__).parents[2]


def run_here(step: str, *words, folder: str = "steps", threads: bool = False) -> None:
    """Run `steps/STEP` with these arguments. Raises the step's UserError; its log goes to standard output.

    With `threads` the ranks of its MPI job are threads.
    """
    module, cls = step_of(step, folder)
    module.run_jobs = _run_jobs
    if threads:
        module.run_ranks = _run_ranks
    log.setup(step)
    with patch("pyasr.train.steps.on_ranks.run_ranks", _run_ranks) if threads else nullcontext():
        try:
            module.main(options.parse(cls, [str(word) for word in words], module.__doc__, {})[0])
        except UpToDate as note:
            log.info(str(note))


def step_of(step: str, folder: str = "steps") -> tuple[ModuleType, type]:
    """The module of a step, and the class of its options."""
    spec = importlib.util.spec_from_file_location(Path(step).stem, ROOT / folder / step)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module, getattr(
        module, re.search(r"run_step\(\s*(\w+),\s*main\b", Path(spec.origin).read_text(encoding="utf-8"))[1]
    )


def _run_ranks(jobs, log, function: str, spec, num_ranks: int, recovery=None, progress=None) -> None:
    from pyasr.parallel.communication.rank_threads import run_threads

    run_threads(num_ranks, lambda comm: resolve(function)(spec, comm))


def _run_jobs(jobs, log, function: str, spec, *, num_jobs: int | None = None) -> None:
    for job in range(1, (num_jobs or jobs.nj) + 1):
        resolve(function)(spec, job)
