"""Run jobs through a scheduler: the implementation of utils/slurm.pl and utils/queue.pl.

On its host, utils/run.pl runs the job, so logs and status files are the same everywhere. The status file of a
job decides whether it succeeded; the runner queries the scheduler for jobs without a status file. As with
run.pl, the first failure ends the other jobs. A job that the scheduler asks to end (time limit, preemption)
and that reports that it can resume is submitted again.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.jobs.stop_request import TRY_AGAIN
from pyasr.cluster.runner.command_line import Request
from pyasr.cluster.runner.local_runner import SAME_FAILURE_S
from pyasr.cluster.runner.mpi import ROOT
from pyasr.cluster.runner.processes import Guard, ignore_stop, stop_later
from pyasr.cluster.runner.status import JobStatus, read_status, status_path, write_status
from pyasr.cluster.schedulers.ending import end_jobs
from pyasr.cluster.schedulers.scheduler import UNKNOWN, Fate, NotTaken, Scheduler, submit
from pyasr.liveness.heartbeat import heartbeat_dir, heartbeat_files, remove, touch

# and every variable whose name begins with PYASR_
_CARRIED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LC_ALL", "PYTHONUTF8")
_PAUSES_S = (5.0, 10.0, 20.0, 40.0)  # between attempts to submit, while the scheduler is unreachable
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 5.0  # between two checks for status files
_FIRST_QUESTION_S, _MAX_QUESTION_S = 2.0, 15.0  # between two queries to the scheduler
_AT_A_LIMIT = (signal.SIGTERM, signal.SIGKILL)  # what schedulers send to processes that exceed a limit
_END_QUESTION_S = 0.5  # between two queries about a job that is ending
_LATE_S = 10.0  # after this delay, a status file written on another host is visible here
_ENDING_S, _GUARD_S = 30.0, 1800.0  # grace period of cancelled jobs: while the user waits, and afterwards


class BatchRunner:
    """Runs the jobs of one request through a scheduler. `run()` returns their statuses in the order in which
    they ended."""

    def __init__(self, request: Request, scheduler: Scheduler):
        self.request, self.scheduler = request, scheduler
        self.begin = time.time()
        self.left: dict[int, str] = {}  # {running job: the scheduler's job number}
        self.numbers: list[str] = []
        self.number_of: dict[int, str] = {}  # {job: latest job number}
        self.over: dict[int, float] = {}  # {job: when the scheduler first reported it as ended}
        self.ended: list[JobStatus] = []
        files = {job: status_path(request.log_of(job)) for job in request.jobs}
        # {job: (directory, name)}
        self.status_files = {job: (str(path.parent), path.name) for job, path in files.items()}
        self.num_requeued: Counter[int] = Counter()  # {job: number of times}
        self.outlasting: list[str] = []  # numbers of jobs that were cancelled but may still run
        self.message: set[str] = set()
        self.question_s = _FIRST_QUESTION_S  # until the next query to the scheduler

    def plan(self) -> str:
        """The command and the script that `run` would submit."""
        return (
            f"{shlex.join(submission(self.request, self.scheduler, self.request.jobs))}\n\n"
            f"{script(self.request, self.scheduler)}"
        )

    def run(self) -> list[JobStatus]:
        """Submit the jobs and wait for them; the first failure cancels the remaining jobs."""
        self.request = replace(self.request, run_id=secrets.token_hex(8))
        self.guard = Guard(lambda numbers: end_jobs(self.scheduler, numbers, _GUARD_S))
        self._prepare()
        try:
            self._submit(self.request.jobs)
            self._wait()
        finally:
            self._stop_left()
        self.ended = list(map(self._with_reason, self.ended))
        return self.ended

    def _prepare(self) -> None:
        """Delete the files of an earlier run of the same jobs; create the directories and the script."""
        for job in self.request.jobs:
            self.request.log_of(job).parent.mkdir(parents=True, exist_ok=True)
            status_path(self.request.log_of(job)).unlink(missing_ok=True)
            self.request.log_of(job).unlink(missing_ok=True)
            output_of(self.request, job).unlink(missing_ok=True)
        script_path(self.request).parent.mkdir(parents=True, exist_ok=True)
        script_path(self.request).write_text(
            script(self.request, self.scheduler), encoding="utf-8", errors="surrogateescape"
        )

    def _submit(self, jobs: range) -> None:
        """Submit; retry after a pause if the scheduler is unreachable, because a failure here could end a run
        of several days."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return self._submit_once(jobs)
            except NotTaken as error:
                if pause_s is None:
                    raise UserError(
                        f"{error}; check whether {self.scheduler.name} is up, then run the same command again"
                    ) from None
                self._tell(f"{error}; trying again, up to {len(_PAUSES_S)} times")
                time.sleep(pause_s)

    def _submit_once(self, jobs: range) -> None:
        """Submit with stop signals deferred until the job number is known, because the jobs cannot be
        cancelled without it."""
        with stop_later():
            number = submit(self.scheduler, submission(self.request, self.scheduler, jobs))
            self.guard.hold(number)
            self.numbers.append(number)
            self.left |= dict.fromkeys(jobs, number)
            self.number_of |= dict.fromkeys(jobs, number)

    def _wait(self) -> None:
        wait_s, asked = _MIN_WAIT_S, time.monotonic()
        while self.left:
            if self._take_statuses():
                wait_s = _MIN_WAIT_S
            if self._has_failed():
                return self._take_same_failures()
            if time.monotonic() - asked > self.question_s:
                self.question_s = min(1.5 * self.question_s, _MAX_QUESTION_S)
                self._ask()
                asked, self.question_s = time.monotonic(), _FIRST_QUESTION_S if self.over else self.question_s
            time.sleep(wait_s)
            wait_s = min(1.2 * wait_s, _MAX_WAIT_S)

    def _take_same_failures(self) -> None:
        """Collect other jobs that fail at the same time, usually for the same reason."""
        time.sleep(SAME_FAILURE_S)
        found = [status for job in self.left if (status := self._status_of(job))]
        for status in found:
            if not status.stopped and status.status != TRY_AGAIN:
                self._end(status)

    def _has_failed(self) -> bool:
        return any(not status.ok for status in self.ended)

    def _take_statuses(self) -> bool:
        """Collect the available statuses; return whether there were any. The status of a job that was ended
        from outside counts only after the scheduler has reported the job as ended, because the scheduler may
        start the job again."""
        there = {
            directory: set(_listed(directory))
            for directory in {self.status_files[job][0] for job in self.left}
        }
        written = [job for job in self.left if self.status_files[job][1] in there[self.status_files[job][0]]]
        found = list(map(self._status_of, written))
        ended = sorted(
            (status for status in found if status and not status.stopped), key=lambda status: status.end
        )
        for status in ended:
            self._take(status)
        return bool(ended)

    def _status_of(self, job: int) -> JobStatus | None:
        """The status of a job of this run, or None. A job of an earlier, stopped run may end late and write
        one, too."""
        status = read_status(self.request.log_of(job))
        return status if status and status.run_id == self.request.run_id else None

    def _take(self, status: JobStatus) -> None:
        if status.status == TRY_AGAIN and self.num_requeued[status.job] < self.request.max_requeue:
            self._requeue(status.job)
        else:
            self._end(status)

    def _requeue(self, job: int) -> None:
        """Submit a job again and keep its log so far."""
        self.num_requeued[job] += 1
        log = self.request.log_of(job)
        kept = log.replace(
            log.with_name(f"{log.name.removesuffix('.log')}.requeued-{self.num_requeued[job]}.log")
        )
        status_path(log).unlink()
        self.over.pop(job, None)
        remove(self._heartbeats())
        count = f"time {self.num_requeued[job]} of at most {self.request.max_requeue}"
        self._tell(
            f"{self._name(job)} was asked to end, has saved its state and is submitted again, {count} (log "
            f"until then: {kept})"
        )
        self._submit(range(job, job + 1))

    def _end(self, status: JobStatus) -> None:
        self.left.pop(status.job)
        self.over.pop(status.job, None)
        self.ended.append(status)

    def _ask(self) -> None:
        """Query the scheduler for the remaining jobs."""
        for number in sorted(set(self.left.values())):
            jobs = {self._task(job): job for job, submitted in self.left.items() if submitted == number}
            heartbeats = self._heartbeats()
            fates = self.scheduler.fates(number, list(jobs))
            if fates is None:
                self._tell(f"{self.scheduler.name} does not answer; still waiting")
                continue
            if any(fates[task].waits for task in jobs if task in fates):
                remove(heartbeats)  # they precede the answer and belong to ranks that no longer run
            if any(fates[task].suspended for task in jobs if task in fates):
                self.question_s = _FIRST_QUESTION_S  # query again soon, before the ranks count as lost
                touch(heartbeats)
            for task, job in jobs.items():
                self._judge(job, fates.get(task, UNKNOWN))

    def _heartbeats(self) -> list[Path]:
        """The heartbeat files of the ranks; empty unless it is an MPI job."""
        return heartbeat_files(heartbeat_dir(self.request.spec)) if self.request.spec else []

    def _judge(self, job: int, fate: Fate) -> None:
        if fate.active:
            self.over.pop(job, None)
            if (
                reason := fate.reason
                or fate.suspended
                and f"is suspended, says {self.scheduler.name}; still waiting"
            ):
                self._tell(f"{self._name(job)} {reason}")
            return None
        status = self._status_of(job)
        if status and not status.stopped:
            return self._take(status)
        late_s = max(_LATE_S, self.scheduler.silent_s if fate.host_lost else 0.0)
        if status is None and time.monotonic() - self.over.setdefault(job, time.monotonic()) < late_s:
            return None
        self._end(self._lost(job, status, fate))

    def _lost(self, job: int, status: JobStatus | None, fate: Fate) -> JobStatus:
        """Write and return the status of a job that could not write its own, or was ended from outside."""
        reason = fate.reason or (
            f"it has ended, says {self.scheduler.name}, but has written no status: it was killed or "
            "could not start"
        )
        log, host = self.request.log_of(job), fate.host or "a host unknown"
        status = status or JobStatus(
            job, 1, None, False, host, self.begin, time.time(), 0.0, self.request.command_of(job)
        )
        status = replace(
            status,
            status=status.status or 1,
            stopped=False,
            reason=reason,
            host_lost=fate.host_lost,
            run_id=self.request.run_id,
        )
        if not log.exists() and output_of(self.request, job).exists():
            shutil.copyfile(output_of(self.request, job), log)
        write_status(log, status)
        return status

    def _with_reason(self, status: JobStatus) -> JobStatus:
        """The status, with the scheduler's reason if the job's command was killed over a limit but its run.pl
        was not. Not for ranks, which report themselves which of them was killed, and may continue."""
        if status.signal not in _AT_A_LIMIT or status.reason or self.request.num_ranks:
            return status
        fate = self._fate_at_end(status.job)
        if not fate.over_limit:
            return status
        status = replace(status, reason=fate.reason)
        write_status(self.request.log_of(status.job), status)
        return status

    def _fate_at_end(self, job: int) -> Fate:
        """The scheduler's report on a job that has written its status. The scheduler may report the end some
        seconds later."""
        task, end_s = self._task(job), time.monotonic() + _LATE_S
        while True:
            fate = (self.scheduler.fates(self.number_of[job], [task]) or {}).get(task, UNKNOWN)
            if not fate.active or time.monotonic() > end_s:
                return fate
            time.sleep(_END_QUESTION_S)

    def _task(self, job: int) -> int:
        """The number of the job's task within the submitted array; 0 for a single job."""
        return job if self.request.name else 0

    def _name(self, job: int) -> str:
        return f"job {job}" if self.request.name else "the job"

    def _tell(self, sentence: str) -> None:
        if sentence not in self.message:
            print(f"{Path(sys.argv[0]).name}: {sentence}", file=sys.stderr, flush=True)
            self.message.add(sentence)

    def _stop_left(self) -> None:
        """Cancel the remaining jobs, including jobs that will never start, and ignore further stop signals
        meanwhile. These jobs must not run at the same time as those of the same command run again; the guard
        ends jobs that take longer."""
        ignore_stop()
        if self.left or self._has_failed():
            self.outlasting = end_jobs(self.scheduler, self.numbers, _ENDING_S, self._tell)
        if self.outlasting:
            self._tell(
                f"cancelled jobs have not ended yet, according to {self.scheduler.name}: "
                f"{' '.join(self.outlasting)}; wait for their end before you run the same command again"
            )
        for number in set(self.numbers).difference(self.outlasting):
            self.guard.drop(number)


