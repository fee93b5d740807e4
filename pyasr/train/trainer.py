"""The training loop of one rank: minibatches of its own frames, mixing with the others, a schedule, checkpoints."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pyasr.base import log
from pyasr.base.stop_request import StopRequested, heeding, is_stop_requested
from pyasr.nn.sequence_layers import lstm_paths
from pyasr.parallel.strategies import Mixing, Strategy, TrainingView
from pyasr.train.calibration import frames_per_s_alone
from pyasr.train.criterion import Diverged
from pyasr.train.frames import FrameStore
from pyasr.train.growth import Growth
from pyasr.train.learner import Learner
from pyasr.train.memory import check_utterances_fit, telling_what_to_lower, try_out
from pyasr.train.options import LoopOptions
from pyasr.train.progress import Reporter
from pyasr.train.resumption import JobCheckpoints, Position
from pyasr.train.schedules import Schedule
from pyasr.train.stream import Frames
from pyasr.train.totals import Totals

if TYPE_CHECKING:
    from pyasr.train.one_learner import OneLearner

_NOTHING = None, torch.empty(0)  # instead of a minibatch
_LOOKS = 10  # for a request to end, between two log lines
_COMPARED_CHANGE = math.sqrt(0.5)  # factor on the greatest change by half a minibatch, while ranks are going to be compared


class Trainer:
    """A training job on one rank.

    training, heldout  this rank's frames
    directory          for checkpoints and metrics
    growth             changes of the network at given times
    one_learner        keeps the parameters of one of the ranks, where its model is to be saved

    What is learned is the learner's `criterion`.
    """

    one_learner: OneLearner | None = None

    def __init__(self, learner: Learner, training: Frames, heldout: FrameStore, strategy: Strategy, schedule: Schedule,
                 options: LoopOptions, minibatch: int, directory: Path, growth: Growth | None = None):  # fmt: skip
        self.learner, self.training, self.heldout, self.strategy, self.schedule = learner, training, heldout, strategy, schedule
        self.criterion, self.totals = learner.criterion, learner.criterion.totals
        self.comm, self.options, self.minibatch = strategy.comm, options, minibatch
        self.directory, self.growth, self.position, self.best = directory, growth, Position(), None
        self.checkpoints = JobCheckpoints(directory, learner, strategy, schedule, training)
        self.apart, self.num_worse = None, 0  # held-out totals before the ranks' consensus; epochs in a row that it has made worse
        training.num_epochs = schedule.options.num_epochs
        strategy.attach(_View(self))

    def run(self) -> None:
        """Train until the schedule ends; on return every rank's `learner.flat.master` is the final model."""
        check_utterances_fit(self)
        if not self._resume():
            self._start()
        self.check_memory()
        self._tell_paths()
        self._saved_at = time.monotonic()
        self.total_frames = self.schedule.epoch_frames * self.schedule.options.num_epochs
        alone = self.speed_alone() if self.comm.size > 1 else 0.0
        reporter = Reporter(self.directory, self.strategy, self.total_frames, self.position.frames_seen, self.totals, alone)
        with telling_what_to_lower(self), heeding(self.comm.rank == 0), reporter as self.reporter:
            while not self.schedule.finished:
                self._epoch(self.schedule.state.epoch + 1)
                self._end_epoch()

    def check_memory(self) -> None:
        """Raise UserError where memory does not hold the largest minibatch. Every rank must call this."""
        try_out(self)

    def _tell_paths(self) -> None:
        """Log how GPUs compute steps, and LSTM layers in the minibatch of `check_memory`. Every rank must call this."""
        if self.learner.flat.master.device.type == "cuda":
            reasons = self.learner.not_captured
            steps = f"steps are not captured as CUDA graphs: {reasons}" if reasons else "steps are captured as CUDA graphs"
            lines = self.comm.allgather([steps, *lstm_paths(self.learner.network)])
            for line in sorted({line for of_rank in lines for line in of_rank}):
                self.comm.say(line)

    def speed_alone(self) -> float:
        """Frames a second of one rank by itself. Every rank must call this."""
        rate = self.schedule.step_rate(self.position.frames_seen, self.strategy.num_averaged)
        return frames_per_s_alone(self.learner, self.training, self.minibatch, rate, self.comm)

    def _epoch(self, epoch: int) -> None:
        """One pass over the frames of all ranks. A rank out of data goes on mixing until none has any."""
        minibatches = self.training.minibatches(self.minibatch, epoch, self.position.own_frames)
        self.strategy.begin_epoch(self.training.epoch_frames(epoch) - self.position.begin, self.minibatch)
        self.sums = torch.tensor(self.position.interval_sums, dtype=torch.float64, device=self.learner.flat.master.device)
        self.reporter.clock.restart()
        while True:
            with self.reporter.clock("data"):
                x, pdfs = _NOTHING if self.strategy.rests else next(minibatches, _NOTHING)
            if x is not None:
                self.sums += self._learn(x, pdfs)
                self.position.own_frames += pdfs.numel()
            elif self.learner.gradient_sum:
                self.learner.follow(self._summed_rate())
            mixing = self.strategy.step(self.learner.flat.master, pdfs.numel())
            if mixing is not None:
                self.learner.flat.refresh()
                self._after_mixing(epoch, mixing)
                if mixing.last:
                    return
                if mixing.joint:
                    self.strategy.go_on()

    def _learn(self, x: torch.Tensor, pdfs: torch.Tensor) -> torch.Tensor:
        """Train on a minibatch; by halves and with smaller changes while ranks are going to be compared. Returns its sums."""
        rate, before = self._summed_rate(), self.criterion.num_left_out
        self.learner.reach(self.position.frames_seen, self.total_frames, self.strategy.num_active / self.strategy.num_averaged)
        if self.strategy.compares:
            sums = sum(self.learner.step(*part, rate, _COMPARED_CHANGE) for part in self.criterion.halves(x, pdfs))
            self.compared_sums += sums
        else:
            sums = self.learner.step(x, pdfs, rate)
        self._count_left_out(self.criterion.num_left_out - before)
        return sums

    def _count_left_out(self, number: int) -> None:
        """Parts of the last minibatch that the criterion has left out."""
        if number:
            parts, reason = self.criterion.left_out
            self.count_skipped(number, parts, f"{reason}, last at step {self.learner.num_steps} of rank {self.comm.rank}")

    def _summed_rate(self) -> float:
        """The rate of summed gradients of those that learn now."""
        return self.schedule.step_rate(self.position.frames_seen, self.strategy.num_active)

    def restart(self) -> None:
        """Ranks have a new network, or one that has grown."""
        self.strategy.restart(self.learner.flat.master)
        self._forget_compared()

    def _forget_compared(self) -> None:
        self.compared_sums = torch.zeros(3, dtype=torch.float64, device=self.learner.flat.master.device)

    def _compared_objective(self) -> float:
        """This rank's objective since then; minus infinity where no minibatch was of use."""
        totals = self.totals(self.compared_sums.cpu().numpy())
        return totals.objective if totals.sums[2] else -math.inf

    def _after_mixing(self, epoch: int, mixing: Mixing) -> None:
        """What all ranks do after a mixing of all, and one alone after another."""
        if self.strategy.resets_momentum:
            self._stand_still()
        before, self.position.frames_seen = self.position.frames_seen, self.position.frames_seen + mixing.frames
        saves = mixing.saves or self._passes(before, self.options.checkpoint_frames)
        if not mixing.joint:
            if self._passes(before, self.options.log_frames):
                self._report_alone(epoch)
            return
        if mixing.last or mixing.saves or self._passes(before, self.options.log_frames):
            saves |= self._report(epoch)
        if self.growth and self.growth.due(self.position.frames_seen):
            self._grow(mixing.equal, ends=mixing.last and epoch == self.schedule.options.num_epochs)
        if mixing.last:
            return
        looks = mixing.saves or self._passes(before, max(1, self.options.log_frames // _LOOKS))
        stops = looks and self._is_to_stop()
        if saves or stops:
            self.position.interval_sums = self.sums.tolist()
            self._save(mixing.equal)
        if stops:
            self._stop()

    def _is_to_stop(self) -> bool:
        """Whether the job was asked to end: rank 0 looks, and tells all."""
        return self.comm.bcast_object(is_stop_requested())

    def _stop(self) -> None:
        """End the job, which has just saved."""
        raise StopRequested(f"saved at {self.position.frames_seen} frames")

    def _stand_still(self) -> None:
        """The learner's velocity belongs to parameters that are no more."""
        if self.learner.velocity is not None:
            self.learner.velocity.zero_()

    def _frames_to_meeting(self) -> int:
        """Until the next checkpoint within an epoch, or the next change of the network; 0 where there is none."""
        saves = [self.options.checkpoint_frames] if self.options.checkpoint_frames else []
        return min(saves + (self.growth.ahead(self.position.frames_seen) if self.growth else []), default=0)

    def _grow(self, equal: bool, ends: bool) -> None:
        """Change the network, or remember it, on all ranks alike; where the training `ends`, nothing is changed, as none would learn so."""
        flat, frames_seen = self.learner.flat, self.position.frames_seen
        if ends:
            self.growth.check_whole(frames_seen)
        if ends or not self.growth.changes(frames_seen):
            self.growth.look(flat.values(flat.master if equal else self.strategy.model(flat.master)), frames_seen)
            return
        if not equal:
            self.strategy.consensus(flat.master)
            flat.refresh()
        self._tell_skips()  # a grown network counts anew
        if self.growth.grow(self.learner, frames_seen):
            self.restart()
        else:
            self.strategy.adopt(flat.master)

    def _rate(self) -> float:
        """The learning rate of one rank; as `frames_seen`, it changes with the mixings."""
        return self.schedule.rate(self.position.frames_seen)

    def _passes(self, before: int, interval: int) -> bool:
        """Whether `frames_seen`, `before` until now, has passed a multiple of `interval`."""
        return interval > 0 and self.position.frames_seen // interval > before // interval

    def _is_late(self) -> bool:
        """Whether this rank's clock calls for a checkpoint, or its runner for the end."""
        interval_s = 60 * self.options.checkpoint_minutes
        return 0 < interval_s < time.monotonic() - self._saved_at or is_stop_requested()

    def _report(self, epoch: int) -> bool:
        """Log the sums, unless no rank has seen a frame since the last time, and start anew. Returns whether to save, by rank 0's clock."""
        self._tell_skips()
        own = self._take_sums()
        if self.comm.reduce_scalar(own[2]) > 0:
            self.check_divergence(self.reporter.interval(epoch, self.position.frames_seen, own, self._rate()))
        return self.comm.bcast_object(self._is_late())

    def _report_alone(self, epoch: int) -> None:
        """The same of this rank, for a log line of one of them."""
        self._tell_skips()
        own = self.totals(np.array(self._take_sums()))
        if self.strategy.speaks and own.sums[2]:
            self.reporter.tell_alone(epoch, self.position.frames_seen, own, self._rate())
            self.check_divergence(own)

    def _take_sums(self) -> list[float]:
        """The sums since the last log line, which from now on belong to the epoch's."""
        own = self.sums.tolist()
        self.position.epoch_sums = [a + b for a, b in zip(self.position.epoch_sums, own)]
        self.sums.zero_()
        return own

    def _tell_skips(self) -> None:
        """Warn of minibatches that this rank's learner has left out since the last time; too many of them end the training."""
        number, layers, last = self.learner.skips.take()
        if not number:
            return
        where = f"the gradient of {', '.join(layers)} was not finite, last at step {last} of rank {self.comm.rank}"
        log.warning(f"minibatches left out: {number}; {where}")
        self.count_skipped(number, "minibatches", where)

    def count_skipped(self, number: int, what: str, where: str) -> None:
        """Put down that this rank has left out so many minibatches, or parts of them. Raises Diverged where these are too many."""
        self.position.skipped += number
        if number and self.position.skipped > self.options.max_skipped:
            found = f"{self.position.skipped} {what} were left out, more than --max-skipped {self.options.max_skipped}"
            raise Diverged(f"{found}: {where}; give a lower {self.criterion.rate_flag}, and --force")

    def evaluate(self) -> Totals:
        """Loss and accuracy of the present parameters on the held-out frames of all ranks."""
        sums = torch.zeros(3, dtype=torch.float64, device=self.learner.flat.master.device)
        for x, pdfs in self.heldout.in_turn(4 * self.minibatch):
            sums += self.learner.evaluate(x, pdfs)
        return self.totals(self.comm.allreduce(sums.cpu().numpy()))

    def _start(self) -> None:
        """All ranks begin with the parameters of rank 0."""
        flat = self.learner.flat
        flat.master.copy_(self.comm.bcast(flat.master.cpu()))
        flat.refresh()
        self.restart()
        heldout = self.evaluate()
        self.schedule.begin(-heldout.objective, heldout.accuracy)
        self.best = self._copy_if_needed()
        self.comm.say(f"initial model: held-out {heldout.text()}")

    def _end_epoch(self) -> None:
        """Held-out result; the schedule moves on, or back to the best model; a checkpoint, after which the job ends if it was asked to."""
        rate, train, heldout = self._rate(), self.totals(self.comm.allreduce(np.array(self.position.epoch_sums))), self.evaluate()
        self.check_divergence(heldout)
        self._look_at_averaging(heldout)
        accepted = self.schedule.end_epoch(-heldout.objective, heldout.accuracy)
        verdict = "" if accepted else "; worse than before, back to the best model"
        self.comm.say(f"epoch {self.schedule.state.epoch} ended: {train.text()}, held-out {heldout.text()}{verdict}")
        self.reporter.epoch(self.schedule.state.epoch, self.position.frames_seen, rate, accepted, train, heldout)
        if self.one_learner:
            self.one_learner.end_epoch(self.learner.flat.master, accepted)
        if accepted:
            self.best = self._copy_if_needed()
        else:
            self.checkpoints.forget_models_after(self.position.epoch_began)
            self.learner.flat.master.copy_(self.best)
            self.learner.flat.refresh()
            self._stand_still()
            self.strategy.adopt(self.learner.flat.master)
        self.position = Position(self.position.frames_seen, skipped=self.position.skipped, epoch_began=self.position.frames_seen)
        self._save(equal=True)
        if not self.schedule.finished and self._is_to_stop():
            self._stop()

    def tell_of_one_learner(self, heldout: Totals) -> None:
        """What the model of one learner comes to."""
        self.comm.say(f"one learner after the last mixing: held-out {heldout.text()}")

    def _evaluate_apart(self) -> None:
        """Measure the ranks' own parameters, each on its held-out frames, before they are made equal."""
        self.learner.flat.refresh()
        self.apart = self.evaluate()

    def _look_at_averaging(self, heldout: Totals) -> None:
        """Warn when the consensus is worse than the ranks apart, twice in a row."""
        is_worse = self.apart is not None and heldout.objective < self.apart.objective
        self.num_worse = self.num_worse + 1 if is_worse else 0
        if self.num_worse >= 2 and self.comm.rank == 0:
            log.warning(
                f"averaging made the held-out objective worse, from {self.apart.objective:.4f} to {heldout.objective:.4f}, in "
                f"{self.num_worse} epochs in a row: ranks drift too far apart; lower --period-frames or {self.criterion.rate_flag}"
            )

    def check_divergence(self, totals: Totals) -> None:
        """Raise Diverged if a training with these totals has diverged."""
        self.criterion.check(totals, self.learner.network, self.options.stop_at_divergence)

    def _copy_if_needed(self) -> torch.Tensor | None:
        """A copy of the parameters for schedules that may go back to them."""
        return self.learner.flat.master.clone() if self.schedule.may_go_back else None

    def _save(self, equal: bool) -> None:
        """A checkpoint; `equal`: all ranks have the same parameters."""
        self.checkpoints.save(self.position, self.best, equal, self.growth, self.one_learner)
        self._saved_at = time.monotonic()

    def _resume(self) -> bool:
        """Resume from the last checkpoint; False without one."""
        found = self.checkpoints.resume(self.growth, self.one_learner)
        if found is None:
            return False
        self.position, self.best = found
        self._forget_compared()
        return True


class _View(TrainingView):
    """What the strategy of a job sees of it."""

    def __init__(self, job: Trainer):
        self._job, self.num_epochs = job, job.schedule.options.num_epochs

    @property
    def rate(self) -> float:
        return self._job._rate()

    @property
    def velocity(self) -> torch.Tensor | None:
        return self._job.learner.velocity if self._job.strategy.options.mix_momentum else None

    def objective(self) -> float:
        return self._job._compared_objective()

    def before_consensus(self) -> None:
        self._job._evaluate_apart()

    def after_mixing(self, master: torch.Tensor) -> None:
        if self._job.one_learner:
            self._job.one_learner.after_mixing(master)

    def wants_meeting(self) -> bool:
        return self._job._is_late()

    def frames_to_meeting(self) -> int:
        return self._job._frames_to_meeting()
