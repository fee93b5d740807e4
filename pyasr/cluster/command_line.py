"""The command line of run.pl, queue.pl and slurm.pl, compatible with Kaldi's:

    run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

`JOB` (or any other word) stands for the job's number in LOG and in the command. Options may stand before and after `JOB=1:N`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyasr.base.errors import UserError

_WHOLE = {"--num-threads": "num_threads", "--max-jobs-run": "max_jobs_run", "-tc": "max_jobs_run", "--num-ranks": "num_ranks"}
_TAKEN = {"--mem": "mem", "--gpu": "gpu", "--config": "config", "--done-marker": "done_marker"}
_OTHER_RUNNERS = {"-l", "-q", "-p", "-sync", "-pe", "--time", "--partition"}


@dataclass(frozen=True)
class Request:
    """What is to be run. `name` is the word that stands for the job's number, "" for a single job without one."""

    num_threads: int = 1
    max_jobs_run: int = 0
    num_ranks: int = 0
    mem: str = ""
    gpu: str = "0"
    config: str = ""
    done_marker: str = ""
    name: str = ""
    first: int = 1
    last: int = 1
    log: str = ""
    words: tuple[str, ...] = field(default=())

    @property
    def jobs(self) -> range:
        """Numbers of the jobs."""
        return range(self.first, self.last + 1)

    def log_of(self, job: int) -> Path:
        """Log file of one job."""
        return Path(self.log.replace(self.name, str(job)) if self.name else self.log)

    def command_of(self, job: int) -> str:
        """The job's command as a line for bash."""
        words = [word.replace(self.name, str(job)) if self.name else word for word in self.words]
        return " ".join(map(shell_word, words))


def shell_word(word: str) -> str:
    """A word as Kaldi's runners hand it to the shell.

    Without white space it goes as it is, so that '|', '>' and $variables given as words work; with white space it is quoted.
    """
    if re.fullmatch(r"\S+", word):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def protect(word: str) -> str:
    """The word to hand to a runner so that after `shell_word` the job gets exactly `word`."""
    if re.fullmatch(r"\S+", word):
        return shlex.quote(word)
    if '"' not in word:
        return re.sub(r"([$`\\])", r"\\\1", word)
    if "'" not in word:
        return word
    raise UserError(f"{word}: white space, ' and \" in one name are too much for a job's command line; rename it")


def parse_request(argv: list[str]) -> Request:
    """The request on a runner's command line. Raises UserError for what cannot be meant."""
    request, rest = Request(), list(argv)
    while rest:
        match = re.fullmatch(r"(\w+)=(\d+)(?::(\d+))?", rest[0])
        if rest[0].startswith("-"):
            request = _take_option(request, rest)
        elif match and not request.name:
            request = _take_range(request, match)
            rest.pop(0)
        else:
            break
    if len(rest) < 2:
        raise UserError("a log file and a command are expected: run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...")
    request = replace(request, log=rest[0], words=tuple(rest[1:]))
    if request.last > request.first and request.name not in request.log:
        raise UserError(f"{request.log}: all jobs would write this one log file; put {request.name} into its name")
    if request.num_ranks and request.last > request.first:
        raise UserError("--num-ranks starts one MPI job; leave out the range of jobs")
    return request


def _take_option(request: Request, rest: list[str]) -> Request:
    """The request with the option at the head of `rest`, which loses it."""
    name, equals, value = rest.pop(0).partition("=")
    if name not in _WHOLE and name not in _TAKEN and name not in _OTHER_RUNNERS:
        known = " ".join([*_WHOLE, *_TAKEN])
        raise UserError(f"{name}: no such option; known are {known}")
    if not equals:
        if not rest:
            raise UserError(f"{name}: a value is missing after it")
        value = rest.pop(0)
    if name in _WHOLE:
        if not value.isdigit() or int(value) < 1:
            raise UserError(f"{name}: '{value}' is not a whole number of at least 1")
        return replace(request, **{_WHOLE[name]: int(value)})
    return replace(request, **{_TAKEN[name]: value}) if name in _TAKEN else request


def _take_range(request: Request, match: re.Match) -> Request:
    name, first, last = match[1], int(match[2]), int(match[3] or match[2])
    if first > last:
        raise UserError(f"{match[0]}: the range is empty")
    return replace(request, name=name, first=first, last=last)
