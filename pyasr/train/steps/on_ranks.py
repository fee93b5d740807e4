"""Running a training step: its output directory, in which an interrupted training resumes, and the MPI job of
its ranks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyasr.base.cli.job_options import RankJobOptions
from pyasr.base.cli.options import group, option
from pyasr.base.cli.step import output_of
from pyasr.base.files.places import remove_tree
from pyasr.cluster.ranks.jobs import Recovery, run_ranks
from pyasr.parallel.strategies import MixingOptions, check_ranks, usable_ranks
from pyasr.train.job.checkpoint_index import DIRECTORY, INDEX, MODELS, remove_checkpoints, resume_point
from pyasr.train.job.progress import METRICS_FILE
from pyasr.train.job.progress_bar import progress_bar, progress_line

# checkpoints and prepared arrays, no results
_NEEDED_IN_TRAINING = (DIRECTORY, MODELS, "*.npz", "*.npz.*", "*.npy")


@dataclass(frozen=True)
class OnRanks:
    """Options of every step that trains on MPI ranks."""

    heading = "jobs"

    num_ranks: int = option(2, "number of MPI ranks", minimum=1)
    jobs: RankJobOptions = group(RankJobOptions)


class MixedTraining(Protocol):
    """The options of a training on several ranks."""

    @property
    def mixing(self) -> MixingOptions:
        """The parallel scheme."""


@contextlib.contextmanager
def training_output(
    step, inputs: list[Path], parts: str = "", check: Callable[[], None] | None = None
) -> Iterator[Path]:
    """Context manager of the output directory of a training step, given by its `out`, `num_ranks` and
    options; the block does the work.

    inputs  files whose change makes the model out of date
    parts   pattern of the subdirectories, such as `rbm*/`, of a step that runs several trainings one after
            the other
    check   see `stage_output`

    An interrupted training resumes, also with another number of ranks. If the block succeeds, files that only
    the training needs are removed.
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
    """Copy inputs that the model needs to `directory`. The copies are writable even if the inputs are not, so
    that a resumed training can overwrite them."""
    for path in files:
        shutil.copyfile(path, directory / path.name)


def train_on_ranks(
    step: OnRanks, mixing: MixingOptions, function: str, spec, parts: str = "", log: str = "train.log"
) -> None:
    """Call `function(spec, comm)` on the ranks of one MPI job. Progress is shown as a bar on a terminal,
    otherwise as occasional lines. A job that loses ranks continues without them.

    spec   the work; its `out` is the directory that `training_output` returned
    parts  see `training_output`
    """
    recovery = Recovery(
        step.jobs, lambda most: usable_ranks(mixing, most), lambda: resume_point(spec.out, parts + DIRECTORY)
    )
    files, path = parts + METRICS_FILE, spec.out / "log" / log
    with progress_bar(spec.out, files):
        run_ranks(
            step.jobs,
            path,
            function,
            spec,
            step.num_ranks,
            recovery,
            lambda: progress_line(spec.out, files, path),
        )
