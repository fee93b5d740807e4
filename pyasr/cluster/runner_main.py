"""The common front end of run.pl, slurm.pl and queue.pl: takes a command line, returns an exit status and
prints at most one report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pyasr.base.standard_streams import open_standard_streams
from pyasr.base.system_errors import as_user_error
from pyasr.base.utf8 import require_utf8
from pyasr.base.version import VERSION
from pyasr.cluster.runner.command_line import Request, parse_request
from pyasr.cluster.runner.failure_report import LATER, failure_report, refuse, tell
from pyasr.cluster.runner.group_progress import showing_progress
from pyasr.cluster.runner.local_runner import LocalRunner
from pyasr.cluster.runner.processes import Stopped, raise_on_stop
from pyasr.cluster.runner.status import JobStatus
from pyasr.cluster.schedulers.batch import BatchRunner
from pyasr.cluster.schedulers.scheduler import Scheduler


class Runner(Protocol):
    """Runs the jobs of one request. `ended`: the statuses so far; `outlasting`: names of cancelled jobs that
    have not ended."""

    request: Request
    ended: list[JobStatus]
    outlasting: list[str]

    def plan(self) -> str:
        """The exact commands that `run` would execute."""

    def run(self) -> list[JobStatus]:
        """The statuses of the jobs in the order in which they ended."""


def local_main(doc: str) -> None:
    """The main function of utils/run.pl."""
    _main(doc, parse_request, LocalRunner)


def batch_main(doc: str, scheduler: Scheduler) -> None:
    """The main function of a scheduler's runner."""
    own = (scheduler.own, scheduler.usual, scheduler.foreign)
    _main(doc, lambda argv: parse_request(argv, *own), lambda request: BatchRunner(request, scheduler))


def _main(doc: str, parse: Callable[[list[str]], Request], runner: Callable[[Request], Runner]) -> None:
    """Run this program's command line and exit; `doc` is its help."""
    open_standard_streams()
    if sys.argv[1:2] in (["--help"], ["-h"]):
        print(doc.strip())
        sys.exit(0)
    if sys.argv[1:] == ["--version"]:
        print(f"pyasr {VERSION}")
        sys.exit(0)
    require_utf8()
    sys.exit(_run(parse, runner))


def _run(parse: Callable[[list[str]], Request], runner: Callable[[Request], Runner]) -> int:
    raise_on_stop()
    later = os.environ.pop(LATER, None)  # hidden from the jobs, which may start runners of their own
    jobs = None
    try:
        request = parse(sys.argv[1:])
        if request.dry_run:
            return _show(runner(request).plan())
        jobs = runner(request)
        with showing_progress(request, lambda: len(jobs.ended)):
            ended = jobs.run()
        return _tell(jobs.request, ended, later)
    except Stopped as stop:
        note = "" if jobs and jobs.outlasting else "; its jobs were ended"
        print(f"{Path(sys.argv[0]).name}: stopped by signal {stop.args[0]}{note}", file=sys.stderr)
        return 128 + stop.args[0]
    except Exception as error:
        if not (message := as_user_error(error)):
            raise
        refuse(str(message), later)
        return 1


def _show(plan: str) -> int:
    try:
        print(plan, flush=True)
    except BrokenPipeError:
        # harmless: the reader (`head`, for instance) has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _tell(request: Request, ended: list[JobStatus], later: str | None) -> int:
    failed = [status for status in ended if not status.ok and not status.stopped]
    if failed:
        tell(failure_report(request, failed, for_step=later is not None), later)
    return 1 if failed else 0
