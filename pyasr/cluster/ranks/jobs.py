"""Run the work of a step as `nj` jobs, or as the ranks of one MPI job, through the runner that --cmd names.

    run_jobs(options.jobs, out / "log/extract.JOB.log", "pyasr.feats.extraction.extract_dir:extract_shard",
             spec)  # function(spec, job)
    run_ranks(options.jobs, out / "log/train.log", "pyasr.train.objectives.rank_training:train_rank", spec,
              num_ranks=2)  # function(spec, comm)

`spec` is a frozen dataclass declared in the module of the function; it is saved as JSON next to the logs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pyasr.base.cli import options
from pyasr.base.cli.job_options import JobOptions, RankJobOptions, RunnerOptions
from pyasr.base.errors import UserError
from pyasr.base.files import durable
from pyasr.base.jobs.job import done_marker
from pyasr.base.jobs.parent import die_with_parent
from pyasr.base.log import warning
from pyasr.base.outputs.progress_note import VARIABLE as NOTE
from pyasr.base.system_errors import naming
from pyasr.cluster.ranks.rank_progress import rank_progress_text, showing_rank_progress
from pyasr.cluster.runner.command_line import protect
from pyasr.cluster.runner.failure_report import LATER, own_sentence, show_kept, take_refusal
from pyasr.cluster.runner.mpi import ROOT, find_mpiexec
from pyasr.cluster.runner.runner_words import name_of_runner, runner_command
from pyasr.cluster.runner.status import NOT_PROVED, JobStatus, failures, read_status, status_path
from pyasr.liveness.heartbeat import Silence
from pyasr.liveness.heartbeat_monitor import HeartbeatMonitor
from pyasr.liveness.rank_failures import RankFailure, failure_file, first_failure

__all__ = ["JobOptions", "RankLost", "Recovery", "run_jobs", "run_ranks"]
_LITTLE_DISK = 1 << 16  # bytes; a log and a status file need more than this


class RankLost(UserError):
    """Ranks were lost without an error of their own: killed, stopped, or with their host. `what`: which
    ranks; `num_ranks`: how many."""

    def __init__(self, sentence: str, what: str, num_ranks: int = 1):
        super().__init__(sentence)
        self.what, self.num_ranks = what, num_ranks


@dataclass(frozen=True)
class Recovery:
    """How to recover from the loss of ranks.

    options       the number of restarts, and the timeout after which a silent rank counts as lost
    usable        function from the number of remaining ranks to the largest number, not above it, with which
                  the job can continue; 0: none
    resume_point  function that returns where the job resumes: `from 1200 frames`
    """

    options: RankJobOptions = RankJobOptions(max_restarts=0)
    usable: Callable[[int], int] = lambda most: most
    resume_point: Callable[[], str] = lambda: "from the beginning"


def run_jobs(jobs: RunnerOptions, log: Path, function: str, spec, *, num_jobs: int | None = None) -> None:
    """Call `function(spec, job)` for job = 1..num_jobs (default: `jobs.nj` of `JobOptions`), each in its own
    process.

    The name of `log` contains JOB. Raises UserError when a job fails, with the job's own error message if it
    has one.
    """
    if not num_jobs:
        assert isinstance(jobs, JobOptions)
        num_jobs = jobs.nj
    if "JOB" not in Path(log).name:
        raise ValueError(f"{log}: no JOB in the name of the log")
    saved = _save_spec(log, spec)
    markers = [done_marker(saved, job) for job in range(1, num_jobs + 1)]
    program = [sys.executable, "-m", "pyasr.base.jobs.job", function, str(saved)]
    name = _unused_name([*program, str(Path(log).parent)])
    numbered = Path(log).with_name(Path(log).name.replace("JOB", name))
    logs = [Path(log).with_name(Path(log).name.replace("JOB", str(job))) for job in range(1, num_jobs + 1)]
    report = _report_file(saved)
    for left in (*markers, report, *map(status_path, logs)):
        left.unlink(missing_ok=True)
    if not _run(jobs, [f"{name}=1:{num_jobs}"], numbered, [*program, name], report):
        refusal = take_refusal(report)
        show_kept(report)
        raise UserError(refusal or _what_failed(logs))
    _check_markers(jobs, markers)


def run_ranks(
    jobs: RunnerOptions,
    log: Path,
    function: str,
    spec,
    num_ranks: int,
    recovery: Recovery = Recovery(),
    progress: Callable[[], str | None] | None = None,
) -> None:
    """Call `function(spec, comm)` on `num_ranks` MPI ranks. Raises UserError when one of them fails.

    Reports progress while the ranks work (`pyasr.cluster.ranks.rank_progress`): the text that `progress`
    returns, else the ranks' own notes.

    If `recovery` allows it, a job that has lost ranks is started again with the largest usable number of
    ranks up to the number of remaining ranks, or with the same number if no number is usable or all ranks
    were lost. A function that keeps checkpoints then resumes from the last one. An error that a rank has
    raised would occur again, and ends the job.
    """
    runner_command(jobs.cmd)
    find_mpiexec(within_slurm=name_of_runner(jobs.cmd) == "slurm.pl")
    most, note = recovery.options.max_restarts, _note_file(_spec_of(log))
    for restart in count(1):
        try:
            with showing_rank_progress(progress or (lambda: rank_progress_text(note, Path(log)))):
                return _run_ranks_once(jobs, Path(log), function, spec, num_ranks, recovery.options)
        except UserError as lost:
            if not isinstance(lost, RankLost) or restart > most:
                show_kept(_report_file(_spec_of(log)))
                raise
            left = max(num_ranks - lost.num_ranks, 0) or num_ranks
            num_ranks = recovery.usable(left) or num_ranks
            kept = _kept_log(Path(log), Path(log).with_suffix(f".{restart}.log"))
            continuing = "1 rank continues" if num_ranks == 1 else f"{num_ranks} ranks continue"
            where = f"{continuing} {recovery.resume_point()}"
            warning(f"{lost.what}; {where}, restart {restart} of at most {most}{kept}")


def _kept_log(log: Path, kept: Path) -> str:
    """Rename the log of a job that restarts; return a note for the user, "" if the job never started because
    its host was lost."""
    if not log.exists():
        return ""
    durable.rename(log, kept)
    return f" (log until then: {kept})"


def _run_ranks_once(
    jobs: RunnerOptions, log: Path, function: str, spec, num_ranks: int, how: RankJobOptions
) -> None:
    saved = _save_spec(log, spec)
    marker, failures_of_ranks, report = saved.with_suffix(".done"), failure_file(saved), _report_file(saved)
    monitor = HeartbeatMonitor(saved, num_ranks, how.rank_timeout)
    for left in (failures_of_ranks, marker, status_path(log), report):
        left.unlink(missing_ok=True)
    settings = [str(how.rank_timeout), "true" if how.share_devices else "false", str(num_ranks)]
    program = [
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "pyasr.parallel.ranks.rank",
        function,
        str(saved),
        *settings,
    ]
    try:
        options_of_ranks = ["--num-ranks", str(num_ranks), "--done-marker", str(marker)]
        options_of_ranks += ["--share-devices", "true"] if how.share_devices else []
        if _run(
            jobs, options_of_ranks, log, program, report, monitor.watching, {NOTE: str(_note_file(saved))}
        ):
            return _check_markers(jobs, [marker])
    finally:
        monitor.remove_heartbeats()
        _note_file(saved).unlink(missing_ok=True)
    if refusal := take_refusal(report):
        raise UserError(refusal)
    raise _failure(log, monitor.silence, first_failure(failures_of_ranks), marker)


def _note_file(spec: Path) -> Path:
    """The file in which the ranks with this spec note their progress."""
    return spec.with_name(spec.name.removesuffix(".spec.json") + ".progress")


def _report_file(spec: Path) -> Path:
    """The file for the runner's report on the jobs with this spec; it is shown unless the jobs restart."""
    return spec.with_name(spec.name.removesuffix(".spec.json") + ".report")


