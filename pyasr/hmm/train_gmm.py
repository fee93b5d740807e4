r"""GMM training as one MPI job: every rank keeps its shard in memory, statistics meet in an all-reduce, rank 0 updates the model.

    for x = 0, 1, ..., num_iters - 1:
        x = 0: equal or given alignment;   x in realign_iters: Viterbi alignment with model x
        statistics of all ranks -> transition probabilities, GMMs; mixtures split up to G(x) Gaussians -> model x + 1
    G(x) = G(0) + (num_gauss - G(0)) / max_iter_inc * (x - 1),   no more than after iteration max_iter_inc

The schedules are those of Kaldi's train_mono.sh and train_deltas.sh. After every iteration model and alignment stand in the output
directory, so a killed run goes on from there, with any number of ranks; every iteration starts from the model as it stands in the file,
so the result is the same.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.base.output import atomic_write
from pyasr.base.seeds import generator
from pyasr.hmm.gmm import AmDiagGmm
from pyasr.hmm.gmm_update import GmmStats, GmmUpdateOptions, mix_up, pdf_occupancies, update
from pyasr.hmm.model import read_model, write_model
from pyasr.hmm.shard import AlignReport, Shard
from pyasr.hmm.transitions import TransitionModel
from pyasr.hmm.viterbi import AlignOptions
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.kaldi import KaldiReader, KaldiWriter

CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class ScheduleOptions:
    """Iterations of GMM training."""

    num_iters: int = option(40, "iterations of training", minimum=1)
    max_iter_inc: int = option(30, "last iteration that adds Gaussians", minimum=1)
    num_gauss: int = option(1000, "Gaussians of the final model", minimum=1)
    realign_iters: str = option("1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38", "iterations that begin with an alignment")
    boost_silence: float = option(1.0, "factor on the likelihoods of silence in alignment", minimum=0.0)
    first_beam: float | None = option(None, "beam of the first alignment, 4 times that in its retry; none: as the others", minimum=0.1)
    seed: int = option(0, "seed of the first alignment and of the splitting of Gaussians")

    @property
    def realign(self) -> set[int]:
        try:
            return {int(word) for word in self.realign_iters.split()}
        except ValueError:
            raise UserError(f"--realign-iters: '{self.realign_iters}' is not a list of iterations such as '10 20 30'") from None

    def target(self, x: int, start: int) -> int:
        """Gaussians after iteration `x`, when the first model has `start`; as Kaldi's scripts count."""
        step = (self.num_gauss - start) // self.max_iter_inc
        return start if x == 0 else start + step * min(x - 1, self.max_iter_inc)


@dataclass(frozen=True)
class TrainOptions:
    """All that governs the iterations."""

    schedule: ScheduleOptions
    align: AlignOptions
    update: GmmUpdateOptions


@dataclass
class Model:
    """A model in training; `start_gauss` is the number of Gaussians that the schedule counts from."""

    trans: TransitionModel
    gmm: AmDiagGmm
    start_gauss: int


