"""Options that several trainings share. This module does not import torch, so that `--help` and command-line
checks are fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.option_uses import any_of, if_is, if_set, unless_is, unless_set
from pyasr.base.cli.options import group, option
from pyasr.base.cli.seeds import SeedOptions
from pyasr.base.errors import UserError
from pyasr.nn.network_options import NaturalGradientOptions
from pyasr.train.compute import ComputeOptions
from pyasr.train.dropout_schedule import DropoutSchedule

SATURATING = ("tanh", "sigmoid")
_MEASURED = any_of(
    if_set("combine"),
    if_is("priors", "posteriors"),
    if_set("fix-period-frames"),
    if_set("shrink-period-frames"),
    unless_is("shrink-value", 1.0),
)
FEED_FORWARD = unless_set("network", "for feed-forward networks only")
_WITHOUT_DBN = unless_set("dbn", "a DBN contains all hidden layers and was trained on untransformed input")
_ANY_FRAMES = unless_set("teacher", "the teacher's posteriors are for unmodified frames")
_ALIGNED = unless_set("teacher", "measurements on a sample need the alignment")
_STATELESS = unless_set("carry-state", "the chunks of a sample would all begin without a state")


@dataclass(frozen=True)
class LearnerOptions(ComputeOptions):
    """How a rank learns."""

    heading = "optimisation"

    natural_gradient: NaturalGradientOptions = group(NaturalGradientOptions)
    momentum: float = option(
        0.0,
        "factor on the previous update, which is added to each update; 0: no momentum",
        minimum=0.0,
        maximum=0.999,
    )
    l2: float = option(
        0.0,
        "penalty per frame on the squared norm of the parameters (nnet3's value divided by the "
        "outputs of a chunk); each of P learning ranks applies 1/P of it; 0: no penalty",
        minimum=0.0,
        rare=True,
    )
    max_change: float = option(
        0.0, "maximum Euclidean norm of the change of all parameters by a minibatch; 0: no limit", minimum=0.0
    )
    max_change_per_layer: float = option(
        0.0,
        "maximum Euclidean norm of the change of each layer by a minibatch (nnet3: 0.75); 0: no limit",
        minimum=0.0,
        rare=True,
    )
    max_change_of_output: float = option(
        0.0,
        "maximum Euclidean norm of the change of the output layer by a minibatch (nnet3: 1.5); 0: "
        "--max-change-per-layer",
        minimum=0.0,
        rare=True,
    )
    output_bias_rate: float = option(
        1.0, "factor on the learning rate of the output layer's biases (nnet1: 0.1)", minimum=0.0, rare=True
    )
    last_layers_rate: float = option(
        1.0,
        "factor on the learning rate of the last two layers (nnet2's tanh recipe: 0.5)",
        minimum=0.0,
        rare=True,
    )
    dropout_schedule: str = option(
        "",
        "dropout over the training, for all layers with dropout, such as 0,0@0.20,0.5@0.50,0: 0 "
        "for the first fifth, then up to 0.5 at the middle and down to 0 at the end; empty: the "
        "layers' own",
        rare=True,
    )

    def check(self) -> None:
        """Raise UserError for invalid or contradictory options."""
        super().check()
        self.natural_gradient.check()
        self.schedule_of_dropout()

    def schedule_of_dropout(self) -> DropoutSchedule | None:
        """The schedule of `dropout_schedule`; None if dropout is constant."""
        return DropoutSchedule(self.dropout_schedule) if self.dropout_schedule else None


@dataclass(frozen=True)
class UtteranceLearnerOptions(LearnerOptions):
    """How a rank learns from whole utterances."""

    heading = "optimisation"

    minibatch: int = option(
        1, "frames per minibatch; a longer utterance is its own minibatch", minimum=1, common=True
    )


@dataclass(frozen=True)
class StoreOptions:
    """How a rank stores its frames."""

    heading = "resources"

    store_type: str = option(
        "auto",
        "number type of features in memory; auto: that of the matrix products; byte: 8 bits per number",
        choices=("auto", "float32", "float16", "bfloat16", "byte"),
    )
    max_store_mb: int = option(
        0,
        "memory of a rank for frames, MB; frames that do not fit are streamed from disk; 0: the free memory",
        minimum=0,
    )


@dataclass(frozen=True)
class LoopOptions(SeedOptions):
    """When a training job reports and saves, in frames over all ranks. `stop_at_divergence` is a constant
    here, an option in `FrameLoopOptions`."""

    heading = "progress and checkpoints"

    stop_at_divergence = True

    log_frames: int = option(200_000, "frames over all ranks between log lines", minimum=1, rare=True)
    checkpoint_minutes: float = option(
        10.0, "minutes between checkpoints within an epoch, written at log lines; 0: none", minimum=0.0
    )
    checkpoint_frames: int = option(
        0, "frames over all ranks between checkpoints within an epoch; 0: none", minimum=0, rare=True
    )
    max_skipped: int = option(
        100,
        "maximum number of minibatches (LF-MMI: chunks) that a rank skips because they are not finite",
        minimum=0,
        rare=True,
    )


@dataclass(frozen=True)
class FrameLoopOptions(LoopOptions):
    """The same for frame-level cross-entropy, whose value for guessing is known."""

    heading = "progress and checkpoints"

    stop_at_divergence: bool = option(
        True,
        "end the training if its objective is clearly worse than guessing; false: only if it is not a number",
        rare=True,
    )


@dataclass(frozen=True)
class OneLearnerOptions:
    """Models that are saved in addition to the mean of all learners."""

    heading = "parallel training"

    save_learner: bool = option(
        False,
        "also save in OUT/learner the model of one learner after the last mixing, before the mean "
        "of all learners",
        rare=True,
    )


@dataclass(frozen=True)
class SampleOptions:
    """The random sample of training frames for measurements."""

    heading = "optimisation"

    sample_frames: int = option(
        10_000,
        "number of random training frames for estimates on the network: combination, priors, "
        "saturation, shrinking",
        minimum=1,
        only=_MEASURED,
        rare=True,
    )


@dataclass(frozen=True)
class CombineOptions:
    """How the last models of a training are combined."""

    heading = "optimisation"

    combine: str = option(
        "none",
        "combination of the last models; average: their mean; weights: a weight per model and "
        "layer, found by L-BFGS",
        choices=("none", "average", "weights"),
        only=_ALIGNED + _STATELESS,
    )
    combine_models: int = option(
        20, "maximum number of models to combine", minimum=1, only=if_set("combine"), rare=True
    )
    combine_period_frames: int = option(
        200_000,
        "frames over all ranks between models to combine",
        minimum=1,
        only=if_set("combine"),
        rare=True,
    )
    combine_start: str = option(
        "better",
        "start of L-BFGS; average: the average; better: the better of the average and the best single model",
        choices=("better", "average"),
        only=if_is("combine", "weights"),
        rare=True,
    )
    combine_iterations: int = option(
        20, "iterations of L-BFGS", minimum=1, only=if_is("combine", "weights"), rare=True
    )


@dataclass(frozen=True)
class PriorOptions:
    """How a network uses the frequencies of pdfs."""

    heading = "network"

    presoftmax_power: float = option(
        0.0,
        "scale the outputs before the softmax by the pdf's frequency to this power (nnet2: "
        "-0.25); 0: no scaling",
        maximum=0.0,
        only=FEED_FORWARD,
        rare=True,
    )
    priors: str = option(
        "alignments",
        "priors for decoding; alignments: relative frequencies; posteriors: mean posteriors of "
        "the trained network on --sample-frames frames",
        choices=("alignments", "posteriors"),
    )


@dataclass(frozen=True)
class InputTransformOptions:
    """The fixed transform of the network's input."""

    heading = "network"

    input_transform: str = option(
        "none",
        "fixed transform of the spliced input; lda: as in Kaldi's nnet2 recipes",
        choices=("none", "lda"),
        only=FEED_FORWARD + _WITHOUT_DBN + _ANY_FRAMES,
    )
    within_class_factor: float = option(
        0.0001,
        "variance left in dimensions that do not discriminate between pdfs",
        minimum=0.0,
        only=if_set("input-transform"),
        rare=True,
    )
    max_singular_value: float = option(
        5.0, "maximum singular value of the transform", minimum=0.0, only=if_set("input-transform"), rare=True
    )


