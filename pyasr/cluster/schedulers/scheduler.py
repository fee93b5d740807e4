"""The interface between a batch runner and a scheduler."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.runner_config import RunnerConfig

_ANSWER_S = 60.0  # a busy scheduler may answer slowly
# sbatch and qsub try for two minutes before they report that the scheduler did not answer
_SUBMISSION_S = 180.0
_MEGABYTES = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}
_MAX_LINES = 5  # last lines of a program's output to show


@dataclass(frozen=True)
class Fate:
    """The state of a job according to the scheduler.

    active      it waits, runs, or will run again
    reason      why it waits or how it ended, for the user; "": nothing to report
    host        its host, if known
    host_lost   it ended because its host was lost
    waits       it has not started, or will start again
    suspended   it has started, and is suspended by the scheduler
    over_limit  it was ended because it exceeded the resources that it had requested
    """

    active: bool
    reason: str = ""
    host: str = ""
    host_lost: bool = False
    waits: bool = False
    suspended: bool = False
    over_limit: bool = False


CUT = "..."  # end of a list of tasks that the scheduler has truncated
UNKNOWN = Fate(
    False,
    "the scheduler no longer knows it, and it has written no status: it was deleted before it started, or "
    "the scheduler was restarted",
)


class NotTaken(UserError):
    """The scheduler is unreachable or accepts no jobs at the moment. It has not accepted this one, which may
    be submitted again."""


class Scheduler:
    """Base class of schedulers: submits, queries and cancels jobs.

    name           name in messages
    own            default configuration, which a site's configuration overrides
    usual          the site's configuration file if there is no --config
    foreign        {pattern of an option of another scheduler, with its value: what to use instead}
    task_variable  environment variable with the number of an array task
    not_taken      regular expression for the last line of the program's output if the job was not accepted
                   and may be submitted again
    unsure         the same if the job may have been accepted
    """

    name = ""
    own = RunnerConfig()
    usual = Path()
    foreign: dict[str, str] = {}
    task_variable = ""
    not_taken = unsure = r"(?!)"

    @property
    def silent_s(self) -> float:
        """Seconds for which the scheduler must report a host as lost before the runner believes it."""
        return 0.0

    def submission(self, request: Request, jobs: range, script: str, name: str) -> list[str]:
        """The command that submits `script` for these jobs under this name. Output before the script
        redirects it is discarded."""
        raise NotImplementedError

    def number(self, said: str) -> str:
        """The job number in the output of the submit command; "" if there is none."""
        raise NotImplementedError

    def fates(self, number: str, tasks: list[int]) -> dict[int, Fate] | None:
        """The states of these tasks, and possibly others, of the job with this number; a missing task is
        `UNKNOWN`. None: no answer now. A job that is not an array is task 0."""
        raise NotImplementedError

    def cancel(self, number: str) -> bool:
        """Cancel all jobs with this number; return whether the scheduler accepts that and knows any."""
        raise NotImplementedError

    def release(self, number: str, tasks: list[int]) -> str:
        """After `cancel`, release the slots that tasks of lost hosts occupy on other hosts; return a message
        if that fails. Does nothing by default, for schedulers that release them themselves."""
        return ""

    def of_a_job(self) -> list[str]:
        """Names of environment variables that describe the job in which this process runs, and must not be
        passed to submitted jobs."""
        return []

    def site_words(self, request: Request, skip: tuple[str, ...] = ()) -> list[str]:
        """The site's command with the words of all options except those in `skip`."""
        given = [(name, value) for name, value in request.given if name not in skip]
        words = [word for name, value in given for word in request.site.flags(name, value)]
        return [*request.site.program(), *words, *request.raw]


