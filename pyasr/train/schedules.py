r"""Learning-rate schedules. Time t is in epochs: frames seen over all ranks, divided by the frames of one
pass over the data.

exponential         (Su, Chen, Xu 2015)  lr_e = i exp(x ln(f / i) / n),  x = e - 1, n = E - 1 for epochs
                    e = 1..E: from i to f
exponential-frames  (Kaldi's nnet2 and nnet3)  the same curve in frames: x = t, n = E, so the rate falls with
                    every mixing
step                (the common form)  i `halving_factor`^k, k the number of given epochs or frame counts that
                    have passed; at least `least_rate`
warm-up             (Zhang, Cui et al., arXiv:1904.04956)  i (1 + (p - 1) t / W) over W epochs, from i to the
                    peak p i; then it is multiplied by 1 / sqrt 2 as each epoch begins
newbob              (Kaldi's nnet1)  after an epoch, relative to the best held-out loss so far: loss not
                    lower: return to the best model; gain < `start_halving_gain`: halve the rate after this
                    and every later epoch; gain < `end_halving_gain` while halving: stop
newbob-accuracy     (Su, Chen, Xu 2015)  held-out frame accuracy up by less than 0.5 % absolute: halve; by
                    less than 0.1 %: stop
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyasr.base.cli.option_uses import if_is
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

NAMES = ("exponential", "exponential-frames", "step", "warm-up", "newbob", "newbob-accuracy")
_FALLING = if_is("schedule", "exponential", "exponential-frames")


@dataclass(frozen=True)
class ScalingOptions:
    """Scaling of the learning rate with the number of ranks."""

    heading = "optimisation"

    lr_scaling: str = option(
        "linear",
        "factor on the learning rate for P ranks; linear: P; sqrt: square root of P; none: 1",
        choices=("linear", "sqrt", "none"),
    )

    def scale(self, num_ranks: float) -> float:
        """The factor of `lr_scaling`."""
        return {"linear": float(num_ranks), "sqrt": math.sqrt(num_ranks), "none": 1.0}[self.lr_scaling]


@dataclass(frozen=True)
class ScheduleOptions(ScalingOptions):
    """Learning rate of one rank, and its schedule."""

    heading = "optimisation"

    learning_rate: float = option(
        0.1,
        "initial learning rate of one rank, for gradients as in --lr-convention",
        minimum=0.0,
        common=True,
    )
    lr_convention: str = option(
        "mean",
        "gradient by which the learning rate is multiplied: mean or sum over the frames of a "
        "minibatch (CTC: units)",
        choices=("mean", "sum"),
        rare=True,
    )
    schedule: str = option("exponential", "schedule of the learning rate", choices=NAMES, common=True)
    num_epochs: int = option(
        10, "number of passes over the training data; maximum number with newbob", minimum=1, common=True
    )
    final_factor: float = option(
        0.01, "final learning rate relative to the initial one", minimum=0.0, only=_FALLING
    )
    constant_epochs: int = option(
        0, "number of epochs at the end with the final learning rate", minimum=0, only=_FALLING, rare=True
    )
    start_halving_gain: float = option(
        0.01,
        "relative gain of the held-out loss below which halving begins",
        only=if_is("schedule", "newbob"),
        rare=True,
    )
    end_halving_gain: float = option(
        0.001,
        "relative gain of the held-out loss below which the training ends while halving",
        only=if_is("schedule", "newbob"),
        rare=True,
    )
    halving_factor: float = option(
        0.5,
        "factor on the learning rate at each halving",
        minimum=0.0,
        maximum=1.0,
        only=if_is("schedule", "newbob", "newbob-accuracy", "step"),
        rare=True,
    )
    step_epochs: str = option(
        "",
        "epochs after which the learning rate is halved, such as 6,8,9.5",
        only=if_is("schedule", "step"),
        rare=True,
    )
    step_frames: str = option(
        "",
        "frames over all ranks after which the learning rate is halved, such as 20e6,30e6",
        only=if_is("schedule", "step"),
        rare=True,
    )
    least_rate: float = option(
        0.0, "minimum learning rate", minimum=0.0, only=if_is("schedule", "step"), rare=True
    )
    warm_up_epochs: float = option(
        10.0,
        "epochs until the peak of the learning rate",
        minimum=0.0,
        only=if_is("schedule", "warm-up"),
        rare=True,
    )
    warm_up_factor: float = option(
        10.0,
        "peak learning rate relative to the initial one",
        minimum=0.0,
        only=if_is("schedule", "warm-up"),
        rare=True,
    )

    @property
    def uses_heldout(self) -> bool:
        """Whether the schedule depends on the held-out set and may return to an earlier model."""
        return make_schedule(self, 1).may_go_back

    def rate_factor(self, num_ranks: float, terms: float) -> float:
        """Factor from the rate of one rank, in the convention of these options, to the rate for gradients
        summed over the minibatch, whose loss is a sum of `terms` terms."""
        return self.scale(num_ranks) * (1.0 if self.lr_convention == "sum" else 1.0 / terms)

    def describe(self, num_ranks: float, terms: float) -> str:
        """Learning rate, convention, scaling and schedule, for the log."""
        factor = self.scale(num_ranks)
        return (
            f"learning rate {self.learning_rate:g} ({self.lr_convention} over minibatches of {terms:.6g}), "
            f"{self.lr_scaling} scaling: effective {self.learning_rate:g} x {factor:g} = "
            f"{self.learning_rate * factor:g}; {self.schedule}, {self.num_epochs} epochs"
        )

    def check(self) -> None:
        """Raise UserError for unparsable lists, --schedule step without a step or with a minimum above the
        initial rate, and schedules whose rate never falls."""
        marks = numbers(self.step_epochs, "--step-epochs") + numbers(self.step_frames, "--step-frames")
        if self.schedule == "step" and not marks:
            raise UserError("--schedule step: no step is given; give --step-epochs or --step-frames")
        if self.schedule == "step" and self.least_rate > self.learning_rate:
            found = f"the initial learning rate, {self.learning_rate:g}, is lower"
            raise UserError(
                f"--least-rate {self.least_rate:g}: {found}; lower --least-rate, or raise --learning-rate"
            )
        if self.constant_epochs >= self.num_epochs:
            raise UserError(
                f"--constant-epochs {self.constant_epochs}: the training has only {self.num_epochs} epochs; "
                "raise --num-epochs"
            )
        if self.schedule == "warm-up" and self.warm_up_epochs >= self.num_epochs:
            found = f"the learning rate would not fall within the {self.num_epochs} epochs"
            raise UserError(
                f"--warm-up-epochs {self.warm_up_epochs:g}: {found}; raise --num-epochs, or lower "
                "--warm-up-epochs"
            )

    def check_without_heldout(self) -> None:
        """Like `check`, and refuse schedules that depend on the held-out set. For trainings whose objective
        is not the frame-level cross-entropy."""
        self.check()
        if self.uses_heldout:
            found = "it depends on the frame-level cross-entropy, which is not the objective of this step"
            raise UserError(f"--schedule {self.schedule}: {found}; give --schedule exponential or step")


def numbers(text: str, flag: str) -> list[float]:
    """The numbers of a comma-separated list. Raises UserError, which names `flag`, if it is not one."""
    try:
        found = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise UserError(
            f"{flag}: '{text}' is not a comma-separated list of numbers; give one such as 6,8,9.5"
        )
    return found


@dataclass
class ScheduleState:
    """State of a schedule, in plain values, which checkpoints contain. `rate` is used by schedules that
    depend on the held-out set."""

    rate: float
    epoch: int = 0
    best: float | None = None
    halving: bool = False
    finished: bool = False


class Schedule:
    """Base of schedules: `rate(frames_seen)` is the learning rate of one rank, `step_rate` the applied rate;
    `end_epoch` ends an epoch.

    epoch_frames  frames of all ranks in one epoch
    terms         number of terms, frames or units, that the loss of a minibatch is a sum of
    may_go_back   whether `end_epoch` can request a return to the best model so far
    """

    may_go_back = False

    def __init__(self, options: ScheduleOptions, epoch_frames: int, terms: float = 1.0):
        self.options, self.epoch_frames, self.terms = options, epoch_frames, terms
        self.state = ScheduleState(options.learning_rate)

    @property
    def finished(self) -> bool:
        """Whether the training is over."""
        return self.state.finished or self.state.epoch >= self.options.num_epochs

    def rate(self, frames_seen: int) -> float:
        """Learning rate of one rank after `frames_seen` frames over all ranks, in the options' convention."""
        raise NotImplementedError

    def step_rate(self, frames_seen: int, num_ranks: float) -> float:
        """Rate that a rank applies to gradients summed over its minibatch while `num_ranks` ranks learn."""
        return self.rate(frames_seen) * self.options.rate_factor(num_ranks, self.terms)

    def begin(self, loss: float, accuracy: float) -> None:
        """Note the initial model's held-out loss (nats per frame) and frame accuracy (0..1)."""

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """End an epoch with this held-out result. Returns False if the best model has to be restored."""
        self.state.epoch += 1
        return True


