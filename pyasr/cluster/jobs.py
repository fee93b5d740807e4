"""How a step runs its work: as `nj` jobs, or as the ranks of one MPI job, through the runner that --cmd names.

    run_jobs(options.jobs, out / "log/extract.JOB.log", "pyasr.feats.extract:extract_shard", spec)    # function(spec, job)
    run_ranks(options.jobs, out / "log/train.log", "pyasr.train.dnn:train_rank", spec, num_ranks=2)   # function(spec, comm)

`spec` is a frozen dataclass declared beside the function; it is kept beside the logs as JSON.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from pyasr.base import options
from pyasr.base.errors import UserError
from pyasr.base.job_options import JobOptions
from pyasr.cluster.command_line import protect
from pyasr.cluster.mpi import ROOT, find_mpiexec
from pyasr.cluster.processes import die_with_parent
from pyasr.cluster.report import own_sentence
from pyasr.cluster.status import read_status

__all__ = ["JobOptions", "run_jobs", "run_ranks"]
_LITTLE_DISK = 1 << 16  # bytes: less is not enough for a log and a status


def run_jobs(jobs: JobOptions, log: Path, function: str, spec, *, num_jobs: int | None = None) -> None:
    """Call `function(spec, job)` for job = 1..num_jobs (`jobs.nj` unless given), each in a process of its own.

    `log` holds JOB in its name. Raises UserError when a job fails: with the job's own sentence if it gave one.
    """
    num_jobs = num_jobs or jobs.nj
    if "JOB" not in Path(log).name:
        raise ValueError(f"{log}: no JOB in the name of the log")
    words = [sys.executable, "-m", "pyasr.base.job", function, str(_save_spec(log, spec))]
    name = _unused_name([*words, str(Path(log).parent)])
    numbered = Path(log).with_name(Path(log).name.replace("JOB", name))
    logs = [Path(log).with_name(Path(log).name.replace("JOB", str(job))) for job in range(1, num_jobs + 1)]
    _run(jobs, [f"{name}=1:{num_jobs}"], numbered, [*words, name], logs)


def run_ranks(jobs: JobOptions, log: Path, function: str, spec, num_ranks: int) -> None:
    """Call `function(spec, comm)` on `num_ranks` MPI ranks. Raises UserError when one of them fails."""
    find_mpiexec()
    saved = _save_spec(log, spec)
    marker, said = saved.with_suffix(".done"), saved.with_suffix(".error")
    said.unlink(missing_ok=True)
    words = [sys.executable, "-m", "mpi4py", "-m", "pyasr.parallel.rank", function, str(saved)]
    _run(jobs, ["--num-ranks", str(num_ranks), "--done-marker", str(marker)], Path(log), words, [Path(log)], said)
    marker.unlink(missing_ok=True)


def _save_spec(log: Path, spec) -> Path:
    """`log/extract.JOB.log` -> `log/extract.spec.json`."""
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    path = log.with_name(log.name.replace(".JOB", "").removesuffix(".log") + ".spec.json")
    options.save(path, spec)
    return path


def _unused_name(words: list[str]) -> str:
    """A word to stand for the job's number that occurs in none of `words` (a path may well hold "JOB")."""
    name = "JOB"
    while any(name in word for word in words):
        name += "X"
    return name


def _runner(cmd: str) -> list[str]:
    """The words of --cmd, its program found: ours in utils/, else on PATH."""
    name, *rest = shlex.split(cmd) or [""]
    own = ROOT / "utils" / name
    if name and "/" not in name and own.is_file():
        return [sys.executable, str(own), *rest]
    found = shutil.which(name) if name else None
    if found is None:
        raise UserError(f"--cmd '{cmd}': there is no program '{name}'; give run.pl, or a runner on PATH")
    return [found, *rest]


def _run(jobs: JobOptions, arguments: list[str], log: Path, words: list[str], logs: list[Path], said: Path | None = None) -> None:
    command = [*_runner(jobs.cmd), "--num-threads", str(jobs.num_threads), *arguments, str(log), *map(protect, words)]
    environment = {**os.environ, "PYTHONPATH": _python_path(), "PYASR_STEP": Path(sys.argv[0]).name}
    with subprocess.Popen(command, env=environment, preexec_fn=die_with_parent) as process:
        try:
            status = process.wait()
        except BaseException:  # interrupted: the jobs must not go on alone
            process.terminate()
            process.wait()
            raise
    if status:
        raise UserError(_what_failed(logs, _first_line(said)))


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def _first_line(path: Path | None) -> str | None:
    """What the first failing rank has said, if it could."""
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
    return lines[0] if lines else None


def _what_failed(logs: list[Path], said: str | None) -> str:
    """One sentence on the job that failed first."""
    ended = [(status.end, log, status) for log in logs if (status := read_status(log)) and not status.ok and not status.stopped]
    if not ended:
        return _without_status(logs[0])
    _, log, status = min(ended, key=lambda item: item[0])
    which = f"job {status.job} of {len(logs)} failed" if len(logs) > 1 else "its job failed"
    return f"{which}: {said or own_sentence(log) or status.how()} (log: {log})"


def _without_status(log: Path) -> str:
    """The sentence for jobs of which nothing was put down."""
    if shutil.disk_usage(log.parent).free < _LITTLE_DISK:
        return f"{log.parent}: the disk is full; free some space and run the same command again"
    return f"the jobs could not be run, see above and {log}"