def submit(scheduler: Scheduler, words: list[str]) -> str:
    """Run a submit command; return the job number. Raises UserError with the command's own message if it
    refuses the job or prints no number, and NotTaken if the command may be repeated."""
    if shutil.which(words[0]) is None:
        raise UserError(
            f"there is no program '{words[0]}' on PATH; log in to a host that submits jobs, or use run.pl"
        )
    done = call(words, apart=True, answer_s=_SUBMISSION_S, without=scheduler.of_a_job())
    if done is None:
        raise UserError(
            f"{words[0]} did not answer; check whether the scheduler is up, and whether it has the job "
            "nevertheless"
        )
    if done.returncode:
        raise _refusal(scheduler, words[0], done)
    said = _lines(done.stderr + done.stdout)
    number = scheduler.number(done.stdout)
    if not number:
        sentence = f"{words[0]} printed '{said[-1]}'" if said else f"{words[0]} printed nothing"
        see = (
            "check whether another scheduler's program comes first on PATH, and whether it has the job "
            "nevertheless"
        )
        raise UserError(f"{sentence}, but that of {scheduler.name} prints a job number; {see}")
    return number


def _refusal(scheduler: Scheduler, program: str, done: subprocess.CompletedProcess) -> UserError:
    """The error for a failed submission, with the program's own message."""
    said = _lines(done.stderr) or _lines(done.stdout) or [f"exit status {done.returncode}"]
    sentence = "; ".join(
        re.sub(rf"^{re.escape(Path(program).name)}: (error: )?", "", line) for line in said[-_MAX_LINES:]
    )
    if re.search(scheduler.not_taken, said[-1], re.IGNORECASE):
        return NotTaken(f"{program} could not submit the job: {sentence}")
    if re.search(scheduler.unsure, said[-1], re.IGNORECASE):
        see = f"check whether {scheduler.name} has it, and cancel it"
        return UserError(f"{program} does not know whether the job was submitted: {sentence}; {see}")
    return UserError(
        f"{program} refused the job: {sentence} (--dry-run shows the whole command, {scheduler.usual} "
        "changes it)"
    )


def _lines(said: str) -> list[str]:
    """Lines that contain a message; qsub ends its output with one that does not."""
    return [line.strip() for line in said.splitlines() if line.strip() not in ("", "Exiting.")]


def call(
    words: list[str],
    apart: bool = False,
    answer_s: float = _ANSWER_S,
    without: Collection[str] = (),
    **environment: str,
) -> subprocess.CompletedProcess | None:
    """Run a scheduler's program with `environment` added to this process's environment and the variables
    `without` removed from it; None if it does not answer within `answer_s` seconds. `apart`: run it in a new
    session, out of reach of signals to this process group."""
    ours = {name: value for name, value in os.environ.items() if name not in without}
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=answer_s,
            env={**ours, **environment},
            start_new_session=apart,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def is_well(done: subprocess.CompletedProcess | None) -> bool:
    """Whether a program has answered and succeeded."""
    return done is not None and done.returncode == 0


def numbers_of(tasks: str) -> list[int]:
    """Tasks of an array in the notation of schedulers: `1-3,7%2` -> [1, 2, 3, 7]; `2-4:1` -> [2, 3, 4];
    `1,4,...` -> [1, 4]"""
    ranges = [part.partition(":")[0].split("-") for part in tasks.partition("%")[0].split(",") if part != CUT]
    return [number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)]


def seconds(time: str) -> int:
    """Seconds of a time in the format of --time: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
    days, has_days, rest = time.rpartition("-")
    parts = list(map(int, rest.split(":")))
    unit_s = 3600 if has_days or len(parts) == 3 else 60  # unit of the first part
    return int(days or 0) * 86400 + sum(part * unit_s // 60**place for place, part in enumerate(parts))


def megabytes(amount: str) -> int:
    """Megabytes, rounded up, of an amount of memory in the format of --mem: 1.5G -> 1536, 2GiB -> 2048."""
    found = re.match(r"([\d.]+)([kmgtKMGT]?)", amount)
    assert found is not None  # the runner has checked the option
    number, unit = found.groups()
    return math.ceil(float(number) * _MEGABYTES[unit.lower()])
