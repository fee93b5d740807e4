"""The command line of run.pl, queue.pl and slurm.pl, compatible with Kaldi's:

    run.pl [options] [JOB=1:N] LOG COMMAND ARGUMENTS...

`JOB` (or any other word) is replaced by the job number in LOG and in the command. Options may precede and
follow `JOB=1:N`. `--config FILE` gives defaults of options and declares further ones
(`pyasr.cluster.runner.runner_config`). Words with one dash are a scheduler's own, with one value, `-q all.q`;
but `-V` and `-cwd` have none, and `-pe smp 4` has two, the second of which is also the number of threads.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyasr.base.errors import UserError
from pyasr.cluster.runner.runner_config import RunnerConfig, read_runner_config

_OPTIONS = (
    "num_threads",
    "max_jobs_run",
    "num_ranks",
    "gpu",
    "share_devices",
    "mem",
    "time",
    "partition",
    "done_marker",
    "run_id",
    "max_requeue",
    "config",
    "dry_run",
)
_SWITCHES = ("dry_run",)
_OF_STEPS = ("num_ranks", "done_marker", "run_id")  # options that --cmd must not contain
_MINIMA = {"num_threads": 1, "max_jobs_run": 1, "num_ranks": 1, "gpu": 0, "max_requeue": 0}
_TRUTHS = {"true": True, "false": False}
_FORMS = {
    "mem": (r"\d+(\.\d+)?([kmgtKMGT]i?[bB]?)?", "amount of memory such as 500M or 4G"),
    "time": (r"(\d+-)?\d+(:\d+){0,2}", "time such as 30, in minutes, 12:00:00 or 2-00:00:00"),
}
_RANGE = r"(\w+)=(\d+)(?::(\d+))?"
_NO_LOG = r"\w+=[^/]*:[^/]*"  # Kaldi's runners warn of such names
_NUM_VALUES = {"V": 0, "cwd": 0, "pe": 2}  # of options with one dash; all others take 1


@dataclass(frozen=True)
class Request:
    """The jobs to run and their resources.

    run_id  word in status files by which a batch runner distinguishes its own run from other runs of the same
            command
    name    placeholder of the job number; "" for a single job without one
    site    configuration of the runner and of --config
    given   (option, value) for the options that `site` declares: from the command line, else the defaults of
            `site`
    raw     options passed to the scheduler's program
    typed   the options as typed by the user
    """

    num_threads: int = 1
    max_jobs_run: int = 0
    num_ranks: int = 0
    gpu: int = 0
    share_devices: bool = False
    mem: str = ""
    time: str = ""
    partition: str = ""
    config: str = ""
    done_marker: str = ""
    run_id: str = ""
    max_requeue: int = 3
    dry_run: bool = False
    name: str = ""
    first: int = 1
    last: int = 1
    log: str = ""
    words: tuple[str, ...] = field(default=())
    site: RunnerConfig = field(default=RunnerConfig())
    given: tuple[tuple[str, str], ...] = field(default=())
    raw: tuple[str, ...] = field(default=())
    typed: tuple[str, ...] = field(default=())

    @property
    def jobs(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def spec(self) -> Path | None:
        """The spec of an MPI job started by `run_ranks`, derived from the name of its done marker; None for
        any other job."""
        marker = Path(self.done_marker)
        return marker.with_suffix(".json") if self.num_ranks and marker.name.endswith(".spec.done") else None

    def log_of(self, job: int) -> Path:
        """Log file of one job."""
        return Path(self.log.replace(self.name, str(job)) if self.name else self.log)

    def command_of(self, job: int) -> str:
        """The job's command as a line for bash."""
        return " ".join(map(shell_word, self.words_of(job)))

    def words_of(self, job: int) -> list[str]:
        """The words of a job's command, before a shell reads them."""
        return [word.replace(self.name, str(job)) if self.name else word for word in self.words]


def shell_word(word: str) -> str:
    """A word as Kaldi's runners pass it to the shell.

    Without white space it goes as it is, so that '|', '>' and $variables given as words work; with white
    space it is quoted.
    """
    if re.fullmatch(r"\S+", word):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def protect(word: str) -> str:
    """The word to pass to a runner so that after `shell_word` the job gets exactly `word`."""
    if re.fullmatch(r"\S+", word):
        return shlex.quote(word)
    if '"' not in word:
        return re.sub(r"([$`\\])", r"\\\1", word)
    if "'" not in word:
        return word
    raise UserError(
        f"{word}: a job's command line cannot carry a name that contains white space, ' and \"; rename it"
    )