def _failure(log: Path, silence: Silence | None, failure: RankFailure | None, marker: Path) -> UserError:
    """The error for an MPI job that has failed. A rank that is lost before it starts, or with its host,
    leaves no message."""
    if silence:
        return RankLost(
            f"its job was ended: {silence.sentence} (log: {log})", silence.sentence, silence.num_ranks
        )
    status = read_status(log)
    reason = status.reason if status and status.reason else failure.sentence if failure else None
    sentence = _what_failed([log], reason)
    is_silent = failure is None and own_sentence(log) in (None, NOT_PROVED.format(marker=marker))
    if (
        status is None
        or status.stopped
        or not (status.host_lost if status.reason else is_silent or failure and failure.lost)
    ):
        return UserError(sentence)
    what = failure.sentence if failure else "a rank was lost; it is unknown which"
    # the messages may be those of ranks that ended because a host was lost
    return RankLost(sentence, status.reason or what)


def _spec_of(log: Path) -> Path:
    """`log/extract.JOB.log` -> `log/extract.spec.json`."""
    log = Path(log)
    return log.with_name(log.name.replace(".JOB", "").removesuffix(".log") + ".spec.json")


def _save_spec(log: Path, spec) -> Path:
    """Save the spec of the jobs of this log; return its path."""
    path = _spec_of(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    options.save(path, spec)
    return path


def _unused_name(program: list[str]) -> str:
    """A placeholder of the job number that occurs in no word of `program` (a path may contain "JOB")."""
    name = "JOB"
    while any(name in word for word in program):
        name += "X"
    return name


def _run(
    jobs: RunnerOptions,
    arguments: list[str],
    log: Path,
    program: list[str],
    report: Path,
    meanwhile=contextlib.nullcontext,
    more: dict[str, str] | None = None,
) -> bool:
    """Start the runner with `more` added to its environment, and wait in the context `meanwhile(its
    process)`; return whether all jobs succeeded. The runner writes failures to the file `report`."""
    threads = ["--num-threads", str(jobs.num_threads)] if jobs.num_threads else []
    command = [*runner_command(jobs.cmd), *threads, *arguments, str(log), *map(protect, program)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYASR_STEP": Path(sys.argv[0]).name,
        LATER: str(report),
        **(more or {}),
    }
    with naming(jobs.cmd):
        started = subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)
    with started as process, meanwhile(process):
        try:
            status = process.wait()
        except BaseException:  # interrupted: the jobs must not continue without it
            process.terminate()
            process.wait()
            raise
    return status == 0


