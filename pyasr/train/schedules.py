r"""Learning-rate schedules. Time is counted in frames seen over all ranks; an epoch is `epoch_frames` of them.

exponential  (Su, Chen, Xu 2015)  lr_e = i exp(x ln(f / i) / n),  x = e - 1, n = E - 1 for epochs e = 1..E: from i to f
newbob       (Kaldi's nnet1)      after an epoch, relative to the best held-out loss so far: loss not lower: back to the best model;
             gain < `start_halving_gain`: from now on the rate is halved after every epoch; gain < `end_halving_gain` while halving: stop
newbob-accuracy (Su, Chen, Xu 2015)  held-out frame accuracy up by less than 0.5 % absolute: halve; by less than 0.1 %: stop
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyasr.base.options import option


@dataclass(frozen=True)
class ScheduleOptions:
    """Learning rate and its course. The rate is that of one rank."""

    learning_rate: float = option(0.1, "initial learning rate of one rank, by the convention of --lr-convention", minimum=0.0)
    lr_convention: str = option("mean", "whether a minibatch's gradient is the mean or the sum over its frames", choices=("mean", "sum"))
    lr_scaling: str = option("linear", "factor on the rate for P ranks: P, root of P, or 1", choices=("linear", "sqrt", "none"))
    schedule: str = option("exponential", "course of the learning rate", choices=("exponential", "newbob", "newbob-accuracy"))
    num_epochs: int = option(10, "passes over the training data (newbob: at most)", minimum=1)
    final_factor: float = option(0.01, "exponential: final rate relative to the initial one", minimum=0.0)
    start_halving_gain: float = option(0.01, "newbob: relative gain of the loss below which halving begins")
    end_halving_gain: float = option(0.001, "newbob: relative gain of the loss below which training ends")
    halving_factor: float = option(0.5, "newbob: factor of one halving", minimum=0.0, maximum=1.0)

    def scale(self, num_ranks: int) -> float:
        """The factor of `lr_scaling`."""
        return {"linear": float(num_ranks), "sqrt": math.sqrt(num_ranks), "none": 1.0}[self.lr_scaling]


@dataclass
class ScheduleState:
    """Where a schedule stands; plain values, kept in checkpoints."""

    rate: float
    epoch: int = 0
    best: float | None = None
    halving: bool = False
    finished: bool = False


class Schedule:
    """`rate` is the learning rate of the epoch to come, for one rank; `end_epoch` moves on."""

    def __init__(self, options: ScheduleOptions):
        self.options = options
        self.state = ScheduleState(options.learning_rate)

    @property
    def rate(self) -> float:
        """Learning rate of the epoch to come, for one rank, in the convention of the options."""
        return self.state.rate

    @property
    def finished(self) -> bool:
        """Whether no further epoch is to be trained."""
        return self.state.finished or self.state.epoch >= self.options.num_epochs

    def begin(self, loss: float, accuracy: float) -> None:
        """Tell the initial model's held-out loss (nats a frame) and frame accuracy (0..1)."""

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """Tell the held-out result of an epoch. False: go back to the best model."""
        raise NotImplementedError


class Exponential(Schedule):
    """Falls by the same factor each epoch."""

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        self.state.epoch += 1
        steps = max(self.options.num_epochs - 1, 1)
        self.state.rate = self.options.learning_rate * self.options.final_factor ** (self.state.epoch / steps)
        return True


class Newbob(Schedule):
    """Halves when the held-out loss stalls, as Kaldi's nnet1 scripts do."""

    def begin(self, loss: float, accuracy: float) -> None:
        self.state.best = loss

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """Gains are relative to the best loss so far; an epoch that gains nothing is taken back."""
        state, options = self.state, self.options
        state.epoch += 1
        accepted = loss < state.best
        gain = (state.best - loss) / state.best if accepted else 0.0
        state.best = loss if accepted else state.best
        state.finished = state.halving and gain < options.end_halving_gain
        state.halving = state.halving or gain < options.start_halving_gain
        if state.halving:
            state.rate *= options.halving_factor
        return accepted


class NewbobAccuracy(Schedule):
    """Halves after each epoch that gains less than 0.5 % of the frames; ends at less than 0.1 %."""

    def begin(self, loss: float, accuracy: float) -> None:
        self.state.best = accuracy

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """Gains are differences of accuracies (0..1) to the best so far; an epoch that loses is taken back."""
        state = self.state
        state.epoch += 1
        gain = accuracy - state.best
        state.best = max(state.best, accuracy)
        state.finished = gain < 0.001
        if gain < 0.005:
            state.rate *= self.options.halving_factor
        return gain >= 0


def make_schedule(options: ScheduleOptions) -> Schedule:
    """The schedule that `options.schedule` names, at its beginning."""
    kinds = {"exponential": Exponential, "newbob": Newbob, "newbob-accuracy": NewbobAccuracy}
    return kinds[options.schedule](options)
