"""Run programs of the toolkit with a failing system call.

A program runs in a fork of a process that has already imported its libraries, so that a run takes little more
than its own work, and calls are counted from its own beginning. strace (Debian's package) attaches to the
stopped fork and follows its threads and jobs:

    strace -f -p PID -e inject=rename:error=EIO:when=3      the third rename of each process and thread fails

The jobs of a step are also forks, instead of processes of run.pl; a job with ranks has one rank, with its own
MPI and watchdog.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.jobs import job
from pyasr.cluster.ranks import jobs
from pyasr.cluster.runner.status import from_wait, write_status
from pyasr.parallel.ranks import rank

ROOT = Path(__file__).resolve().parents[2]
MAX_S = 300.0
_LIBRARIES = ("pyasr", "numpy", "scipy", "torch", "numba", "kaldiio", "soundfile", "mpi4py")
_LINE = re.compile(r"^(?:(\d+) +)?(\w+)\((.*)$")
_ELSEWHERE = re.compile(
    r'["<]/(proc|sys|usr|lib|lib64|etc|dev/shm|run)\b|/\.venv/|\.pyc?"'
    r"|anon_inode|pipe:|socket:|/dev/null|/__pycache__"
)


@dataclass(frozen=True)
class Call:
    """The `number`-th call of `name` in a process, counted from 1."""

    name: str
    number: int


@dataclass(frozen=True)
class Ended:
    """Exit status and output of a run, and the system calls that were recorded."""

    status: int
    said: str
    calls: list[Call]


def check_strace() -> None:
    """Raise UserError if strace is missing, or may not trace processes."""
    if not shutil.which("strace"):
        raise UserError("strace is missing; install it (apt-get install strace)")
    if subprocess.run(
        ["strace", "-o", os.devnull, "-e", "trace=none", "true"], capture_output=True
    ).returncode:
        raise UserError("strace is not permitted to trace processes; allow ptrace")


class Ground:
    """The directory `place`, in which programs run; `scratch` contains their output and that of strace."""

    def __init__(self, place: Path, scratch: Path):
        self.place = place
        self.said = scratch / "said"
        self.trace = scratch / "trace"
        self.modules = scratch / "modules"

    def run(self, words: list[str], tracing: list[str] | None = None) -> Ended:
        """Run a program of steps/, utils/ or egs/, given by its command line, with these options of
        strace."""
        gc.collect()
        pid = os.fork()
        if pid == 0:
            self._be(words, stop=tracing is not None)
        following = self._attach(pid, tracing) if tracing is not None else None
        status = _status_of(pid)
        if following:
            following.wait()
        calls = own_calls(self.trace.read_text("utf-8", "replace")) if following else []
        return Ended(status, self.said.read_text("utf-8", "replace"), calls)

    def warm(self) -> None:
        """Import the modules that programs have imported so far."""
        for name in self.modules.read_text("utf-8").split():
            # MPI does not survive a fork
            if name.split(".")[0] in _LIBRARIES and name != "mpi4py.MPI" and name not in sys.modules:
                # harmless: some modules of a library cannot be imported separately
                with contextlib.suppress(Exception):
                    __import__(name)

    def _attach(self, pid: int, tracing: list[str]) -> subprocess.Popen:
        os.waitpid(pid, os.WUNTRACED)
        command = ["strace", "-f", "-q", "-y", "-s", "200", "-o", str(self.trace), "-p", str(pid), *tracing]
        following = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _wait_until(
            lambda: (
                "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text("utf-8")
                or following.poll() is not None
            ),
            MAX_S,
        )
        os.kill(pid, signal.SIGCONT)
        return following

    def _be(self, words: list[str], stop: bool) -> None:
        """Run the program in the fork."""
        os.setpgid(0, 0)
        _print_to(self.said, os.O_TRUNC)
        os.chdir(self.place)
        jobs._run = run_in_forks
        sys.argv = [str(ROOT / words[0]), *words[1:]]
        program = compile(Path(sys.argv[0]).read_text("utf-8"), sys.argv[0], "exec")
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        module.__file__ = sys.argv[0]
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        status = _ended(lambda: exec(program, vars(module)))
        if not stop:
            _note_modules(self.modules)
        os._exit(status)


def run_in_forks(
    jobs, arguments: list[str], log: Path, program: list[str], report: Path, meanwhile=None, more=None
) -> bool:
    """Replacement of `pyasr.cluster.ranks.jobs._run`: run the jobs of a request one by one in forks of this
    process, without a report."""
    name, _, last = arguments[0].partition("=1:") if "=1:" in arguments[0] else ("", "", "1")
    for number in range(1, int(last) + 1):
        own_log = Path(str(log).replace(name, str(number))) if name else Path(log)
        begin, pid = time.time(), os.fork()
        if pid == 0:
            _print_to(own_log, os.O_TRUNC)
            os.environ.update(more or {})
            os._exit(
                _ended(
                    lambda: (
                        job.main([*program[3:5], str(number)]) if name else rank.main([*program[5:-1], "1"])
                    )
                )
            )
        _, wait_status, usage = os.wait4(pid, 0)
        write_status(
            own_log, from_wait(number if name else 1, wait_status, usage, begin, " ".join(program), False)
        )
        if wait_status:
            return False
    return True


def _ended(main: Callable) -> int:
    """The exit status of a program; exceptions are printed as by the interpreter."""
    try:
        status = main()
        status = status if isinstance(status, int) else 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 120  # as with the interpreter
    return status


def _print_to(path: Path, flags: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags, 0o666)
    for stream in (1, 2):
        os.dup2(opened, stream)
    os.close(opened)
    for name, stream in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(stream, "w", encoding="utf-8", closefd=False, buffering=1))


def _note_modules(path: Path) -> None:
    with path.open("a", encoding="utf-8") as f:
        f.write("\n".join(sys.modules) + "\n")


def _status_of(pid: int) -> int:
    """The exit status of a fork; its process group is killed if it does not end in MAX_S."""
    ended: list[int] = []

    def look() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        ended.extend([os.waitstatus_to_exitcode(status)] * bool(found))
        return bool(found)

    if not _wait_until(look, MAX_S):
        os.killpg(pid, signal.SIGKILL)
        _wait_until(look, MAX_S)
    return ended[0]


def _wait_until(condition: Callable[[], bool], most_s: float) -> bool:
    """Whether the condition became true in time."""
    end_s = time.monotonic() + most_s
    while not (met := condition()) and time.monotonic() < end_s:
        time.sleep(0.005)
    return met


def own_calls(trace: str) -> list[Call]:
    """Calls in a trace of `strace -f`, in order, without those on pipes, sockets, and files of Python and the
    system."""
    counts: dict[tuple[str, str], int] = {}
    found = []
    for line in trace.splitlines():
        if not (match := _LINE.match(line)):
            continue
        pid, name, rest = match.groups()
        number = counts[pid, name] = counts.get((pid, name), 0) + 1
        if not _ELSEWHERE.search(rest):
            found.append(Call(name, number))
    return found
