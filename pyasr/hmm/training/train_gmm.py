r"""GMM training as one MPI job: every rank has a shard of the data, an all-reduce sums the statistics, rank 0
updates the model.

    for x = 0, 1, ..., num_iters - 1:
        x = 0: equal or given alignment;   x in realign_iters: Viterbi alignment with model x
        statistics of all ranks -> transition probabilities, GMMs; mixtures split up to G(x) Gaussians
            -> model x + 1
    G(x) = G(0) + floor((num_gauss - G(0)) / max_iter_inc) * min(x - 1, max_iter_inc)     for x > 0

The schedules are those of Kaldi's train_mono.sh and train_deltas.sh. After every iteration, model and
alignment are in the output directory, so an interrupted run can be resumed, with any number of ranks. Every
iteration starts from the model as read from its file, so an interruption does not change the result. The last
model gets its final name after everything else is written; then the checkpoint is removed. A directory with a
final model and no checkpoint is complete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.errors import UserError
from pyasr.base.files.places import remove_tree
from pyasr.base.outputs.output import atomic_write
from pyasr.base.outputs.progress_note import Course
from pyasr.hmm.align.align_report import MAX_MISSING, AlignReport, on_first_rank
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_update import GmmStats, GmmUpdateOptions, mix_up, pdf_occupancies, update
from pyasr.hmm.model.model_file import MODEL, read_model, write_model
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.io.ark import read_ark, write_ark
from pyasr.io.int_vectors import iterate_int_vectors, write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter

CHECKPOINT, STATE = "checkpoint", "state.json"


@dataclass(frozen=True)
class GmmScheduleOptions:
    """Iterations of GMM training."""

    heading = "Gaussians"

    num_iters: int = option(40, "number of training iterations", minimum=1, common=True)
    max_iter_inc: int = option(30, "last iteration that adds Gaussians", minimum=1)
    num_gauss: int = option(1000, "target number of Gaussians of the final model", minimum=1, common=True)
    realign_iters: str = option(
        "1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38", "iterations that begin with a new alignment"
    )
    boost_silence: float = option(1.0, "factor on the likelihoods of silence in alignments", minimum=0.0)
    first_beam: float | None = option(
        None,
        "beam of the first Viterbi alignment, with a retry beam 4 times as large; none: --beam "
        "and --retry-beam apply",
        minimum=0.1,
        rare=True,
    )
    seed: int = option(
        0, "seed of the equal alignment, the questions of the tree and the splits of Gaussians", rare=True
    )

    def check(self) -> None:
        """Raise UserError if --realign-iters is not a list of iterations."""
        iterations(self.realign_iters, "--realign-iters")

    @property
    def realign(self) -> set[int]:
        """The iterations of `realign_iters`. Raises UserError if it is not a list of integers."""
        return iterations(self.realign_iters, "--realign-iters")

    def target(self, x: int, start: int) -> int:
        """Number of Gaussians after iteration `x`, if the first model has `start`, as in Kaldi's scripts."""
        step = (self.num_gauss - start) // self.max_iter_inc
        return start if x == 0 else start + step * min(x - 1, self.max_iter_inc)


def iterations(text: str, flag: str) -> set[int]:
    """The integers in an option like "10 20 30". Raises UserError, naming its `flag`, for any other text."""
    try:
        return {int(word) for word in text.split()}
    except ValueError:
        raise UserError(f"{flag}: '{text}' is not a list of iterations such as '10 20 30'") from None


@dataclass(frozen=True)
class TrainOptions:
    """All options of the iterations."""

    schedule: GmmScheduleOptions
    align: AlignOptions
    update: GmmUpdateOptions
    missing: SkippedOptions = field(default_factory=lambda: SkippedOptions(MAX_MISSING))
    store: MemoryOptions = MemoryOptions()