def _listed(directory: str) -> list[str]:
    """Names in a directory. Listing it also makes network file systems notice other hosts' files."""
    try:
        return os.listdir(directory)
    except OSError:
        return []  # harmless: the next check lists it again


def directory_of(request: Request) -> Path:
    """The directory of the script and its output: `exp/x/log/a.JOB.log` -> `exp/x/q`, as in Kaldi, and
    `exp/x/JOB/log/a.log` -> `exp/x/q`, because all jobs share one script."""
    parent = Path(
        *(part for part in Path(request.log).parent.parts if not request.name or request.name not in part)
    )
    return parent.with_name("q") if parent.name == "log" else parent / "q"


def script_path(request: Request) -> Path:
    """The script to submit."""
    log = Path(request.log).name
    name = log.replace(f".{request.name}", "") if request.name else log
    return directory_of(request) / (name.removesuffix(".log") + ".sh")


def output_of(request: Request, job: int) -> Path:
    """The file for the script's own output; it is not empty when a job cannot start."""
    return script_path(request).with_suffix(f".{job}.out" if request.name else ".out")


def submission(request: Request, scheduler: Scheduler, jobs: range) -> list[str]:
    """The command that submits these jobs."""
    script = str(script_path(request))
    return scheduler.submission(
        request, jobs, f"./{script}" if script.startswith("-") else script, _job_name(script_path(request))
    )