@dataclass(frozen=True)
class TeacherOptions:
    """A teacher network, whose posteriors replace the alignment as targets."""

    heading = "teacher"

    teacher: Path | None = option(
        None,
        "model directory of a network whose posteriors are the targets; needs the tree of ALI_DIR",
        only=FEED_FORWARD,
    )
    teacher_data: Path | None = option(
        None, "data directory with the teacher's features; none: DATA", only=if_set("teacher")
    )
    teacher_mass: float = option(
        0.98,
        "fraction of the posterior mass to keep per frame",
        minimum=0.01,
        maximum=1.0,
        only=if_set("teacher"),
        rare=True,
    )

    @property
    def directory(self) -> Path:
        """The model directory of the teacher, of options that name one."""
        assert self.teacher is not None
        return self.teacher


@dataclass(frozen=True)
class GrowthOptions:
    """How a network changes during training; periods in frames over all ranks."""

    heading = "network"

    layer_period_frames: int = option(
        0,
        "start with 1 hidden layer and add one each time after this number of frames; 0: all from the start",
        minimum=0,
        only=FEED_FORWARD + _WITHOUT_DBN,
        rare=True,
    )
    mix_up: int = option(
        0,
        "number of outputs, several of them for a frequent pdf, from halfway between the last new "
        "layer and the end; 0: one per pdf",
        minimum=0,
        only=FEED_FORWARD,
        rare=True,
    )
    mix_up_power: float = option(
        0.25,
        "exponent of a pdf's number of frames, to which its number of outputs is proportional",
        minimum=0.0,
        only=if_set("mix-up"),
        rare=True,
    )
    mix_up_min_count: float = option(
        10.0,
        "minimum number of training frames per output if a pdf has several outputs",
        minimum=0.0,
        only=if_set("mix-up"),
        rare=True,
    )
    mix_up_stddev: float = option(
        0.01,
        "standard deviation of the noise on the weights of copied outputs",
        minimum=0.0,
        only=if_set("mix-up"),
        rare=True,
    )
    fix_period_frames: int = option(
        0,
        "frames between repairs of saturated and linear units; 0: never",
        minimum=0,
        only=FEED_FORWARD + _ALIGNED + if_is("activation", *SATURATING),
        rare=True,
    )
    shrink_period_frames: int = option(
        0,
        "frames between rescalings of each layer by an optimised factor; 0: never",
        minimum=0,
        only=FEED_FORWARD + _ALIGNED,
        rare=True,
    )
    shrink_value: float = option(
        1.0,
        "factor on all parameters when units are saturated; 1: no change",
        minimum=0.1,
        maximum=1.0,
        only=any_of(if_is("activation", *SATURATING), if_set("network")) + _ALIGNED + _STATELESS,
        rare=True,
    )
    shrink_saturation_threshold: float = option(
        0.4,
        "saturation (1 - mean relative derivative of sigmoid and tanh units) above which "
        "--shrink-value applies",
        only=unless_is("shrink-value", 1.0),
        rare=True,
    )
    shrink_value_period_frames: int = option(
        400_000,
        "frames between measurements of the saturation",
        minimum=1,
        only=unless_is("shrink-value", 1.0),
        rare=True,
    )

    @property
    def measures(self) -> dict[str, bool]:
        """Options that need a sample of the training frames, and whether each is requested."""
        return {
            "--fix-period-frames": self.fix_period_frames > 0,
            "--shrink-period-frames": self.shrink_period_frames > 0,
            "--shrink-value": self.shrink_value < 1,
        }