def _check_markers(jobs: RunnerOptions, markers: list[Path]) -> None:
    """Remove the done markers of the jobs. Raises UserError if one is missing: a runner may exit with status
    0 without running the jobs."""
    # also makes network file systems notice files that other hosts have written
    there = os.listdir(markers[0].parent)
    if missing := [marker for marker in markers if marker.name not in there]:
        raise UserError(
            f"--cmd '{jobs.cmd}' ended with status 0 but has not run the work ({missing[0]} is missing): "
            "there is no output; use run.pl, slurm.pl or queue.pl, without --dry-run"
        )
    for marker in markers:
        marker.unlink()


def _what_failed(logs: list[Path], reason: str | None = None) -> str:
    """One sentence that names the first failed job and the number of failed jobs."""
    failed = failures(logs)
    if not failed:
        return _without_status(logs[0])
    log, status = failed[0]
    reasons = [reason or _reason(*one) for one in failed]
    which = f"job {status.job} of {len(logs)} failed" if len(logs) > 1 else "its job failed"
    if len(failed) > 1:
        which = f"{len(failed)} of {len(logs)} jobs failed" + (
            f", job {status.job} first" if len(set(reasons)) > 1 else ""
        )
    return f"{which}: {reasons[0]} (log: {log})"


def _reason(log: Path, status: JobStatus) -> str:
    """The reason of a job's failure."""
    return status.reason or own_sentence(log) or status.how()


def _without_status(log: Path) -> str:
    """The error message for jobs without a status file."""
    if shutil.disk_usage(log.parent).free < _LITTLE_DISK:
        return f"{log.parent}: the disk is full; free some space and run the same command again"
    return f"the jobs could not be run, see above{f' and {log}' if log.exists() else ''}"
