"""How a training step runs: its output directory, in which an interrupted training goes on, and the one MPI job of its ranks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import RankJobOptions
from pyasr.base.cli.options import group, option
from pyasr.base.cli.step import output_of
from pyasr.base.files.places import remove_tree
from pyasr.cluster.ranks.jobs import Recovery, run_ranks
from pyasr.parallel.strategies import check_ranks, usable_ranks
from pyasr.train.job.checkpoint_index import DIRECTORY, INDEX, MODELS, last_place, remove_checkpoints
from pyasr.train.job.progress import METRICS_FILE
from pyasr.train.job.progress_bar import progress_bar, progress_line

_NEEDED_IN_TRAINING = (DIRECTORY, MODELS, "*.npz", "*.npz.*", "*.npy")  # what is prepared for ranks are arrays; none of these is a result


@dataclass(frozen=True)
class OnRanks:
    """Of every step that trains on MPI ranks."""

    num_ranks: int = option(2, "MPI ranks", minimum=1)
    jobs: RankJobOptions = group(RankJobOptions)


@contextlib.contextmanager
def training_output(step, inputs: list[Path], parts: str = "", check: Callable[[], None] | None = None) -> Iterator[Path]:
    """The output directory of a training step, by its `out`, `num_ranks` and options, for a `with` block that does the work.

    inputs  files whose change makes the model out of date
    parts   pattern of directories, such as `rbm*/`, if there are several trainings, one after the other, each in one of its own
    check   as of `stage_output`

    A training that was interrupted is gone on with, also by other numbers of ranks. When the block ends well, what only the training has
    needed is removed.
    """
    check_ranks(step.training.mixing, step.num_ranks)
    kept = dict(resume=True, precious=f"{parts}{DIRECTORY}/{INDEX}", may_change=("num_ranks",), check=check)
    with output_of(step, step.out, inputs, **kept) as out:
        yield out
        for pattern in _NEEDED_IN_TRAINING:
            for path in {*out.glob(pattern), *out.glob(parts + pattern)}:
                _remove(path)


def _remove(path: Path) -> None:
    if path.name == DIRECTORY:
        remove_checkpoints(path)
    elif path.is_dir():
        remove_tree(path)
    else:
        path.unlink()


def copy_inputs(files: Iterable[Path], directory: Path) -> None:
    """Copies, by their names, of inputs that a model needs; writable also where the inputs are not, since a resumption makes them again."""
    for path in files:
        shutil.copyfile(path, directory / path.name)


def train_on_ranks(step: OnRanks, function: str, spec, parts: str = "", log: str = "train.log") -> None:
    """Call `function(spec, comm)` on the ranks of one MPI job, with a bar on the terminal, elsewhere a line now and then; a job that has
    lost ranks goes on without them.

    spec   the work; its `out` is what `training_output` gave
    parts  as there
    """
    recovery = Recovery(step.jobs, lambda most: usable_ranks(step.training.mixing, most), lambda: last_place(spec.out, parts + DIRECTORY))
    files, path = parts + METRICS_FILE, spec.out / "log" / log
    with progress_bar(spec.out, files):
        run_ranks(step.jobs, path, function, spec, step.num_ranks, recovery, lambda: progress_line(spec.out, files, path))
