"""What a batch runner needs of a scheduler, whichever it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.cluster.command_line import Request
from pyasr.cluster.runner_config import RunnerConfig

_ANSWER_S = 60.0  # busy schedulers take their time
_SUBMISSION_S = 180.0  # sbatch and qsub try for two minutes before they say that they have not been heard
_MOST_LINES = 5  # of what a program says, the last


@dataclass(frozen=True)
class Fate:
    """What a scheduler says of a job.

    active      it waits, runs, or will do so again
    reason      why it waits, or how it came to an end, for the user; "": there is nothing to say
    host        where it ran, if that is known
    host_lost   it ended with its host
    waits       it has not begun, or is to begin again
    suspended   it has begun, and stands still until the scheduler lets it go on
    over_limit  it was ended because it took more than it had asked for
    """

    active: bool
    reason: str = ""
    host: str = ""
    host_lost: bool = False
    waits: bool = False
    suspended: bool = False
    over_limit: bool = False


CUT = "..."  # at the end of a list of tasks that was too long for a scheduler
UNKNOWN = Fate(False, "the scheduler does not know it any more, and it has left no status: it was deleted before it began, or the "
                      "scheduler was started anew")  # fmt: skip


class NotTaken(UserError):
    """The scheduler could not be reached, or takes no jobs at the moment: it has nothing of what was submitted, which may be repeated."""


class Scheduler:
    """Base of all schedulers: how jobs are submitted, asked for and cancelled.

    name           for messages
    own            configuration that holds where a site's says nothing else
    usual          the site's, where --config names none
    foreign        {pattern of an option of another scheduler, with its value: what to give instead}
    task_variable  that tells a job which one of an array it is
    silent_s       for which it must at least have said that a host is lost, until that is believed
    not_taken      what the last line of its program says, as a regular expression, where a job was not taken and may be submitted again
    unsure         the same, where the job may have been taken all the same
    """

    name = ""
    own = RunnerConfig()
    usual = Path()
    foreign: dict[str, str] = {}
    task_variable = ""
    silent_s = 0.0
    not_taken = unsure = r"(?!)"

    def submission(self, request: Request, jobs: range, script: str, name: str) -> list[str]:
        """The command that submits `script` for jobs of the request under this name. Output before the script redirects it is discarded."""
        raise NotImplementedError

    def number(self, said: str) -> str:
        """The scheduler's number for what was submitted, from what the command said; "" where that holds none."""
        raise NotImplementedError

    def fates(self, number: str, tasks: list[int]) -> dict[int, Fate] | None:
        """What becomes of these tasks, and perhaps others, of what was submitted under this number; those that are not there are
        `UNKNOWN`. None: no answer now. A job that is no part of an array is task 0."""
        raise NotImplementedError

    def cancel(self, number: str) -> bool:
        """Have all jobs of this number ended; whether the scheduler has heard it, and knows of any."""
        raise NotImplementedError

    def release(self, number: str, tasks: list[int]) -> str:
        """Free what tasks whose host was lost hold on other hosts, after `cancel`; what is to be told where that cannot be done. Nothing is
        to be done where the scheduler sees to it itself."""
        return ""

    def of_a_job(self) -> list[str]:
        """Names of what the environment holds of the job that this process is itself a part of, and must not go along to others."""
        return []

    def site_words(self, request: Request, skip: tuple[str, ...] = ()) -> list[str]:
        """The site's command with the words for all options but those to `skip`."""
        given = [(name, value) for name, value in request.given if name not in skip]
        words = [word for name, value in given for word in request.site.flags(name, value)]
        return [*request.site.program(), *words, *request.raw]


def submit(scheduler: Scheduler, words: list[str]) -> str:
    """The number that the scheduler gives to what a command of its submits. Raises UserError with the command's own words where it refuses,
    or tells no number, and NotTaken where the same command may be given again."""
    if shutil.which(words[0]) is None:
        raise UserError(f"there is no program '{words[0]}' on PATH; log in to a host that submits jobs, or use run.pl")
    done = call(words, apart=True, answer_s=_SUBMISSION_S, without=scheduler.of_a_job())
    if done is None:
        raise UserError(f"{words[0]} did not answer; see whether the scheduler is up, and whether it has the job all the same")
    if done.returncode:
        raise _refusal(scheduler, words[0], done)
    said = _lines(done.stderr + done.stdout)
    number = scheduler.number(done.stdout)
    if not number:
        told = f"{words[0]} said '{said[-1]}'" if said else f"{words[0]} said nothing"
        see = "see whether another scheduler's is the first on PATH, and whether it has the job all the same"
        raise UserError(f"{told}, where that of {scheduler.name} tells the number of a job; {see}")
    return number


def _refusal(scheduler: Scheduler, program: str, done: subprocess.CompletedProcess) -> UserError:
    """What is told where a program has not submitted a job, in its own words."""
    said = _lines(done.stderr) or _lines(done.stdout) or [f"exit status {done.returncode}"]
    told = "; ".join(re.sub(rf"^{re.escape(Path(program).name)}: (error: )?", "", line) for line in said[-_MOST_LINES:])
    if re.search(scheduler.not_taken, said[-1], re.IGNORECASE):
        return NotTaken(f"{program} could not submit the job: {told}")
    if re.search(scheduler.unsure, said[-1], re.IGNORECASE):
        see = f"see whether {scheduler.name} has it, and cancel it"
        return UserError(f"{program} does not know whether the job was submitted: {told}; {see}")
    return UserError(f"{program} refused the job: {told} (--dry-run shows the whole command, {scheduler.usual} changes it)")


def _lines(said: str) -> list[str]:
    """Lines that say something: qsub ends with one that does not."""
    return [line.strip() for line in said.splitlines() if line.strip() not in ("", "Exiting.")]


def call(words: list[str], apart: bool = False, answer_s: float = _ANSWER_S, without: Collection[str] = (),
         **environment: str) -> subprocess.CompletedProcess | None:  # fmt: skip
    """Run one of a scheduler's programs, with `environment` added to ours, some `without`; None where it does not answer in `answer_s`
    seconds. Signals to our process group do not reach one that is `apart`."""
    ours = {name: value for name, value in os.environ.items() if name not in without}
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=answer_s,
                              env={**ours, **environment}, start_new_session=apart)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def is_well(done: subprocess.CompletedProcess | None) -> bool:
    """Whether a program has answered that all went well."""
    return done is not None and done.returncode == 0


def numbers_of(tasks: str) -> list[int]:
    """Tasks of an array, as schedulers write them: `1-3,7%2` -> [1, 2, 3, 7]; `2-4:1` -> [2, 3, 4]; `1,4,...` -> [1, 4]"""
    ranges = [part.partition(":")[0].split("-") for part in tasks.partition("%")[0].split(",") if part != CUT]
    return [number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)]