def _job_name(script: Path) -> str:
    """A job name that all schedulers accept."""
    name = re.sub(r"[^\w.-]", "_", script.stem, flags=re.ASCII)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def _gpu_options(request: Request) -> list[str]:
    """Options by which run.pl chooses and locks GPUs of its host; empty for ranks, which choose their own."""
    if not request.gpu:
        return []
    return ["--gpu", str(request.gpu), *(["--share-devices", "true"] if request.share_devices else [])]


def script(request: Request, scheduler: Scheduler) -> str:
    """The bash script that runs the job through run.pl on its host, in this directory and with the relevant
    part of this environment.

    It redirects its own output, because schedulers interpret some characters of a path: qsub `:` `,` `$`,
    sbatch `%` and backslashes.
    """
    carried = {
        name: value
        for name, value in sorted(os.environ.items())
        if name in _CARRIED or name.startswith("PYASR_")
    }
    options = ["--num-threads", str(request.num_threads)]
    options += ["--num-ranks", str(request.num_ranks)] if request.num_ranks else _gpu_options(request)
    options += ["--done-marker", request.done_marker] if request.done_marker else []
    options += ["--run-id", request.run_id] if request.run_id else []
    job = [f"{request.name}=${scheduler.task_variable}"] if request.name else []
    words = [
        *map(shlex.quote, [sys.executable, str(ROOT / "utils" / "run.pl"), *options]),
        *job,
        *map(shlex.quote, [request.log, *request.words]),
    ]
    lines = [
        "#!/bin/bash",
        f"# Made by {Path(sys.argv[0]).name} (pyasr).",
        "trap '' USR1 USR2  # run.pl handles warnings of an end",
    ]
    lines += [
        f"cd {shlex.quote(os.getcwd())} || exit 1",
        f"exec >>{_output_for_shell(request, scheduler)} 2>&1",
    ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in carried.items()]
    return "\n".join([*lines, f"exec {' '.join(words)}", ""])


def _output_for_shell(request: Request, scheduler: Scheduler) -> str:
    """`output_of` as a bash word, with the variable that contains the task number."""
    output = output_of(request, 0)
    if not request.name:
        return shlex.quote(str(output))
    begin = str(output).removesuffix(".0.out")
    return f"{shlex.quote(begin + '.')}${scheduler.task_variable}.out"