class Exponential(Schedule):
    """Falls by the same factor each epoch."""

    def rate(self, frames_seen: int) -> float:
        """Rate of the present epoch."""
        steps = self.options.num_epochs - self.options.constant_epochs - 1
        return self._falling_rate(self.state.epoch / max(steps, 1))

    def _falling_rate(self, share: float) -> float:
        """Rate at `share` of the falling part: the initial rate at 0, the final rate from 1 on."""
        return self.options.learning_rate * self.options.final_factor ** min(share, 1.0)


class ExponentialFrames(Exponential):
    """Falls continuously, by the same factor for equal numbers of frames."""

    def rate(self, frames_seen: int) -> float:
        """Rate after `frames_seen` frames."""
        falling_epochs = self.options.num_epochs - self.options.constant_epochs
        return self._falling_rate(frames_seen / max(falling_epochs * self.epoch_frames, 1))


class Step(Schedule):
    """Halves at given epochs or frames."""

    def __init__(self, options: ScheduleOptions, epoch_frames: int, terms: float = 1.0):
        super().__init__(options, epoch_frames, terms)
        epochs = numbers(options.step_epochs, "--step-epochs")
        frames = numbers(options.step_frames, "--step-frames")
        self._marks = [epoch * epoch_frames for epoch in epochs] + frames

    def rate(self, frames_seen: int) -> float:
        """Initial rate, halved for every passed mark, at least `least_rate`."""
        passed = sum(mark <= frames_seen for mark in self._marks)
        return max(self.options.learning_rate * self.options.halving_factor**passed, self.options.least_rate)


