"""The training loop of one rank: minibatches of its own data, mixing with the other ranks, a learning rate
schedule, checkpoints."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch

from pyasr.base.jobs.stop_request import StopRequested, is_stop_requested, watching_for_stop
from pyasr.parallel.strategies import Mixing, Strategy, TrainingView
from pyasr.train.data.minibatch_stream import Frames
from pyasr.train.evolve.growth import Growth
from pyasr.train.job.averaging_watch import AveragingWatch
from pyasr.train.job.calibration import single_rank_frames_per_s
from pyasr.train.job.memory_check import Workload, advising_on_memory, check_utterances_fit, try_out
from pyasr.train.job.one_learner import OneLearner
from pyasr.train.job.progress import Reporter
from pyasr.train.job.resumption import JobCheckpoints, Position
from pyasr.train.job.skip_limit import SkipLimit
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.schedules import Schedule
from pyasr.train.sgd.any_learner import AnyLearner
from pyasr.train.sgd.gpu_paths import log_gpu_paths
from pyasr.train.sgd.learner import Learner
from pyasr.train.totals import Totals
from pyasr.train.training_options import LoopOptions

_NO_MINIBATCH = None, torch.empty(0)  # in place of a minibatch
_STOP_CHECKS = 10  # checks for a stop request per log line
# factor on the maximum change by half a minibatch, before ranks are compared
_COMPARED_CHANGE = math.sqrt(0.5)
LearnerType = TypeVar("LearnerType", bound=AnyLearner)


class Trainer(Generic[LearnerType]):
    """A training job on one rank. The learner's `criterion` is its objective.

    training, heldout         this rank's data
    directory                 for checkpoints and metrics
    growth                    changes of the network at given times
    one_learner               keeps the parameters of one rank for --save-learner
    position                  progress of the training
    best                      parameters of the best model so far, for schedules that may return to it
    heldout_before_consensus  held-out totals of the ranks' own models, before the last consensus; None: not
                              measured
    """

    one_learner: OneLearner | None = None

    def __init__(
        self,
        learner: LearnerType,
        training: Frames | Utterances,
        heldout: FrameStore | Utterances,
        strategy: Strategy,
        schedule: Schedule,
        options: LoopOptions,
        minibatch: int,
        directory: Path,
        growth: Growth | None = None,
    ):
        self.learner, self.training, self.heldout, self.strategy, self.schedule = (
            learner,
            training,
            heldout,
            strategy,
            schedule,
        )
        self.criterion, self.totals, self.comm = learner.criterion, learner.criterion.totals, strategy.comm
        self.options, self.minibatch, self.directory, self.growth = options, minibatch, directory, growth
        self.position = Position()
        self.best: torch.Tensor | None = None
        self.heldout_before_consensus: Totals | None = None
        self.checkpoints = JobCheckpoints(directory, learner, strategy, schedule, training)
        self.averaging, self.skip_limit = (
            AveragingWatch(learner.criterion),
            SkipLimit(learner, options.max_skipped, self.comm.rank),
        )
        training.num_epochs = schedule.options.num_epochs
        strategy.attach(TrainerView(self))

    def run(self) -> None:
        """Train until the schedule ends. On return every rank's `learner.flat.master` is the final model."""
        check_utterances_fit(self.workload)
        if not self._resume():
            self._start()
        self.check_memory()
        log_gpu_paths(self.learner, self.comm)
        self._saved_at = time.monotonic()
        self.total_frames = self.schedule.epoch_frames * self.schedule.options.num_epochs
        speed = self.single_rank_speed() if self.comm.size > 1 else 0.0
        reporter = Reporter(
            self.directory, self.strategy, self.total_frames, self.position.frames_seen, self.totals, speed
        )
        with (
            advising_on_memory(self.workload),
            watching_for_stop(self.comm.rank == 0),
            reporter as self.reporter,
        ):
            while not self.schedule.finished:
                self._epoch(self.schedule.state.epoch + 1)
                self._end_epoch()

    def _start(self) -> None:
        """Start the training with the parameters of rank 0 on all ranks."""
        flat = self.learner.flat
        flat.master.copy_(self.comm.bcast(flat.master.cpu()))
        flat.refresh()
        self.restart()
        heldout = self.evaluate()
        self.schedule.begin(-heldout.objective, heldout.accuracy)
        self.best = self._copy_if_needed()
        self.comm.log(f"initial model: held-out {heldout.text()}")

    def _epoch(self, epoch: int) -> None:
        """One pass over the data of all ranks. A rank without data left mixes until no rank has any."""
        minibatches = self.training.minibatches(self.minibatch, epoch, self.position.own_frames)
        self.strategy.begin_epoch(self.training.epoch_frames(epoch) - self.position.begin, self.minibatch)
        self.sums = torch.tensor(
            self.position.interval_sums, dtype=torch.float64, device=self.learner.flat.master.device
        )
        self.reporter.clock.restart()
        while True:
            with self.reporter.clock("data"):
                x, targets = _NO_MINIBATCH if self.strategy.is_idle else next(minibatches, _NO_MINIBATCH)
            if x is not None:
                self.sums += self._learn(x, targets)
                self.position.own_frames += targets.numel()
            elif self.learner.gradient_sum:
                self.learner.apply_others_gradient(self._summed_rate())
            mixing = self.strategy.step(self.learner.flat.master, targets.numel())
            if mixing is not None:
                self.learner.flat.refresh()
                self._after_mixing(epoch, mixing)
                if mixing.last:
                    return
                if mixing.joint:
                    self.strategy.continue_epoch()

    def _learn(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Train on a minibatch, in halves and with smaller changes before ranks are compared. Returns its
        sums."""
        rate, before = self._summed_rate(), self.criterion.num_skipped
        self.learner.set_progress(
            self.position.frames_seen,
            self.total_frames,
            self.strategy.num_active / self.strategy.num_averaged,
        )
        if self.strategy.compares:
            sums = sum(
                self.learner.step(*part, rate, _COMPARED_CHANGE) for part in self.criterion.halves(x, targets)
            )
            self.compared_sums += sums
        else:
            sums = self.learner.step(x, targets, rate)
        self.skip_limit.count_parts(self.position, self.criterion.num_skipped - before)
        return sums

    def _after_mixing(self, epoch: int, mixing: Mixing) -> None:
        """Work of this rank after a mixing: with all ranks if the mixing is joint, else on its own."""
        if self.strategy.resets_momentum:
            self._reset_velocity()
        before, self.position.frames_seen = (
            self.position.frames_seen,
            self.position.frames_seen + mixing.frames,
        )
        if mixing.joint:
            self._after_joint_mixing(epoch, mixing, before)
        elif self._passes(before, self.options.log_frames):
            self._report_own(epoch)

    def _after_joint_mixing(self, epoch: int, mixing: Mixing, before: int) -> None:
        """Work of all ranks after a mixing of all ranks: report, change the network, save. `before`: frames
        seen until this mixing."""
        saves = mixing.saves or self._passes(before, self.options.checkpoint_frames)
        if mixing.last or mixing.saves or self._passes(before, self.options.log_frames):
            saves |= self._report(epoch)
        if self.growth and self.growth.due(self.position.frames_seen):
            ends = mixing.last and epoch == self.schedule.options.num_epochs
            self._grow(self.growth, mixing.equal, ends)
        if mixing.last:
            return
        checks_stop = mixing.saves or self._passes(before, max(1, self.options.log_frames // _STOP_CHECKS))
        stops = checks_stop and self._must_stop()
        if saves or stops:
            self.position.interval_sums = self.sums.tolist()
            self._save(mixing.equal)
        if stops:
            self._stop()

    def _end_epoch(self) -> None:
        """Evaluate the held-out data, keep this model or return to the best, save, and stop if requested."""
        rate, train = self.rate(), self.totals(self.comm.allreduce(np.array(self.position.epoch_sums)))
        heldout = self.evaluate()
        self.check_divergence(heldout)
        self.averaging.check(self.heldout_before_consensus, heldout, self.comm)
        accepted = self.schedule.end_epoch(-heldout.objective, heldout.accuracy)
        remark = "" if accepted else "; worse than before, returning to the best model"
        self.comm.log(
            f"epoch {self.schedule.state.epoch} ended: {train.text()}, held-out {heldout.text()}{remark}"
        )
        self.reporter.epoch(
            self.schedule.state.epoch, self.position.frames_seen, rate, accepted, train, heldout
        )
        if self.one_learner:
            self.one_learner.end_epoch(self.learner.flat.master, accepted)
        if accepted:
            self.best = self._copy_if_needed()
        else:
            self._return_to_best()
        self.position = Position(
            self.position.frames_seen, skipped=self.position.skipped, epoch_began=self.position.frames_seen
        )
        self._save(equal=True)
        if not self.schedule.finished and self._must_stop():
            self._stop()

    def _return_to_best(self) -> None:
        self.checkpoints.remove_models_after(self.position.epoch_began)
        self.learner.flat.master.copy_(self.best)
        self.learner.flat.refresh()
        self._reset_velocity()
        self.strategy.adopt(self.learner.flat.master)

    def _grow(self, growth: Growth, equal: bool, ends: bool) -> None:
        """Change the network, or keep a copy of its parameters, in the same way on all ranks. At the end of
        the training nothing changes, because no minibatch would follow."""
        flat, frames_seen = self.learner.flat, self.position.frames_seen
        if ends:
            growth.check_whole(frames_seen)
        if ends or not growth.changes(frames_seen):
            growth.keep_due(
                flat.values(flat.master if equal else self.strategy.model(flat.master)), frames_seen
            )
            return
        if not equal:
            self.strategy.consensus(flat.master)
            flat.refresh()
        self.skip_limit.report(self.position)  # counts are per layer, and a grown network has other layers
        assert isinstance(self.learner, Learner)  # only its network grows
        if growth.grow(self.learner, frames_seen):
            self.restart()
        else:
            self.strategy.adopt(flat.master)

    def _report(self, epoch: int) -> bool:
        """Log the sums since the last log line, unless no rank has seen a frame. Returns whether to save,
        according to rank 0's clock."""
        self.skip_limit.report(self.position)
        own = self._take_sums()
        if self.comm.reduce_scalar(own[2]) > 0:
            self.check_divergence(self.reporter.interval(epoch, self.position.frames_seen, own, self.rate()))
        return self.comm.bcast_object(self.is_checkpoint_due())

    def _report_own(self, epoch: int) -> None:
        """Log this rank's own sums, if it is the rank that logs."""
        self.skip_limit.report(self.position)
        own = self.totals(np.array(self._take_sums()))
        if self.strategy.is_logger and own.sums[2]:
            self.reporter.log_own_rank(epoch, self.position.frames_seen, own, self.rate())
            self.check_divergence(own)

    def _take_sums(self) -> list[float]:
        """The sums since the last log line; adds them to those of the epoch."""
        own = self.sums.tolist()
        self.position.epoch_sums = [a + b for a, b in zip(self.position.epoch_sums, own)]
        self.sums.zero_()
        return own

    def evaluate(self) -> Totals:
        """Totals of the present parameters on the held-out data of all ranks."""
        sums = torch.zeros(3, dtype=torch.float64, device=self.learner.flat.master.device)
        for x, targets in self.heldout.in_turn(4 * self.minibatch):
            sums += self.learner.evaluate(x, targets)
        return self.totals(self.comm.allreduce(sums.cpu().numpy()))

    def evaluate_before_consensus(self) -> None:
        """Evaluate each rank's own parameters on its held-out data, before a consensus makes them equal."""
        self.learner.flat.refresh()
        self.heldout_before_consensus = self.evaluate()

    def check_divergence(self, totals: Totals) -> None:
        """Raise Diverged if a training with these totals has diverged."""
        self.criterion.check(totals, self.learner.network, self.options.stop_at_divergence)

    def check_memory(self) -> None:
        """Raise UserError if the largest minibatch does not fit into memory. Every rank must call this."""
        try_out(self.workload)

    @property
    def workload(self) -> Workload:
        """The consumers of memory on this rank."""
        return Workload(self.learner, self.training, self.minibatch, self.comm)

    def single_rank_speed(self) -> float:
        """Single-rank frames per second, the baseline of the speed-up. Every rank must call this."""
        rate = self.schedule.step_rate(self.position.frames_seen, self.strategy.num_averaged)
        return single_rank_frames_per_s(self.learner, self.training, self.minibatch, rate, self.comm)

    def rate(self) -> float:
        """Learning rate of one rank; like `frames_seen`, it changes at mixings."""
        return self.schedule.rate(self.position.frames_seen)

    def _summed_rate(self) -> float:
        """Learning rate for gradients summed over a minibatch, for the present number of learning ranks."""
        return self.schedule.step_rate(self.position.frames_seen, self.strategy.num_active)

    def restart(self) -> None:
        """Restart the strategy with a new or grown network."""
        self.strategy.restart(self.learner.flat.master)
        self._reset_compared_sums()

    def _reset_compared_sums(self) -> None:
        self.compared_sums = torch.zeros(3, dtype=torch.float64, device=self.learner.flat.master.device)

    def _reset_velocity(self) -> None:
        """Set the learner's velocity to 0, because its parameters were replaced."""
        if self.learner.velocity is not None:
            self.learner.velocity.zero_()

    def _copy_if_needed(self) -> torch.Tensor | None:
        """A copy of the parameters for schedules that may return to them."""
        return self.learner.flat.master.clone() if self.schedule.may_go_back else None

    def _passes(self, before: int, interval: int) -> bool:
        """Whether `frames_seen`, which was `before`, has passed a multiple of `interval`."""
        return interval > 0 and self.position.frames_seen // interval > before // interval

    def is_checkpoint_due(self) -> bool:
        """Whether a checkpoint is due by this rank's clock, or the job's runner has requested a stop."""
        interval_s = 60 * self.options.checkpoint_minutes
        return 0 < interval_s < time.monotonic() - self._saved_at or is_stop_requested()

    def _must_stop(self) -> bool:
        """Whether a stop was requested, according to rank 0."""
        return self.comm.bcast_object(is_stop_requested())

    def _stop(self) -> None:
        """End the job after a checkpoint."""
        raise StopRequested(f"saved at {self.position.frames_seen} frames")

    def log_one_learner(self, heldout: Totals) -> None:
        """Log the held-out totals of the model of one learner."""
        self.comm.log(f"one learner after the last mixing: held-out {heldout.text()}")

    def _save(self, equal: bool) -> None:
        """Save a checkpoint; `equal`: all ranks have the same parameters."""
        self.checkpoints.save(self.position, self.best, equal, self.growth, self.one_learner)
        self._saved_at = time.monotonic()

    def _resume(self) -> bool:
        """Resume from the last checkpoint; False without one."""
        found = self.checkpoints.resume(self.growth, self.one_learner)
        if found is None:
            return False
        self.position, self.best = found
        self._reset_compared_sums()
        return True


class TrainerView(TrainingView):
    """A `Trainer` as its strategy sees it."""

    def __init__(self, trainer: Trainer):
        self._trainer, self.num_epochs = trainer, trainer.schedule.options.num_epochs

    @property
    def rate(self) -> float:
        return self._trainer.rate()

    @property
    def velocity(self) -> torch.Tensor | None:
        return self._trainer.learner.velocity if self._trainer.strategy.options.mix_momentum else None

    def objective(self) -> float:
        """Objective over the minibatches of the comparison of ranks; -infinity if all were skipped."""
        totals = self._trainer.totals(self._trainer.compared_sums.cpu().numpy())
        return totals.objective if totals.sums[2] else -math.inf

    def before_consensus(self) -> None:
        self._trainer.evaluate_before_consensus()

    def after_mixing(self, master: torch.Tensor) -> None:
        if self._trainer.one_learner:
            self._trainer.one_learner.after_mixing(master)

    def wants_synchronisation(self) -> bool:
        return self._trainer.is_checkpoint_due()

    def frames_to_synchronisation(self) -> int:
        """Interval of checkpoints in frames, or the distance to the next change of the network if that is
        less; 0: neither."""
        trainer, saves = self._trainer, self._trainer.options.checkpoint_frames
        growth = trainer.growth.ahead(trainer.position.frames_seen) if trainer.growth else []
        return min([*([saves] if saves else []), *growth], default=0)
