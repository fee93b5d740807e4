"""Entry point of one rank of `run_ranks`: `python -m mpi4py -m pyasr.parallel.ranks.rank MODULE:FUNCTION
SPEC.json TIMEOUT_S SHARE NUM_RANKS`.

Every rank calls FUNCTION(spec, comm). When all have returned, rank 0 writes SPEC.done, which proves the job's
success, because mpiexec may exit with status 0 although a node was lost. An exception on one rank prints one
sentence with its rank and host and ends all ranks; otherwise they would wait in their next collective
forever. A rank that is stopped (SIGSTOP) for TIMEOUT_S seconds ends all ranks, too. SHARE, true or false,
says whether ranks may share a GPU. NUM_RANKS is the requested number of ranks.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli import options
from pyasr.base.cli.job_options import threads_of_job
from pyasr.base.errors import UserError
from pyasr.base.host.granted_gpus import granted_by_grid_engine
from pyasr.base.jobs.job import resolve
from pyasr.base.jobs.stop_request import TRY_AGAIN, StopRequested
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import as_user_error
from pyasr.liveness.heartbeat import heartbeat_dir
from pyasr.liveness.rank_failures import RankFailure, append_failure, failure_file, first_failure
from pyasr.liveness.rank_watchdog import RankWatchdog
from pyasr.parallel.communication.mpi_comm import MpiComm
from pyasr.parallel.ranks.devices import take_gpu

_OUTPUT_S = 0.2  # time for mpiexec to read the rank's output
_REPORT_S = 5.0  # time for the watchdog of a lost rank to report before the ranks that notice the loss do


def done_marker(spec: Path) -> Path:
    """The file that rank 0 writes after all ranks have succeeded."""
    return Path(spec).with_suffix(".done")


def log_of(spec: Path) -> Path:
    """`log/train.spec.json` -> `log/train.log`, the job's log."""
    return Path(spec).with_name(Path(spec).name.removesuffix(".spec.json") + ".log")


def set_threads() -> None:
    """Set torch's number of threads to that chosen by the runner; numpy and numba have read it from the
    environment at import."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads_of_job())


def run(name: str, spec: Path, comm: MpiComm, share_devices: bool, num_ranks: int) -> None:
    """Call the function on this rank, one of `num_ranks`; then rank 0 writes the done marker."""
    if comm.size != num_ranks:
        raise UserError(
            f"{num_ranks} ranks were started, but MPI sees {comm.size}: the mpiexec that started them does "
            "not belong to mpi4py's MPI; set PYASR_MPIEXEC to that MPI's mpiexec, or rebuild mpi4py "
            "(docs/install.md)"
        )
    os.environ.update(granted_by_grid_engine())
    function, work = resolve(name), options.load(spec)
    set_threads()
    take_gpu(comm, work, share_devices, log_of(spec))
    function(work, comm)
    comm.barrier()
    if comm.rank == 0:
        with atomic_write(done_marker(spec)) as f:
            f.write(f"{comm.size} ranks\n")


def main(argv: list[str]) -> None:
    """Run one rank of the job `argv` = [MODULE:FUNCTION, SPEC.json, TIMEOUT_S, SHARE, NUM_RANKS]; an
    exception ends all ranks."""
    name, spec = argv[0], Path(argv[1])
    try:
        watchdog = RankWatchdog(failure_file(spec), float(argv[2]), heartbeat_dir(spec))
    except OSError as error:
        sys.exit(f"error: {as_user_error(error)}")
    try:
        comm = MpiComm()
    except Exception:
        watchdog.disarm()
        raise
    log.setup(name.partition(":")[2] + (f"[{comm.rank}]" if comm.size > 1 else ""))
    try:
        watchdog.send_name(comm.name)
        run(name, spec, comm, argv[3] == "true", int(argv[4]))
    except StopRequested as stopped:
        _report_stop(comm, str(stopped))
        watchdog.disarm()
        comm.barrier()
        comm.abort(TRY_AGAIN)
    except BaseException as error:  # any error: the other ranks must not be left waiting
        sentence: Exception | str | None = as_user_error(error)
        if sentence is None:
            traceback.print_exception(type(error), error, error.__traceback__)
            sentence = _sentence(error)
        if lost := _is_mpi_error(error):
            _wait_for_report(failure_file(spec))
        _report_failure(comm, spec, str(sentence), lost)
        watchdog.disarm()
        comm.abort(1)
    watchdog.disarm()


def _report_stop(comm: MpiComm, position: str) -> None:
    """Report that the job stopped on request."""
    if comm.rank == 0:
        _print(f"error: stopped on request; {position}, run the same command to resume")
        time.sleep(_OUTPUT_S)


def _sentence(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the function called exit({error.code}) before all ranks were done"
    return f"{type(error).__name__}: {error}"


def _is_mpi_error(error: BaseException) -> bool:
    """Whether MPI raised the error, because of the loss of another rank or of the network."""
    return type(error).__module__.partition(".")[0] == "mpi4py"


def _wait_for_report(file: Path) -> None:
    """Wait for the message of the lost rank, which is more specific than this rank's; there is none if the
    network failed."""
    deadline = time.monotonic() + _REPORT_S
    while first_failure(file) is None and time.monotonic() < deadline:
        time.sleep(_OUTPUT_S)


def _report_failure(comm: MpiComm, spec: Path, sentence: str, lost: bool) -> None:
    """Write the sentence next to the spec and into the log, because an abort may discard output that has not
    reached the log."""
    sentence = f"{sentence} ({comm.name})"
    with contextlib.suppress(OSError):  # harmless: the sentence is in the log too, unless the disk is full
        append_failure(failure_file(spec), RankFailure(sentence, lost))
    sys.stderr.flush()
    _print(f"error: {sentence}")
    time.sleep(_OUTPUT_S)


def _print(line: str) -> None:
    """Print a line in one write, because mpiexec merges the ranks' output as it arrives."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