def parse_request(
    argv: list[str],
    own: RunnerConfig = RunnerConfig(),
    usual: Path | None = None,
    foreign: dict[str, str] | None = None,
) -> Request:
    """The request on a runner's command line. Raises UserError for an invalid command line.

    own      the runner's configuration; without a command, jobs run on this machine, and options for other
             runners only cause a warning
    usual    file that overrides it if it exists and there is no --config
    foreign  {pattern of an option of another scheduler, with its value: what to give instead}
    """
    given: dict[str, str] = {}
    raw: list[list[str]] = []
    typed, request, rest = list[str](), Request(), list(argv)
    where = usual or "the file that --config names"
    flags = (
        f"; an option of {own.command.split()[0]} without a value belongs in the line 'command' of {where}"
        if own.command
        else ""
    )
    while rest:
        match = re.fullmatch(_RANGE, rest[0])
        if rest[0].startswith("-"):
            typed += _take_option(rest, given, raw, flags)
        elif match:
            request = _take_range(request, match)
            rest.pop(0)
        else:
            break
    site = _site(given.get("config"), own, usual)
    known = _known(given, site, bool(own.command), flags)
    if not own.command:
        _tell_no_effect(raw)
    _refuse_foreign(raw, foreign or {}, own)
    if len(rest) < 2:
        runner = Path(sys.argv[0]).name
        raise UserError(
            f"expected a log file and a command: {runner} [options] [JOB=1:N] LOG COMMAND ARGUMENTS..."
        )
    _check_log(rest[0])
    request = replace(
        request,
        site=site,
        log=rest[0],
        words=tuple(rest[1:]),
        raw=tuple(word for words in raw for word in words),
        typed=tuple(typed),
        **_settings(known, site),
    )
    if own.command and not request.num_ranks:
        request = _with_threads_of_slots(request, raw)
    if request.last > request.first and request.name not in request.log:
        raise UserError(
            f"{request.log}: all jobs would write this log file; put {request.name} into its name"
        )
    if request.num_ranks and request.last > request.first:
        raise UserError("--num-ranks starts one MPI job; remove the range of jobs")
    return request


def _check_log(log: str) -> None:
    """Raise UserError for an invalid name of a log file."""
    if re.fullmatch(_NO_LOG, log):
        raise UserError(
            f"'{log}': neither a range of jobs such as JOB=1:4 nor the name of a log file; correct it, or "
            f"write ./{log}"
        )
    if "\n" in log:
        raise UserError(
            f"'{log}': the name of a log file contains a line break; rename the file or its directory"
        )
    if Path(log).is_dir():
        raise UserError(f"'{log}' is a directory; give the name of a log file, such as {Path(log) / 'x.log'}")
    if Path(log).exists() and not Path(log).is_file():
        raise UserError(
            f"'{log}' is no file next to which the job's status can be written; give the name of a log "
            "file, such as x.log"
        )


def check_options(words: list[str], given_by: str) -> None:
    """Raise UserError unless these words of --cmd, after the runner, are options with their values.

    given_by  the step, which adds the range of jobs, the log and the command
    """
    rest, given = list(words), dict[str, str]()
    while rest:
        if re.fullmatch(_RANGE, rest[0]):
            raise UserError(
                f"{rest[0]} is a range of jobs, and {given_by} adds its own (--nj); remove it from --cmd or "
                "cmd.sh"
            )
        if not rest[0].startswith("-"):
            raise UserError(
                f"'{rest[0]}' belongs to no option; remove it from --cmd, or correct the option before it"
            )
        _take_option(rest, given, [], "")
        if own := [name for name in _OF_STEPS if name in given]:
            raise UserError(f"--{_flag(own[0])} is set by {given_by} itself; remove it from --cmd or cmd.sh")


def _take_option(rest: list[str], given: dict[str, str], raw: list[list[str]], flags: str) -> list[str]:
    """Move the first option of `rest`, with its values, to `given` (under its name with underscores) or to
    `raw`; return its words. `flags` is added to the error message if a scheduler's option lacks its value."""
    typed = rest.pop(0)
    word, equals, value = typed.partition("=")
    name = word.lstrip("-").replace("-", "_")
    is_raw = not word.startswith("--") and name != "tc"
    if is_raw and name in _OPTIONS:
        raise UserError(
            f"{word}: write --{_flag(name)}, with two dashes; an option with one dash is passed to the "
            "scheduler"
        )
    num_values = 0 if equals or name in _SWITCHES else _NUM_VALUES.get(name, 1) if is_raw else 1
    values = _take_values(rest, num_values, word, "" if name in _OPTIONS else flags)
    if is_raw:
        raw += [[typed, *values]] if name != "sync" else []  # we always wait
    else:
        name, value = {"tc": "max_jobs_run"}.get(name, name), value if equals else " ".join(values)
        given[name] = min(given.get(name, value), value, key=_as_limit) if name == "max_jobs_run" else value
    return [typed, *values]


def _as_limit(value: str) -> float:
    """A limit on jobs as a number, for the minimum of several. An invalid limit sorts first, so that its
    error is reported later."""
    return int(value) if value.isdecimal() else -1


