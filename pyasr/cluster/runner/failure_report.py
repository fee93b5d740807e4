"""The failure report for the user: the first failed job, the end of its log, a likely cause and the command
that repeats the job."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import printable_lines
from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.status import JobStatus
from pyasr.liveness.rank_failures import first as first_words
from pyasr.liveness.rank_failures import words_of

STAGE = "PYASR_STAGE"  # environment variable with the recipe's stage (utils/recipe.sh)
LATER = "PYASR_REPORT"  # environment variable with the file for a report that may not be needed
_REFUSAL = "refused: "  # prefix of a report file if no job was run
_RAISED = r"[\w.]*(Error|Exception|Warning)(: |$)"
_BANNER = (
    r"=|\s*$|YOUR APPLICATION TERMINATED WITH|This typically refers to a problem|Please see the FAQ page"
)
_TAIL_LINES = 15
_TAIL_BYTES = 16384

HINTS = [
    (
        r"CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        (
            "GPU memory ran out: use a smaller minibatch, or check with nvidia-smi which other processes use "
            "the GPU"
        ),
    ),
    (
        r"No space left on device|[Tt]he disk is full|Disk quota exceeded",
        "the disk is full: free some space (df -h .) and run the same command again",
    ),
    (r"MemoryError|Cannot allocate memory|bad_alloc|DefaultCPUAllocator", "memory ran out: {fewer_jobs}"),
    (r"[Bb]us error|SIGBUS", "usually /dev/shm is too small for MPI (df -h /dev/shm): give it 64 MB or more"),
    (
        r"[Ii]llegal instruction|SIGILL",
        (
            "a library uses an instruction that this processor lacks: install the library's version for this "
            "processor"
        ),
    ),
    (
        r"No module named",
        "a library is missing: source path.sh, which installs requirements.txt, before the recipe",
    ),
    (r"Too many open files", "the limit on open files is too low: run 'ulimit -n 4096' before the recipe"),
    (
        r"mpiexec is missing|mpiexec: (command )?not found",
        "MPI is not installed: utils/check_install.py says how",
    ),
    (
        r"nvidia-smi|CUDA error|no CUDA-capable device",
        "the GPU could not be used: check whether nvidia-smi lists it, or run on the CPU",
    ),
    (
        (
            r"(?i)licen[cs]e[^.\n]{0,40}(missing|not found|expired|invalid|refused|denied)|\bno (valid "
            r")?licen[cs]e|licen[cs]e (server|check)"
        ),
        (
            "a program found no valid licence: install its licence, or check that its licence server answers "
            "(see its documentation)"
        ),
    ),
    (
        r"Killed \(signal 9\)|exited on signal 9",
        "a rank was killed from outside, usually because memory ran out: {fewer_ranks}",
    ),
    (
        r"FileNotFoundError|[Nn]o such file or directory",
        "an input is missing: check whether the previous stage has written it",
    ),
    (r"command not found", "a program is not on PATH: was path.sh sourced?"),
    (
        r"[Pp]ermission denied",
        "no permission to read, write or run a file: check its owner and mode with ls -l",
    ),
    (
        r"application called MPI_Abort|MPI_ABORT was invoked",
        "one rank has ended all of them by MPI_Abort: its reason is above this message in the log",
    ),
    (
        r"BAD TERMINATION|exited on signal",
        "a rank crashed in a library or was ended from outside: the cause is above this message in the log",
    ),
]
_KILLED = (
    "it was killed from outside, usually because memory ran out (its peak was {mb:.0f} MB): {fewer_jobs}"
)
HERE = {
    "fewer_jobs": "run fewer jobs at a time (--cmd 'run.pl --max-jobs-run 1'), see also 'dmesg'",
    "fewer_ranks": "run fewer ranks or lower --max-store-mb, see also 'dmesg'",
}
# a scheduler limits each job
ELSEWHERE = dict.fromkeys(HERE, "ask for more with --mem, in --cmd or its configuration")


def log_tail(log: Path) -> list[str]:
    """The last lines of a log, without its header and trailer."""
    try:
        with log.open("rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - _TAIL_BYTES))
            text = f.read().decode("utf-8", "replace")
    except OSError as error:
        return [f"({log} cannot be read: {error.strerror})"]
    lines = [line.rstrip() for line in text.splitlines() if not re.match(r"#( |$)", line)]
    return lines[-_TAIL_LINES:]


def hint(text: str, status: JobStatus, more_memory: dict[str, str] = HERE) -> str | None:
    """The likely cause of a failure, as a sentence, from the end of its log, `text`; None if the cause is
    unknown.

    `more_memory`: advice on how to give a job more memory, `HERE` or `ELSEWHERE`.
    """
    for pattern, sentence in HINTS:
        if re.search(pattern, text):
            return sentence.format(**more_memory)
    return _KILLED.format(mb=status.peak_memory_mb, **more_memory) if status.signal == 9 else None


def own_sentence(log: Path) -> str | None:
    """The error that the job itself printed: `error: SENTENCE`, or the last line of an exception."""
    raised = [line for line in log_tail(Path(log)) if re.match(_RAISED, line)]
    return own_error(log) or (raised[-1] if raised else None)


def own_error(log: Path) -> str | None:
    """The last `error: SENTENCE` in a job's log; None if there is none."""
    found = [line for line in log_tail(Path(log)) if re.match(r"(\S+: )?error: ", line)]
    return found[-1].partition("error: ")[2] if found else None