def check_growth(growth: GrowthOptions, goes_back: bool) -> None:
    """Raise UserError if a network cannot grow as requested. `goes_back`: the schedule may return to an
    earlier model."""
    if goes_back and (growth.layer_period_frames or growth.mix_up):
        sentence = (
            "this --schedule may return to an earlier model of another shape; give --schedule exponential"
        )
        raise UserError(f"--layer-period-frames and --mix-up: {sentence}")


@dataclass(frozen=True)
class MomentumOptions:
    """Schedule of the momentum, in frames seen over all ranks."""

    heading = "optimisation"

    momentum_initial: float = option(0.5, "scheduled momentum at the beginning", minimum=0.0, maximum=0.999)
    momentum_final: float = option(0.9, "scheduled momentum at the end", minimum=0.0, maximum=0.999)
    momentum_steps: int = option(
        40, "number of steps from the initial to the final momentum", minimum=1, rare=True
    )
    momentum_step_frames: int = option(
        500_000, "frames over all ranks between momentum steps", minimum=1, rare=True
    )
    with_bug: bool = option(
        True,
        "apply the final momentum from the beginning, as Kaldi does; the rate follows the scheduled momentum",
        rare=True,
    )

    def scheduled(self, frames_seen: int) -> float:
        """The scheduled momentum, on which the learning rate depends."""
        step = min(frames_seen // self.momentum_step_frames, self.momentum_steps)
        return (
            self.momentum_initial + step * (self.momentum_final - self.momentum_initial) / self.momentum_steps
        )

    def applied(self, frames_seen: int) -> float:
        """The momentum m of the updates."""
        return self.momentum_final if self.with_bug else self.scheduled(frames_seen)


@dataclass(frozen=True)
class RbmOptions:
    """Training of the RBMs; names and defaults of Kaldi's pretrain_dbn.sh."""

    heading = "optimisation"

    rbm_iter: int = option(
        1, "epochs of each Bernoulli RBM; the Gaussian RBM has twice as many", minimum=1, common=True
    )
    rbm_lr: float = option(
        0.4,
        "learning rate of one rank for Bernoulli RBMs, for the mean gradient over the minibatch",
        minimum=1e-9,
        common=True,
    )
    rbm_lr_low: float = option(
        0.01,
        "learning rate of one rank for the Gaussian RBM, for the mean gradient over the minibatch",
        minimum=1e-9,
        common=True,
    )
    rbm_l2penalty: float = option(0.0002, "L2 penalty on the weights", minimum=0.0, rare=True)
    param_stddev: float = option(0.1, "standard deviation of the initial weights", minimum=0.0, rare=True)
    max_frames: int = option(
        6000, "maximum number of frames of an utterance; longer ones are skipped", minimum=1
    )