def _take_values(rest: list[str], number: int, option: str, flags: str) -> list[str]:
    """Take the values of an option from the head of `rest`. A range of jobs, whose name occurs in a later
    word, is not a value."""
    values, rest[:] = rest[:number], rest[number:]
    if len(values) < number:
        raise UserError(f"{option}: a value is missing after it")
    for value in values:
        match = re.fullmatch(_RANGE, value)
        if value.startswith("--") or match and match[3] and any(match[1] in word for word in rest):
            raise UserError(f"{option}: a value is expected after it, not '{value}'{flags}")
    return values


def _site(config: str | None, own: RunnerConfig, usual: Path | None) -> RunnerConfig:
    file = Path(config) if config is not None else usual if usual and usual.exists() else None
    site = read_runner_config(file).over(own) if file else own
    for name, value in site.defaults.items():
        if name not in _OPTIONS and name not in site.options:
            raise UserError(
                f"{file}: 'default {name}={value}', but no line 'option {name}=...' declares it; add one, "
                "or correct this"
            )
    return site


def _known(given: dict[str, str], site: RunnerConfig, is_strict: bool, flags: str) -> dict[str, str]:
    """The known options. Raises UserError for others if `is_strict`; else ignores them with a warning, as
    Kaldi's run.pl does."""
    unknown = [
        name for name, value in given.items() if name not in _OPTIONS and not site.accepts(name, value)
    ]
    if unknown and is_strict:
        raise UserError(
            f"--{_flag(unknown[0])}: no such option; known are "
            f"{' '.join(f'--{_flag(name)}' for name in _OPTIONS)}{flags}"
        )
    for name in unknown:
        effect = (
            f"warning: --{_flag(name)} {given[name]} has no effect: run.pl has no such option (see "
            "run.pl --help)"
        )
        print(f"{Path(sys.argv[0]).name}: {effect}", file=sys.stderr)
    return {name: value for name, value in given.items() if name not in unknown}


def _tell_no_effect(raw: list[list[str]]) -> None:
    """Warn about a scheduler's options, which run.pl accepts and ignores, as Kaldi's does."""
    if raw:
        words = " ".join(word for words in raw for word in words)
        effect = (
            f"warning: {words} has no effect: options with one dash are for a scheduler, and run.pl "
            "runs jobs on this machine"
        )
        print(f"{Path(sys.argv[0]).name}: {effect}", file=sys.stderr)


def _refuse_foreign(raw: list[list[str]], foreign: dict[str, str], own: RunnerConfig) -> None:
    """Raise UserError for an option of another scheduler."""
    for given in map(" ".join, raw):
        for pattern, advice in foreign.items():
            if re.fullmatch(pattern, given):
                raise UserError(f"{given}: {own.command.split()[0]} does not take this option here; {advice}")


def _settings(given: dict[str, str], site: RunnerConfig) -> dict[str, Any]:
    """Fields of the request: options of the command line, else the defaults of its configuration."""
    values = {**site.defaults, **given}
    of_site = tuple((name, value) for name, value in values.items() if name in site.options)
    return {
        "given": of_site,
        **{name: _checked(name, value) for name, value in values.items() if name in _OPTIONS},
    }


def _with_threads_of_slots(request: Request, raw: list[list[str]]) -> Request:
    """The request with the slots of the last `-pe NAME SLOTS`, if any, as its number of threads, without
    requesting them twice."""
    slots = [words[-1] for words in raw if words[0] == "-pe" and words[-1].isdecimal()]
    if not slots:
        return request
    given = tuple((name, value) for name, value in request.given if name != "num_threads")
    return replace(request, num_threads=_whole("num_threads", slots[-1]), given=given)


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _whole(name: str, value: str) -> int:
    if not re.fullmatch("[0-9]+", value) or int(value) < _MINIMA[name]:
        raise UserError(f"--{_flag(name)}: '{value}' is not a whole number of at least {_MINIMA[name]}")
    return int(value)


def _checked(name: str, value: str) -> int | bool | str:
    if name in _MINIMA:
        return _whole(name, value)
    if name in _SWITCHES:
        return True
    if name == "share_devices":
        if value not in _TRUTHS:
            raise UserError(f"--{_flag(name)}: '{value}' is neither true nor false")
        return _TRUTHS[value]
    if name in _FORMS and not re.fullmatch(_FORMS[name][0], value):
        raise UserError(f"--{_flag(name)}: '{value}' is not a valid {_FORMS[name][1]}")
    return value


def _take_range(request: Request, match: re.Match) -> Request:
    name, first, last = match[1], int(match[2]), int(match[3] or match[2])
    if request.name:
        before = f"{request.name}={request.first}:{request.last}"
        which = "give only one (a step adds its own: remove yours from --cmd or cmd.sh)"
        raise UserError(f"{match[0]}: a second range of jobs, after {before}; {which}")
    if first > last:
        raise UserError(
            f"{match[0]}: the range is empty; give the first and the last job, such as {name}=1:4"
        )
    if not first:
        raise UserError(f"{match[0]}: Grid Engine has no job 0; number the jobs from 1, with every runner")
    return replace(request, name=name, first=first, last=last)
