"""The training loop of one rank: minibatches of its own frames, mixing with the others, a schedule, checkpoints."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies import Strategy
from pyasr.train.checkpoints import load_checkpoint, save_checkpoint
from pyasr.train.frames import FrameStore
from pyasr.train.learner import Learner
from pyasr.train.progress import Reporter, Totals
from pyasr.train.schedules import Schedule, ScheduleState


@dataclass(frozen=True)
class LoopOptions:
    """When a training job reports and saves; all in frames seen over all ranks."""

    log_frames: int = option(200_000, "frames between two log lines", minimum=1)
    checkpoint_frames: int = option(1_000_000, "frames between two checkpoints within an epoch", minimum=1)
    train_seed: int = option(777, "seed of initial parameters, shuffling and dropout")


@dataclass
class Position:
    """How far a rank is: `frames_seen` over all ranks, `own_frames` of its own in this epoch, and their sums (loss, correct, frames), in
    this epoch up to the last log line, and since then."""

    frames_seen: int = 0
    own_frames: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    interval_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])


class Training:
    """A training job on one rank.

    training, heldout  this rank's frames
    rate_factor        from the schedule's rate to the rate of summed gradients: scaling with ranks, and lr convention
    directory          for checkpoints and metrics.jsonl

    A class for another objective than the cross-entropy of pdfs overrides `totals`, what a learner's sums mean, and `_check_divergence`.
    """

    totals = Totals

    def __init__(self, learner: Learner, training: FrameStore, heldout: FrameStore, strategy: Strategy, schedule: Schedule, comm: Comm,
                 options: LoopOptions, minibatch: int, rate_factor: float, directory: Path):  # fmt: skip
        self.learner, self.training, self.heldout, self.strategy, self.schedule = learner, training, heldout, strategy, schedule
        self.comm, self.options, self.minibatch, self.rate_factor, self.directory = comm, options, minibatch, rate_factor, directory
        self.position = Position()
        self.best = None
        self.epoch_frames = int(comm.reduce_scalar(training.num_frames))

    def run(self) -> None:
        """Train until the schedule ends; on return every rank's `learner.flat.master` is the final model."""
        flat, schedule = self.learner.flat, self.schedule
        if not self._resume():
            self.comm.bcast(flat.master)
            flat.refresh()
            self._begin()
        total_frames = self.epoch_frames * schedule.options.num_epochs
        self.reporter = Reporter(self.directory / "metrics.jsonl", self.comm, total_frames, self.position.frames_seen,
                                 self.totals)  # fmt: skip
        while not schedule.finished:
            self._epoch(schedule.state.epoch + 1)
            self._end_epoch(schedule.rate(self.position.frames_seen))

    def _epoch(self, epoch: int) -> None:
        """One pass over the frames of all ranks. A rank out of data goes on mixing until none has any."""
        flat, position, clock = self.learner.flat, self.position, self.reporter.clock
        self.training.begin_epoch(self.options.train_seed, epoch)
        order = self.training.epoch_order(self.options.train_seed, epoch, self.comm.rank)
        sums = torch.tensor(position.interval_sums, dtype=torch.float64, device=flat.master.device)
        clock.restart()
        rate = self.schedule.rate(position.frames_seen)
        while True:
            index = order[position.own_frames : position.own_frames + self.minibatch]
            if len(index):
                with clock("data"):
                    x, pdfs = self.training.gather(index)
                sums += self.learner.step(x, pdfs, rate * self.rate_factor)
                position.own_frames += len(index)
            with clock("communication"):
                mixing = self.strategy.step(flat.master, len(index))
            flat.refresh()
            if mixing is None:
                continue
            before, position.frames_seen = position.frames_seen, position.frames_seen + mixing.frames
            if mixing.frames == 0 or self._passes(before, self.options.log_frames):
                self._report(epoch, rate, sums)
            if mixing.frames == 0:
                return
            rate = self.schedule.rate(position.frames_seen)
            if self._passes(before, self.options.checkpoint_frames):
                position.interval_sums = sums.tolist()
                self._save()

    def _passes(self, before: int, interval: int) -> bool:
        """Whether `frames_seen`, `before` until now, has passed a multiple of `interval`."""
        return self.position.frames_seen // interval > before // interval

    def _report(self, epoch: int, rate: float, sums: torch.Tensor) -> None:
        """Log what `sums` holds, unless no rank has seen a frame since the last time, and start anew."""
        own = sums.tolist()
        if self.comm.reduce_scalar(own[2]) > 0:
            self._check_divergence(self.reporter.interval(epoch, self.position.frames_seen, own, rate))
        self.position.epoch_sums = [a + b for a, b in zip(self.position.epoch_sums, own)]
        sums.zero_()

    def evaluate(self) -> Totals:
        """Loss and accuracy of the present parameters on the held-out frames of all ranks."""
        sums = torch.zeros(3, dtype=torch.float64, device=self.learner.flat.master.device)
        for index in torch.arange(self.heldout.num_frames).split(4 * self.minibatch):
            sums += self.learner.evaluate(*self.heldout.gather(index))
        return self.totals(self.comm.allreduce(sums.cpu().numpy()))

    def _say(self, sentence: str) -> None:
        if self.comm.rank == 0:
            log.info(sentence)

    def _begin(self) -> None:
        start = self.evaluate()
        self.schedule.begin(-start.objective, start.accuracy)
        self.best = self._copy_if_needed()
        self._say(f"initial model: held-out {start.text()}")

    def _end_epoch(self, rate: float) -> None:
        """Held-out result; the schedule moves on, or back to the best model; a checkpoint."""
        train, heldout = self.totals(self.comm.allreduce(np.array(self.position.epoch_sums))), self.evaluate()
        self._check_divergence(heldout)
        accepted = self.schedule.end_epoch(-heldout.objective, heldout.accuracy)
        epoch = self.schedule.state.epoch
        self._say(
            f"epoch {epoch} ended: {train.text()}, held-out {heldout.text()}"
            f"{'' if accepted else '; worse than before, back to the best model'}"
        )
        self.reporter.write({
            "epoch": epoch, "frames": self.position.frames_seen, "rate": rate, "accepted": accepted,
            **{f"train_{name}": value for name, value in train.metrics().items()},
            **{f"heldout_{name}": value for name, value in heldout.metrics().items()},
        })  # fmt: skip
        if accepted:
            self.best = self._copy_if_needed()
        else:
            self.learner.flat.master.copy_(self.best)
            self.learner.flat.refresh()
        self.position = Position(self.position.frames_seen)
        self._save()

    def _check_divergence(self, totals: Totals) -> None:
        """A model that is clearly worse than guessing all pdfs equally has diverged; so has one whose objective is no number."""
        objective, num_pdfs = totals.objective, self.learner.network.num_pdfs
        if not objective > -2 * math.log(num_pdfs + 1):
            raise UserError(
                f"training has diverged (objective {objective:.2f} a frame; guessing gives {-math.log(num_pdfs):.2f}): "
                f"give a lower --learning-rate, or --lr-scaling sqrt or none, and --force"
            )

    def _copy_if_needed(self) -> torch.Tensor | None:
        """A copy of the parameters for schedules that may go back to them."""
        return None if self.schedule.options.schedule == "exponential" else self.learner.flat.master.clone()

    def _save(self) -> None:
        """Every rank has the same parameters here, just mixed; momentum and random state are each rank's own."""
        shared = {"master": self.learner.flat.master.cpu(), "best": self.best, "schedule": dataclasses.asdict(self.schedule.state)}
        own = {"position": dataclasses.asdict(self.position), "learner": self.learner.state_dict(), "random": torch.get_rng_state()}
        save_checkpoint(self.directory / "checkpoint", self.comm, shared, own)

    def _resume(self) -> bool:
        found = load_checkpoint(self.directory / "checkpoint", self.comm)
        if found is None:
            return False
        shared, own = found
        self.learner.flat.master.copy_(shared["master"])
        self.learner.flat.refresh()
        self.best = shared["best"]
        self.schedule.state = ScheduleState(**shared["schedule"])
        self.position = Position(**own["position"])
        self.learner.load_state_dict(own["learner"])
        torch.set_rng_state(own["random"])
        self._say(f"resuming at {self.position.frames_seen} frames, epoch {self.schedule.state.epoch + 1}")
        return True