@dataclass
class Model:
    """A model in training; `start_gauss` is the number of Gaussians that the schedule counts from."""

    trans: TransitionModel
    gmm: AmDiagGmm
    start_gauss: int


class TrainingTransforms(Protocol):
    """Transforms of the features of a rank's shard that are re-estimated during training.

    iters     iterations that call `update`, after the alignment and before the statistics
    matrices  float32 matrices, by name or speaker, that this rank's features depend on; checkpoints contain
              them
    names     names of the matrices that `restore` needs
    """

    iters: set[int]
    matrices: dict[str, np.ndarray]
    names: set[str]

    def begin(self) -> None:
        """Set the first transforms from the shard's first alignment, before a model exists."""

    def update(self, model: Model) -> Model:
        """Re-estimate the transforms, the same on all ranks, and apply them to the shard's features. Returns
        the model for these."""

    def restore(self, matrices: dict[str, np.ndarray]) -> None:
        """Set the matrices `names` from the checkpoints of all ranks."""

    def write(self, out: Path) -> None:
        """Write the transforms under their final names."""


class GmmTrainer:
    """The loop over iterations on one rank. All ranks share the directory `out`: rank 0 writes the models,
    every rank its alignments."""

    def __init__(
        self,
        out: Path,
        shard: GmmShard,
        comm,
        options: TrainOptions,
        silence_pdfs,
        adaptation: TrainingTransforms | None = None,
    ):
        self.out, self.shard, self.comm, self.options = Path(out), shard, comm, options
        self.schedule, self.adaptation = options.schedule, adaptation
        self.silence_pdfs = silence_pdfs
        self.report = AlignReport()
        self.course = Course("iteration", options.schedule.num_iters)
        self.last: dict[str, int] = {}  # kind of archive in the checkpoint: its iteration

    def run(self, x: int, model: Model | None, first_alignment) -> Model:
        """Train from iteration `x` and `model`, or from the checkpoint if there is one. Returns the last
        model. Without a checkpoint, `model` must not be None.

        `first_alignment() -> AlignReport` sets the shard's alignment for iteration `x`. Raises UserError if
        more utterances than allowed cannot be used, or have no alignment in the last iteration that realigns.
        """
        usable = self.shard.usable().gathered(self.comm)
        on_first_rank(self.comm, lambda: usable.check_missing(self.shard.data, self.options.missing))
        x, model = self._resume() or self._begin(x, model, first_alignment)
        for x in range(x, self.schedule.num_iters):
            begin = time.process_time()
            if x in self.schedule.realign:
                self._align(x, model)
            if self.adaptation and x in self.adaptation.iters:
                model = self.adaptation.update(model)
                self._save_matrices(x)
            model = self._iterate(x, model, begin)
        return model

    def _begin(self, x: int, model: Model | None, first_alignment) -> tuple[int, Model]:
        assert model is not None
        self._take(x, first_alignment())
        if self.adaptation:
            self._save_matrices(x)
        return x, model

    def _align(self, x: int, model: Model) -> None:
        options = self.options.align
        if self.schedule.first_beam and x == min(self.schedule.realign):
            options = AlignOptions(
                **{
                    **vars(options),
                    "beam": self.schedule.first_beam,
                    "retry_beam": 4 * self.schedule.first_beam,
                }
            )
        gmm = model.gmm
        if self.schedule.boost_silence != 1.0:
            gmm = gmm.boosted(self.silence_pdfs(model.trans), self.schedule.boost_silence)
        self._take(x, self.shard.align(model.trans, gmm, options))

    def _take(self, x: int, own: AlignReport) -> None:
        """Report, check and save the new alignment of iteration `x`."""
        self.report = own.gathered(self.comm)
        on_first_rank(self.comm, lambda: self._check(x))
        self._save_alignment(x)

    def _check(self, x: int) -> None:
        self.report.log(f"iteration {x}")
        self.report.check(f"in iteration {x}")
        self._check_missing(x)

    def _check_missing(self, x: int) -> None:
        """Raise UserError if too many utterances have no alignment in iteration `x` and no realignment
        follows."""
        if not any(x < later < self.schedule.num_iters for later in self.schedule.realign):
            self.report.check_missing(self.shard.data, self.options.missing)

    def _iterate(self, x: int, model: Model, begin: float) -> Model:
        """Accumulate statistics, update the model, write a checkpoint. Returns the model for iteration x + 1,
        the same on all ranks."""
        stats, counts = self.shard.accumulate(model.trans, model.gmm)
        stats.allreduce(self.comm)
        self.comm.allreduce(counts)
        path = self.out / f"{x + 1}.mdl"
        if self.comm.rank == 0:
            new = self._updated(x, model, stats, counts)
            write_model(path, new.trans, new.gmm)
            new = Model(*read_model(path), model.start_gauss)
        model = self.comm.bcast_object(new if self.comm.rank == 0 else None)
        cpu_s = self.comm.reduce_scalar(time.process_time() - begin)
        if self.comm.rank == 0:
            log.info(
                f"iteration {x}: log-likelihood per frame {stats.log_like / stats.num_frames:.4f} over "
                f"{stats.num_frames:.0f} frames, {model.gmm.num_gauss} Gaussians next, {cpu_s:.1f} CPU s"
            )
            self.course.tell(x + 1, stats.log_like / stats.num_frames, stats.num_frames)
            self._save_state(x + 1, model)
        return model

    def _updated(self, x: int, model: Model, stats: GmmStats, counts: np.ndarray) -> Model:
        options = self.options.update
        if x == 0:
            options = GmmUpdateOptions(
                **{**vars(options), "min_gaussian_occupancy": min(3.0, options.min_gaussian_occupancy)}
            )
        model.trans.update(counts)
        occupancies = pdf_occupancies(model.gmm, stats)
        gmm = update(model.gmm, stats, options)
        target = self.schedule.target(x, model.start_gauss)
        gmm = mix_up(gmm, occupancies, target, options, generator(self.schedule.seed, "mix_up", x))
        if x + 1 == self.schedule.num_iters:
            with KaldiWriter(self.out / "final.occs") as writer:
                writer.vector(np.asarray(occupancies, np.float32))
        return Model(model.trans, gmm, model.start_gauss)

    def _checkpoint(self, kind: str, x: int, rank: int, num_ranks: int) -> Path:
        return self.out / CHECKPOINT / f"{kind}.{x}.{rank + 1}of{num_ranks}.ark"

    def _own_checkpoint(self, kind: str, x: int) -> Path:
        path = self._checkpoint(kind, x, self.comm.rank, self.comm.size)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.last[kind] = x
        return path

    def _save_alignment(self, x: int) -> None:
        write_int_vectors(self._own_checkpoint("ali", x), dict(self.shard.alignments()))

    def _save_matrices(self, x: int) -> None:
        assert self.adaptation is not None
        write_ark(self._own_checkpoint("mat", x), self.adaptation.matrices)

    def _save_state(self, x: int, model: Model) -> None:
        """Make `x` the iteration to resume from, then remove files that only earlier iterations needed."""
        state = {
            "iteration": x,
            "last": self.last,
            "num_ranks": self.comm.size,
            "start_gauss": model.start_gauss,
            "num_aligned": self.report.num_aligned,
            "num_retried": self.report.num_retried,
            "failed": self.report.failed,
        }
        with atomic_write(self.out / CHECKPOINT / STATE) as f:
            json.dump(state, f, indent=1)
        (self.out / f"{x - 1}.mdl").unlink(missing_ok=True)
        for path in (self.out / CHECKPOINT).glob("*.ark"):
            kind, iteration, _, _ = path.name.split(".")
            if int(iteration) < self.last[kind]:
                path.unlink(missing_ok=True)

    def _resume(self) -> tuple[int, Model] | None:
        """(iteration to resume from, its model) of the checkpoint; None if there is no checkpoint."""
        state = _read_state(self.out) if self.comm.rank == 0 else None
        if state:
            self.report = AlignReport(state["num_aligned"], state["num_retried"], state.pop("failed"))
        state = self.comm.bcast_object(state)
        if state is None:
            return None
        x, self.last = state["iteration"], state["last"]
        if self.comm.rank == 0:
            log.info(f"resuming at iteration {x}")
        on_first_rank(self.comm, lambda: self._check_missing(self.last["ali"]))
        model = Model(*read_model(self.out / f"{x}.mdl"), state["start_gauss"])
        if self.adaptation:
            matrices = self._saved("mat", state["num_ranks"], lambda path: read_ark(path).items())
            self.adaptation.restore(
                {name: matrix for name, matrix in matrices if name in self.adaptation.names}
            )
        alignments = self._saved("ali", state["num_ranks"], iterate_int_vectors)
        self.shard.set_alignments(alignments, model.trans.num_tids, self.out / CHECKPOINT)
        self._save_again()
        return x, model

    def _saved(
        self, kind: str, num_ranks: int, read: Callable[[Path], Iterable]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """The entries of a kind of archive, one after the other: those of all ranks, or, if the number of
        ranks has not changed, only those of this rank, because it has the same utterances."""
        for rank in [self.comm.rank] if num_ranks == self.comm.size else range(num_ranks):
            yield from read(self._checkpoint(kind, self.last[kind], rank, num_ranks))

    def _save_again(self) -> None:
        """Write the restored entries as archives of the present ranks, after all have read the old."""
        self.comm.barrier()
        self._save_alignment(self.last["ali"])
        if self.adaptation:
            self._save_matrices(self.last["mat"])
        self.comm.barrier()


def has_checkpoint(out: Path) -> bool:
    """Whether an interrupted training in `out` can be resumed."""
    return _read_state(Path(out)) is not None


def _read_state(out: Path) -> dict | None:
    try:
        return json.loads((out / CHECKPOINT / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def finish(out: Path, trainer: GmmTrainer) -> None:
    """Write every rank's alignments, the report and the last model under their final names; then remove the
    checkpoint."""
    shard, comm = trainer.shard, trainer.comm
    write_int_vectors(out / f"ali.{comm.rank + 1}.gz", dict(shard.alignments()))
    if trainer.adaptation:
        trainer.adaptation.write(out)
    comm.barrier()
    if comm.rank == 0:
        trainer.report.log("final alignment")
        trainer.report.write(out)
        _remove_of_more_ranks(out, comm.size)
        with atomic_write(out / MODEL, "wb") as f:
            f.write((out / f"{trainer.schedule.num_iters}.mdl").read_bytes())
        _remove_checkpoint(out)


def is_finished(out: Path, comm) -> bool:
    """Whether an earlier run has completed `out`, the same on all ranks. Removes files that this run has
    left."""
    finished = comm.bcast_object(
        (out / MODEL).exists() and not has_checkpoint(out) if comm.rank == 0 else None
    )
    if finished and comm.rank == 0:
        _remove_checkpoint(out)
    return finished


def _remove_checkpoint(out: Path) -> None:
    """Remove the state file first: as long as it exists, all files that it refers to exist."""
    (out / CHECKPOINT / STATE).unlink(missing_ok=True)
    if (out / CHECKPOINT).exists():
        remove_tree(out / CHECKPOINT)
    for path in out.glob("[0-9]*.mdl"):
        path.unlink()


def _remove_of_more_ranks(out: Path, num_ranks: int) -> None:
    """Remove archives of ranks beyond the present number, left by a run that was killed at its end."""
    for path in [*out.glob("ali.*.gz"), *out.glob("trans.*")]:
        if int(path.name.split(".")[1]) > num_ranks:
            path.unlink()