class WarmUp(Schedule):
    """Rises linearly to a peak, then falls by half in two epochs, a step at the beginning of each."""

    def rate(self, frames_seen: int) -> float:
        """Rate after `frames_seen` frames; while it falls, constant within an epoch."""
        options, epochs = self.options, frames_seen / max(self.epoch_frames, 1)
        if epochs < options.warm_up_epochs:
            return options.learning_rate * (
                1 + (options.warm_up_factor - 1) * epochs / options.warm_up_epochs
            )
        falls = 1 + math.floor(epochs) - math.ceil(options.warm_up_epochs)
        return options.learning_rate * options.warm_up_factor * 2 ** (-falls / 2)


class _HeldoutSchedule(Schedule):
    """Base of schedules whose rate depends on held-out results."""

    may_go_back = True

    @property
    def best(self) -> float:
        """The best held-out result since `begin`."""
        assert self.state.best is not None
        return self.state.best

    def rate(self, frames_seen: int) -> float:
        return self.state.rate


class Newbob(_HeldoutSchedule):
    """Halves when the held-out loss stalls, as Kaldi's nnet1 scripts do."""

    def begin(self, loss: float, accuracy: float) -> None:
        self.state.best = loss

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """Gains are relative to the best loss so far; an epoch without a gain is discarded."""
        state, options = self.state, self.options
        state.epoch += 1
        accepted = loss < self.best
        gain = (self.best - loss) / self.best if accepted else 0.0
        state.best = loss if accepted else self.best
        state.finished = state.halving and gain < options.end_halving_gain
        state.halving = state.halving or gain < options.start_halving_gain
        if state.halving:
            state.rate *= options.halving_factor
        return accepted


class NewbobAccuracy(_HeldoutSchedule):
    """Halves after each epoch that gains less than 0.5 % of the frames; ends at less than 0.1 %."""

    def begin(self, loss: float, accuracy: float) -> None:
        self.state.best = accuracy

    def end_epoch(self, loss: float, accuracy: float) -> bool:
        """Gains: differences of accuracies (0..1) to the best so far; an epoch with a loss is discarded."""
        state = self.state
        state.epoch += 1
        gain = accuracy - self.best
        state.best = max(self.best, accuracy)
        state.finished = gain < 0.001
        if gain < 0.005:
            state.rate *= self.options.halving_factor
        return gain >= 0


def make_schedule(options: ScheduleOptions, epoch_frames: int, terms: float = 1.0) -> Schedule:
    """The schedule that `options.schedule` names, in its initial state. Arguments: see `Schedule`."""
    options.check()
    kinds = dict(zip(NAMES, (Exponential, ExponentialFrames, Step, WarmUp, Newbob, NewbobAccuracy)))
    return kinds[options.schedule](options, epoch_frames, terms)