def again(request: Request, job: int) -> str:
    """The command that repeats one job."""
    number = [f"{request.name}={job}"] if request.name else []
    return shlex.join([sys.argv[0], *request.typed, *number, request.log, *request.words])


def tell(report: str, later: str | None) -> None:
    """Print a report, or write it to the file `later` for the waiting step."""
    if later:
        with contextlib.suppress(OSError):  # the disk is full: print it instead
            Path(later).write_text(report, encoding="utf-8")
            return
    print(report, file=sys.stderr)


def refuse(sentence: str, later: str | None) -> None:
    """Report why a runner runs no jobs, to the waiting step if there is one."""
    runner = Path(sys.argv[0]).name
    tell(f"{_REFUSAL}{runner}: {sentence}" if later else f"{runner}: error: {sentence}", later)


def take_refusal(report: Path) -> str | None:
    """Why a runner ran no jobs, from its report file, which is deleted; None if it is about failed jobs."""
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    if not text.startswith(_REFUSAL):
        return None
    report.unlink()
    return text.removeprefix(_REFUSAL)


def show_kept(report: Path) -> None:
    """Print the report file of a runner if it exists."""
    if report.exists():
        print(report.read_text(encoding="utf-8"), file=sys.stderr, flush=True)
        report.unlink()


def failure_report(request: Request, failed: list[JobStatus], for_step: bool = False) -> str:
    """The report on failed jobs, in the order in which they ended, with control characters of logs and names
    removed.

    for_step  omit the stage, the step and the job's error message, which the step prints itself
    """
    first, which = failed[0], failed[0].job
    log = request.log_of(which)
    tail = (log_tail(log) or ["(no output)"]) if log.exists() else ["(not started)"]
    cause = hint("\n".join(tail), first, ELSEWHERE if request.run_id else HERE)
    head = f"{Path(sys.argv[0]).name}: {len(failed)} / {len(request.jobs)} failed, log is in {request.log}"
    after = f"(after {first.end - first.begin:.1f} s)"
    if for_step:
        says_all = _is_reported_by_step(request, first, log)
        lines = [f"{head}; job {which} on {first.host} {after}", *([] if says_all else _untold(tail))]
    else:
        says_all = first.reason != ""
        lines = [
            head,
            *_around(),
            f"  job    {which} on {first.host}: {first.how()} {after}",
            f"  log    {log}, its last lines:",
        ]
        lines += map(_quoted, tail)
    lines += [] if says_all or not cause else [f"  hint   {cause}"]
    lines += [f"  again  {again(replace(request, log=str(log)), which)}"]
    return printable_lines("\n".join(lines))


def _around() -> list[str]:
    """Lines with the stage and the step that called the runner."""
    around = {"stage": os.environ.get(STAGE), "step": os.environ.get("PYASR_STEP")}
    return [f"  {name:6} {value}" for name, value in around.items() if value]


def _quoted(line: str) -> str:
    return f"    | {line}"


def _is_reported_by_step(request: Request, status: JobStatus, log: Path) -> bool:
    """Whether the step's own message on a failed job is complete."""
    words = first_words(words_of(request.spec)) if request.spec else None
    if words and not status.reason:
        return not words.lost
    return bool(status.reason or own_error(log))


def _untold(tail: list[str]) -> list[str]:
    """The last lines of a log, without the exception, which the step prints, and without MPICH's banner."""
    return [_quoted(line) for line in tail if not re.match(rf"{_RAISED}|{_BANNER}", line)]