class Trainer:
    """The loop over iterations on one rank. `out` is seen by all ranks; rank 0 writes the models there, every rank its own alignments."""

    def __init__(self, out: Path, shard: Shard, comm, options: TrainOptions, silence_pdfs):
        self.out, self.shard, self.comm, self.options = Path(out), shard, comm, options
        self.schedule = options.schedule
        self.silence_pdfs = silence_pdfs
        self.report = AlignReport()

    def run(self, x: int, model: Model, first_alignment) -> Model:
        """Train from iteration `x` and `model`, or from the checkpoint where there is one.

        `first_alignment() -> AlignReport` sets the shard's alignment for iteration `x`.
        """
        x, model = self._resume() or self._begin(x, model, first_alignment)
        for x in range(x, self.schedule.num_iters):
            begin = time.process_time()
            if x in self.schedule.realign:
                self._align(x, model)
            model = self._iterate(x, model, begin)
        return model

    def _begin(self, x: int, model: Model, first_alignment) -> tuple[int, Model]:
        self._take(x, first_alignment())
        return x, model

    def _align(self, x: int, model: Model) -> None:
        options = self.options.align
        if self.schedule.first_beam and x == min(self.schedule.realign):
            options = AlignOptions(**{**vars(options), "beam": self.schedule.first_beam, "retry_beam": 4 * self.schedule.first_beam})
        gmm = model.gmm
        if self.schedule.boost_silence != 1.0:
            gmm = gmm.boosted(self.silence_pdfs(model.trans), self.schedule.boost_silence)
        self._take(x, self.shard.align(model.trans, gmm, options))

    def _take(self, x: int, own: AlignReport) -> None:
        """Report and keep the new alignment, made for iteration `x`."""
        self.report = sum(self.comm.allgather(own), AlignReport())
        if self.comm.rank == 0:
            self.report.log(f"iteration {x}")
        if self.report.num_aligned == 0:
            reason = next(iter(self.report.failed.values()), "no utterances")
            raise UserError(f"no utterance could be aligned in iteration {x} ({reason}); "
                            "check that features, text and lang directory belong together")
        self._save_alignment(x)

    def _iterate(self, x: int, model: Model, begin: float) -> Model:
        """Statistics, update, checkpoint: the model for iteration x + 1, the same on all ranks."""
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
            log.info(f"iteration {x}: log-likelihood per frame {stats.log_like / stats.num_frames:.4f} over {stats.num_frames:.0f} frames, "
                     f"{model.gmm.num_gauss} Gaussians next, {cpu_s:.1f} CPU s")
            self._save_state(x + 1, model)
        return model

    def _updated(self, x: int, model: Model, stats: GmmStats, counts: np.ndarray) -> Model:
        options = self.options.update
        if x == 0:
            options = GmmUpdateOptions(**{**vars(options), "min_gaussian_occupancy": min(3.0, options.min_gaussian_occupancy)})
        model.trans.update(counts)
        occupancies = pdf_occupancies(model.gmm, stats)
        gmm = update(model.gmm, stats, options)
        target = self.schedule.target(x, model.start_gauss)
        gmm = mix_up(gmm, occupancies, target, options, generator(self.schedule.seed, "mix_up", x))
        if x + 1 == self.schedule.num_iters:
            write_vector(self.out / "final.occs", occupancies)
        return Model(model.trans, gmm, model.start_gauss)

    def _alignment_path(self, x: int, rank: int, num_ranks: int) -> Path:
        return self.out / CHECKPOINT / f"ali.{x}.{rank + 1}of{num_ranks}.ark"

    def _save_alignment(self, x: int) -> None:
        path = self._alignment_path(x, self.comm.rank, self.comm.size)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_int_vectors(path, self.shard.alignments())
        self.last_aligned = x

    def _save_state(self, x: int, model: Model) -> None:
        """Make iteration `x` the one to go on with, then remove what only earlier ones needed."""
        state = {"iteration": x, "aligned": self.last_aligned, "num_ranks": self.comm.size, "start_gauss": model.start_gauss,
                 "num_aligned": self.report.num_aligned, "num_retried": self.report.num_retried, "failed": self.report.failed}
        with atomic_write(self.out / CHECKPOINT / "state.json") as f:
            json.dump(state, f, indent=1)
        (self.out / f"{x - 1}.mdl").unlink(missing_ok=True)
        for path in (self.out / CHECKPOINT).glob("ali.*.ark"):
            if int(path.name.split(".")[1]) < self.last_aligned:
                path.unlink(missing_ok=True)

    def _resume(self) -> tuple[int, Model] | None:
        """(iteration to begin with, its model) of the checkpoint, None where there is none."""
        state = self.comm.bcast_object(_read_state(self.out) if self.comm.rank == 0 else None)
        if state is None:
            return None
        x, self.last_aligned = state["iteration"], state["aligned"]
        if self.comm.rank == 0:
            log.info(f"going on with iteration {x}")
        saved = {}
        for rank in range(state["num_ranks"]):
            saved |= read_int_vectors(self._alignment_path(self.last_aligned, rank, state["num_ranks"]))
        model = Model(*read_model(self.out / f"{x}.mdl"), state["start_gauss"])
        self.shard.set_alignments(saved, model.trans.num_tids, self.out / CHECKPOINT)
        self.report = AlignReport(state["num_aligned"], state["num_retried"], state["failed"])
        self._save_alignment(self.last_aligned)
        self.comm.barrier()
        return x, model


def has_checkpoint(out: Path) -> bool:
    """Whether an interrupted training can go on in `out`."""
    return _read_state(Path(out)) is not None


def _read_state(out: Path) -> dict | None:
    try:
        return json.loads((out / CHECKPOINT / "state.json").read_text())
    except FileNotFoundError:
        return None


def finish(out: Path, trainer: Trainer) -> None:
    """Alignments of every rank and the last model under their final names; the checkpoint is removed."""
    shard, comm = trainer.shard, trainer.comm
    write_int_vectors(out / f"ali.{comm.rank + 1}.gz", shard.alignments())
    comm.barrier()
    if comm.rank == 0:
        (out / f"{trainer.schedule.num_iters}.mdl").replace(out / "final.mdl")
        shutil.rmtree(out / CHECKPOINT)
        trainer.report.log("final alignment")


def write_vector(path: Path, values: np.ndarray) -> None:
    """One Kaldi vector in a file, float32."""
    with KaldiWriter(path) as writer:
        writer.vector(np.asarray(values, np.float32))


def read_vector(path: Path) -> np.ndarray:
    return KaldiReader(path).vector()
