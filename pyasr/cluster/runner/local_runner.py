"""Run jobs as processes of this machine: the implementation of utils/run.pl.

Each job is a process group with its own log (Kaldi's header and trailer) and status file. The numbers of
cores and GPUs limit the number of jobs that run at the same time. When one job fails, the others are stopped,
because the step as a whole has failed.

A scheduler sends SIGUSR1 to warn that it will end the job: the runner then asks its jobs to save their state
(`pyasr.base.jobs.stop_request`). When the runner itself is stopped, it asks the jobs that check for such
requests, and waits for them briefly.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from pyasr.base.files import durable
from pyasr.base.host.granted_gpus import granted_by_grid_engine
from pyasr.base.jobs.stop_request import SAVING_S, VARIABLE, watch_file
from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.gpus import GpuSlots, HeldGpu, environment_of
from pyasr.cluster.runner.job_template import Forked, JobTemplate, are_of_a_fork, begin
from pyasr.cluster.runner.mpi import for_ranks, launch_prefix
from pyasr.cluster.runner.processes import Guard, Stopped, ignore_stop, signal_group
from pyasr.cluster.runner.status import (
    NOT_PROVED,
    JobStatus,
    from_wait,
    read_status,
    status_path,
    write_status,
)
from pyasr.liveness.heartbeat import heartbeat_dir, heartbeat_files
from pyasr.liveness.rank_failures import failure_file

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_GRACE_S = 2.0
# jobs that fail within this time after the first failure count as failed, too, usually for the same reason
SAME_FAILURE_S = 0.5
_LONG_LINE = 100_000  # bytes; the kernel's limit on one word of a command is 131,071


@dataclass
class _Running:
    process: subprocess.Popen | Forked  # kept, because a deleted Popen object would reap its process
    job: int
    log: Path
    command: str
    gpus: list[HeldGpu]
    begin: float
    log_file: os.stat_result  # identity of the log file when the job started


class LocalRunner:
    """Runs the jobs of one request. `run()` returns their statuses in the order in which they ended."""

    def __init__(self, request: Request):
        self.request = request
        self.prefix = launch_prefix(request.num_ranks, request.num_threads) + " " if request.num_ranks else ""
        granted = {} if request.num_ranks else granted_by_grid_engine()  # ranks query this on their own hosts
        self.environment = {
            **os.environ,
            **granted,
            **{name: str(request.num_threads) for name in _THREAD_VARIABLES},
        }
        self.gpus = GpuSlots(request.gpu)
        self.waiting = list(request.jobs)
        self.running: dict[int, _Running] = {}
        self.ended: list[JobStatus] = []
        self.outlasting: list[str] = []

    def plan(self) -> str:
        """The commands that `run` would run."""
        return "\n".join(self.prefix + self.request.command_of(job) for job in self.request.jobs)

    def run(self) -> list[JobStatus]:
        """Run all jobs of the request; the numbers of cores and GPUs limit how many run at a time.

        After the first failure, no further job starts, and jobs that still run `SAME_FAILURE_S` seconds later
        are ended.
        """
        limit = self.gpus.hold(self._max_jobs(), self.request.log, self.request.share_devices)
        # after `hold`: if this runner is killed, the guard keeps the GPUs locked until it has ended the jobs
        self.guard = Guard()
        signal.signal(signal.SIGUSR1, self._ask_to_end)
        self.template = JobTemplate(self.environment, self.guard) if are_of_a_fork(self.request) else None
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < limit:
                    self._start(self.waiting.pop(0))
                if not self._collect().ok:
                    self._wait_while(lambda: bool(self.running), SAME_FAILURE_S, stopped=False)
                    break
        except Stopped:
            self._let_save()
            raise
        finally:
            self._stop_running()
            if self.template:
                self.template.close()
        return self.ended

    def _max_jobs(self) -> int:
        """The number of jobs whose threads the cores can run, unless the user gives a number."""
        for_cores = max(1, num_cores() // (self.request.num_threads * max(self.request.num_ranks, 1)))
        return min(self.request.max_jobs_run or for_cores, len(self.request.jobs))

    def _ask_to_end(self, number: int, frame) -> None:
        for run in self.running.values():
            stop_file(run.log).touch()

    def _let_save(self) -> None:
        """Ask the jobs that check for stop requests to save their state, and wait for their end; ignore
        further signals."""
        ignore_stop()
        saving = [run for run in self.running.values() if watch_file(stop_file(run.log)).exists()]
        for run in saving:
            stop_file(run.log).touch()
            print(
                f"{Path(sys.argv[0]).name}: {run.log}: saving its state, for at most {SAVING_S:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        self._wait_while(lambda: any(run.process.pid in self.running for run in saving), SAVING_S)

    def _enter(self) -> None:
        """Runs in a job's process before its command. Ignores a scheduler's warning signals, which may go to
        all processes of a job but are meant for the runner."""
        self.guard.enter()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)

    def _start(self, job: int) -> None:
        log, command = self.request.log_of(job), self.prefix + self.request.command_of(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        for left in self._left_before(log):
            left.unlink(missing_ok=True)
        with _text(log, "w") as f:
            f.write(f"# {command}\n# Started at {time.ctime()}\n# Running on {platform.node()}\n#\n")
        gpus = self.gpus.take()
        own = {**environment_of(gpus), VARIABLE: str(stop_file(log).absolute())}
        with _text(log, "a") as f:
            log_file = os.fstat(f.fileno())
            forked = self.template and self.template.fork(self.request.words_of(job), f.fileno(), own)
            process, go = forked or (self._process_of(command, f, own), None)
        self.running[process.pid] = _Running(process, job, log, command, gpus, time.time(), log_file)
        self.guard.hold(str(process.pid))
        if go is not None:
            begin(go)

    def _process_of(self, command: str, log: IO, own: dict[str, str]) -> subprocess.Popen:
        """Start the process of a job, with `own` added to its environment."""
        environment = {**self.environment, **own}
        environment |= for_ranks(environment) if self.request.num_ranks else {}
        with _script(command) as (line, files):
            return subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", line],
                stdin=subprocess.DEVNULL,
                stdout=log,
                pass_fds=files,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=self._enter,
            )

    def _left_before(self, log: Path) -> list[Path]:
        """Obsolete files of an earlier run of the same job: a scheduler may have started it before, possibly
        on another host."""
        spec, marker = self.request.spec, self.request.done_marker
        of_ranks = [failure_file(spec), *heartbeat_files(heartbeat_dir(spec))] if spec else []
        # a run that continues on another host must not find it: see _is_given_up
        of_before = [log] if self.request.run_id else []
        return [
            *of_before,
            status_path(log),
            stop_file(log),
            watch_file(stop_file(log)),
            *([Path(marker)] if marker else []),
            *of_ranks,
        ]

    def _collect(self) -> JobStatus:
        """Wait for the next job that ends, and write its status."""
        pid, wait_status, usage = os.wait4(-1, 0)
        while pid not in self.running:
            if pid == self.guard.pid:
                self.guard.replace()
            pid, wait_status, usage = os.wait4(-1, 0)
        return self._finish(pid, wait_status, usage, stopped=False)

    def _finish(self, pid: int, wait_status: int, usage, stopped: bool) -> JobStatus:
        run = self.running.pop(pid)
        run.process.returncode = os.waitstatus_to_exitcode(wait_status)
        signal_group(pid, signal.SIGKILL)  # processes that the job left in the background
        self.guard.drop(str(pid))
        (self.gpus.give_back if self.waiting else self.gpus.let_go)(run.gpus)
        status = replace(
            from_wait(run.job, wait_status, usage, run.begin, run.command, stopped),
            run_id=self.request.run_id,
        )
        if not self._is_given_up(run):
            for left in (stop_file(run.log), watch_file(stop_file(run.log))):
                left.unlink(missing_ok=True)
            status = self._put_down(self._with_its_file_free(self._proved(status, run.log), run.log), run.log)
        self.ended.append(status)
        return status

    def _put_down(self, status: JobStatus, log: Path) -> JobStatus:
        line_end = _missing_line_end(log)
        with _text(log, "a") as f:
            seconds = round(status.end - status.begin)
            f.write(f"{line_end}# Accounting: time={seconds} threads={self.request.num_threads}\n")
            f.write(f"# Ended (code {status.status}) at {time.ctime()}, elapsed time {seconds} seconds\n")
        write_status(log, status)
        return status

    def _is_given_up(self, run: _Running) -> bool:
        """Whether the waiting process, possibly on another host, has given the job up. Then the job's log is
        gone or belongs to another run of the command or to restarted ranks, or its status file already
        exists, as for a job whose host counts as lost."""
        if not (self.request.run_id or self.request.num_ranks):
            return False
        if not (run.log.exists() and os.path.samestat(run.log.stat(), run.log_file)):
            return True
        status = read_status(run.log)
        return status is not None and status.reason != "" and status.run_id == self.request.run_id

    def _proved(self, status: JobStatus, log: Path) -> JobStatus:
        """The status, or a failure if the done marker is missing."""
        marker = self.request.done_marker
        if not status.ok or not marker or Path(marker).exists():
            return status
        return self._failure(status, log, NOT_PROVED.format(marker=marker))

    def _with_its_file_free(self, status: JobStatus, log: Path) -> JobStatus:
        """The status, or a failure if the command itself has written a file with the name of the status file;
        that file is renamed."""
        file = status_path(log)
        if not file.exists() or read_status(log):
            return status
        kept = file.with_name(f"{file.name}.kept")
        durable.rename(file, kept)
        own = "the job's command has written this file, but it is the name of the job's status file"
        return self._failure(
            status, log, f"{file}: {own}; it was renamed to {kept}; give the log or the file another name"
        )

    def _failure(self, status: JobStatus, log: Path, sentence: str) -> JobStatus:
        with _text(log, "a") as f:
            f.write(f"error: {sentence}\n")
        return replace(status, status=status.status or 1)

    def _stop_running(self) -> None:
        """End all running jobs; ignore further signals."""
        ignore_stop()
        for pid in self.running:
            signal_group(pid, signal.SIGTERM)
        self._wait_while(lambda: bool(self.running), _GRACE_S)
        for pid in self.running:
            signal_group(pid, signal.SIGKILL)
        while self.running:
            self._collect_running(0)

    def _wait_while(self, there: Callable[[], bool], most_s: float, stopped: bool = True) -> None:
        deadline = time.monotonic() + most_s
        while there() and time.monotonic() < deadline:
            self._collect_running(os.WNOHANG, stopped)
            time.sleep(0.02)

    def _collect_running(self, flags: int, stopped: bool = True) -> None:
        for pid in list(self.running):
            found, wait_status, usage = os.wait4(pid, flags)
            if found:
                self._finish(pid, wait_status, usage, stopped)


def stop_file(log: Path) -> Path:
    """`x.3.log` -> `x.3.stop`; the file exists once the job has been asked to end."""
    return log.with_name(log.name.removesuffix(".log") + ".stop")


@contextlib.contextmanager
def _script(command: str) -> Iterator[tuple[str, list[int]]]:
    """(argument of `bash -c`, file descriptors to pass) that run `command`, which may exceed the kernel's
    limit on one argument."""
    text = os.fsencode(command)
    if len(text) < _LONG_LINE:
        yield command, []
        return
    with tempfile.TemporaryFile() as f:
        f.write(text)
        f.flush()
        yield f". /dev/fd/{f.fileno()}", [f.fileno()]


def _text(log: Path, mode: str):
    """Open a log so that bytes of a command that are not UTF-8 are written unchanged."""
    return log.open(mode, encoding="utf-8", errors="surrogateescape")


def _missing_line_end(log: Path) -> str:
    """The line break to write before the next line if the last line of the log, perhaps of a killed command,
    is incomplete."""
    with log.open("ab+") as f:
        f.seek(max(f.tell() - 1, 0))
        return "" if f.read(1) in (b"", b"\n") else "\n"


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
