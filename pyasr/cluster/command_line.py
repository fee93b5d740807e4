"""The command line of run.pl, queue.pl and slurm.pl, compatible with Kaldi's:

    run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

`JOB` (or any other word) stands for the job's number in LOG and in the command. Options may stand before and after `JOB=1:N`.
`--config FILE` gives defaults of options and declares further ones (`pyasr.cluster.runner_config`).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.cluster.runner_config import RunnerConfig, read_runner_config

_OPTIONS = ("num_threads", "max_jobs_run", "num_ranks", "gpu", "mem", "done_marker", "config")
_LEAST = {"num_threads": 1, "max_jobs_run": 1, "num_ranks": 1, "gpu": 0}
_OF_OTHER_RUNNERS = {"l": 1, "q": 1, "p": 1, "sync": 1, "pe": 2, "time": 1, "partition": 1}  # how many values follow
_AMOUNT = r"\d+(\.\d+)?([kmgtKMGT]i?[bB]?)?"


@dataclass(frozen=True)
class Request:
    """What is to be run. `name` is the word that stands for the job's number, "" for a single job without one."""

    num_threads: int = 1
    max_jobs_run: int = 0
    num_ranks: int = 0
    gpu: int = 0
    mem: str = ""
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
    given, request, rest = {}, Request(), list(argv)
    while rest:
        match = re.fullmatch(r"(\w+)=(\d+)(?::(\d+))?", rest[0])
        if rest[0].startswith("-"):
            name, value = _take_option(rest)
            given[name] = value
        elif match and not request.name:
            request = _take_range(request, match)
            rest.pop(0)
        else:
            break
    if len(rest) < 2:
        raise UserError("a log file and a command are expected: run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...")
    request = replace(request, log=rest[0], words=tuple(rest[1:]), **_settings(given))
    if request.last > request.first and request.name not in request.log:
        raise UserError(f"{request.log}: all jobs would write this one log file; put {request.name} into its name")
    if request.num_ranks and request.last > request.first:
        raise UserError("--num-ranks starts one MPI job; leave out the range of jobs")
    return request


def _take_option(rest: list[str]) -> tuple[str, str]:
    """(name with underscores, value) of the option at the head of `rest`, which loses both."""
    word, equals, value = rest.pop(0).partition("=")
    name = word.lstrip("-").replace("-", "_")
    num_values = 0 if equals else _OF_OTHER_RUNNERS.get(name, 1)
    if len(rest) < num_values:
        raise UserError(f"{word}: a value is missing after it")
    values = [rest.pop(0) for _ in range(num_values)]
    return {"tc": "max_jobs_run"}.get(name, name), value if equals else " ".join(values)


def _settings(given: dict[str, str]) -> dict[str, object]:
    """Fields of the request: what the command line gives, then the defaults of --config; options for other runners are left out."""
    config = read_runner_config(Path(given["config"])) if "config" in given else RunnerConfig()
    for name, value in given.items():
        if name not in _OPTIONS and name not in _OF_OTHER_RUNNERS and not config.accepts(name, value):
            raise UserError(f"--{_flag(name)}: no such option; known are {' '.join(f'--{_flag(known)}' for known in _OPTIONS)}")
    known = {name: value for name, value in {**config.defaults, **given}.items() if name in _OPTIONS}
    return {name: _checked(name, value) for name, value in known.items()}


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _checked(name: str, value: str) -> object:
    if name in _LEAST:
        if not re.fullmatch("[0-9]+", value) or int(value) < _LEAST[name]:
            raise UserError(f"--{_flag(name)}: '{value}' is not a whole number of at least {_LEAST[name]}")
        return int(value)
    if name == "mem" and not re.fullmatch(_AMOUNT, value):
        raise UserError(f"--mem: '{value}' is no amount of memory such as 500M or 4G")
    return value


def _take_range(request: Request, match: re.Match) -> Request:
    name, first, last = match[1], int(match[2]), int(match[3] or match[2])
    if first > last:
        raise UserError(f"{match[0]}: the range is empty")
    return replace(request, name=name, first=first, last=last)
