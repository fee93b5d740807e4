"""The options that trainings have in common. This module does not import torch, so `--help` and the checks of a command line are quick."""

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
_MEASURED = any_of(if_set("combine"), if_is("priors", "posteriors"), if_set("fix-period-frames"), if_set("shrink-period-frames"),
                   unless_is("shrink-value", 1.0))  # fmt: skip
FEED_FORWARD = unless_set("network", "for feed-forward networks only")
_WITHOUT_DBN = unless_set("dbn", "it brings all hidden layers and was trained on untransformed input")
_ANY_FRAMES = unless_set("teacher", "its posteriors belong to single frames as they are")
_ALIGNED = unless_set("teacher", "what is measured on a sample needs the alignment")
_STATELESS = unless_set("carry-state", "the chunks of a sample would all begin without a state")


@dataclass(frozen=True)
class LearnerOptions(ComputeOptions):
    """How a rank learns."""

    natural_gradient: NaturalGradientOptions = group(NaturalGradientOptions)
    momentum: float = option(0.0, "share of earlier updates in the next one", minimum=0.0, maximum=0.999)
    l2: float = option(0.0, "penalty on the squared norm of the parameters, a frame (nnet3's value divided by the outputs of a "
                            "chunk); each of P learning ranks applies a P-th", minimum=0.0)  # fmt: skip
    max_change: float = option(0.0, "greatest Euclidean norm of a minibatch's change of the parameters; 0: no limit", minimum=0.0)
    max_change_per_layer: float = option(0.0, "the same for the parameters of each layer (nnet3: 0.75)", minimum=0.0)
    max_change_of_output: float = option(0.0, "the same for the output layer (nnet3: 1.5); 0: as the other layers", minimum=0.0)
    output_bias_rate: float = option(1.0, "factor on the learning rate of the output layer's biases (nnet1: 0.1)", minimum=0.0)
    last_layers_rate: float = option(1.0, "factor on the learning rate of the last two layers (nnet2's tanh recipe: 0.5)", minimum=0.0)
    dropout_schedule: str = option("", "dropout in all layers that have it, over the training: 0,0@0.20,0.5@0.50,0 stays 0 for a fifth, "
                                       "is 0.5 in the middle and 0 in the end; empty: what the layers say")  # fmt: skip

    def check(self) -> None:
        """Raise UserError for options that no network can be trained by."""
        super().check()
        self.natural_gradient.check()
        self.schedule_of_dropout()

    def schedule_of_dropout(self) -> DropoutSchedule | None:
        """None: dropout stays as it is."""
        return DropoutSchedule(self.dropout_schedule) if self.dropout_schedule else None


@dataclass(frozen=True)
class StoreOptions:
    """How a rank keeps its frames."""

    store_type: str = option("auto", "type in which features are kept: auto = that of the products, byte = 8 bits a number",
                             choices=("auto", "float32", "float16", "bfloat16", "byte"))  # fmt: skip
    max_store_mb: int = option(0, "memory for a rank's frames; more are streamed from disk in blocks; 0: as much as is free", minimum=0)


@dataclass(frozen=True)
class LoopOptions(SeedOptions):
    """When a training job reports and saves; frames are those seen over all ranks. The first is not an option, but a value for criteria
    that leave no choice."""

    stop_at_divergence = True

    log_frames: int = option(200_000, "frames between two log lines", minimum=1)
    checkpoint_minutes: float = option(10.0, "time between checkpoints within an epoch, made with log lines; 0: no such ones", minimum=0.0)
    checkpoint_frames: int = option(0, "frames between two checkpoints within an epoch; 0: no such ones", minimum=0)
    max_skipped: int = option(100, "minibatches, or chunks of LF-MMI, that a rank may leave out because they are not finite", minimum=0)


@dataclass(frozen=True)
class FrameLoopOptions(LoopOptions):
    """The same for the cross-entropy of frames, of which it is known what guessing comes to."""

    stop_at_divergence: bool = option(True, "end a training whose objective is clearly worse than guessing; false: only one whose "
                                            "objective is not a number")  # fmt: skip


@dataclass(frozen=True)
class OneLearnerOptions:
    """Which models are saved beside that of all learners."""

    save_learner: bool = option(False, "save in OUT/learner the model of one learner too, as the last mixing has left it, before the "
                                       "mean of all is taken")  # fmt: skip


@dataclass(frozen=True)
class SampleOptions:
    """The sample."""

    sample_frames: int = option(10_000, "training frames for combining models, priors from posteriors, saturation and shrinking",
                                minimum=1, only=_MEASURED)  # fmt: skip


@dataclass(frozen=True)
class CombineOptions:
    """How the last models of a training are combined."""

    combine: str = option("none", "final model; average: of the last models; weights: one for each of them and each layer, by L-BFGS",
                          choices=("none", "average", "weights"), only=_ALIGNED + _STATELESS)  # fmt: skip
    combine_models: int = option(20, "greatest number of models that are combined", minimum=1,
                                 only=if_set("combine"))  # fmt: skip
    combine_period_frames: int = option(200_000, "frames, over all ranks, between two of these models", minimum=1,
                                        only=if_set("combine"))  # fmt: skip
    combine_start: str = option("better", "begin with the better of the best single model and the average, or with the average",
                                choices=("better", "average"), only=if_is("combine", "weights"))  # fmt: skip
    combine_iterations: int = option(20, "iterations of L-BFGS", minimum=1, only=if_is("combine", "weights"))


@dataclass(frozen=True)
class PriorOptions:
    """How a network takes account of the frequencies of pdfs."""

    presoftmax_power: float = option(0.0, "logits are scaled by the pdf's frequency to this power, nnet2 takes -0.25; 0: not", maximum=0.0,
                                     only=FEED_FORWARD)  # fmt: skip
    priors: str = option("alignments", "priors for decoding: relative frequencies in the alignments, or the mean posteriors of the trained "
                         "network on --sample-frames", choices=("alignments", "posteriors"))  # fmt: skip


@dataclass(frozen=True)
class InputTransformOptions:
    """What a network sees of its input."""

    input_transform: str = option("none", "fixed transform of the spliced input; lda: as Kaldi's nnet2 recipes", choices=("none", "lda"),
                                  only=FEED_FORWARD + _WITHOUT_DBN + _ANY_FRAMES)  # fmt: skip
    within_class_factor: float = option(0.0001, "variance that a dimension keeps which tells no pdfs apart",
                                        minimum=0.0, only=if_set("input-transform"))  # fmt: skip
    max_singular_value: float = option(5.0, "greatest singular value of the matrix", minimum=0.0,
                                       only=if_set("input-transform"))  # fmt: skip


@dataclass(frozen=True)
class TeacherOptions:
    """A network to learn from instead of the alignment."""

    teacher: Path | None = option(None, "directory of a network whose posteriors are the targets; it must have the tree of ALI_DIR",
                                  only=FEED_FORWARD)  # fmt: skip
    teacher_data: Path | None = option(None, "data directory with the teacher's features; DATA unless given",
                                       only=if_set("teacher"))  # fmt: skip
    teacher_mass: float = option(0.98, "share of the posteriors' mass that is kept of each frame",
                                 minimum=0.01, maximum=1.0, only=if_set("teacher"))  # fmt: skip


@dataclass(frozen=True)
class GrowthOptions:
    """How a network grows in training; times in frames over all ranks."""

    layer_period_frames: int = option(0, "start with 1 hidden layer, add one after every so many frames; 0: all from the start", minimum=0,
                                      only=FEED_FORWARD + _WITHOUT_DBN)  # fmt: skip
    mix_up: int = option(0, "outputs from halfway between the last new layer and the end; 0: one for each pdf", minimum=0,
                         only=FEED_FORWARD)  # fmt: skip
    mix_up_power: float = option(0.25, "outputs of a pdf are in proportion to its frames to this power", minimum=0.0,
                                 only=if_set("mix-up"))  # fmt: skip
    mix_up_min_count: float = option(10.0, "least number of training frames for one of several outputs of a pdf",
                                     minimum=0.0, only=if_set("mix-up"))  # fmt: skip
    mix_up_stddev: float = option(0.01, "standard deviation of the difference between an output's weights and its copies'",
                                  minimum=0.0, only=if_set("mix-up"))  # fmt: skip
    fix_period_frames: int = option(0, "draw saturated units back after every so many frames; 0: never", minimum=0,
                                    only=FEED_FORWARD + _ALIGNED + if_is("activation", *SATURATING))  # fmt: skip
    shrink_period_frames: int = option(0, "find a factor for the parameters of each layer after every so many frames; 0: never", minimum=0,
                                       only=FEED_FORWARD + _ALIGNED)  # fmt: skip
    shrink_value: float = option(1.0, "factor for all parameters wherever units are found saturated; 1: none", minimum=0.1, maximum=1.0,
                                 only=any_of(if_is("activation", *SATURATING), if_set("network")) + _ALIGNED + _STATELESS)  # fmt: skip
    shrink_saturation_threshold: float = option(0.4, "what is saturated: 1 - mean relative derivative of sigmoid and tanh units above this",
                                                only=unless_is("shrink-value", 1.0))  # fmt: skip
    shrink_value_period_frames: int = option(400_000, "look at the saturation after every so many frames", minimum=1,
                                             only=unless_is("shrink-value", 1.0))  # fmt: skip

    @property
    def measures(self) -> dict[str, bool]:
        """What needs a sample of the training frames, and whether it is asked for."""
        return {"--fix-period-frames": self.fix_period_frames > 0, "--shrink-period-frames": self.shrink_period_frames > 0,
                "--shrink-value": self.shrink_value < 1}  # fmt: skip


def check_growth(growth: GrowthOptions, goes_back: bool) -> None:
    """Raise UserError where a network cannot grow as asked. `goes_back`: the schedule may return to an earlier model."""
    if goes_back and (growth.layer_period_frames or growth.mix_up):
        sentence = "this --schedule goes back to earlier models, which have another shape; give --schedule exponential"
        raise UserError(f"--layer-period-frames and --mix-up: {sentence}")


@dataclass(frozen=True)
class MomentumOptions:
    """The course of the momentum; time is frames seen over all ranks."""

    momentum_initial: float = option(0.5, "scheduled momentum at the beginning", minimum=0.0, maximum=0.999)
    momentum_final: float = option(0.9, "scheduled momentum at the end", minimum=0.0, maximum=0.999)
    momentum_steps: int = option(40, "steps from the initial to the final momentum", minimum=1)
    momentum_step_frames: int = option(500_000, "frames between two steps", minimum=1)
    with_bug: bool = option(True, "apply the final momentum from the beginning, as Kaldi does; the rate follows the scheduled one")

    def scheduled(self, frames_seen: int) -> float:
        """The momentum that the rate is scaled by."""
        step = min(frames_seen // self.momentum_step_frames, self.momentum_steps)
        return self.momentum_initial + step * (self.momentum_final - self.momentum_initial) / self.momentum_steps

    def applied(self, frames_seen: int) -> float:
        """The momentum m of the updates."""
        return self.momentum_final if self.with_bug else self.scheduled(frames_seen)


@dataclass(frozen=True)
class RbmOptions:
    """How the machines are trained; names and defaults of Kaldi's pretrain_dbn.sh."""

    rbm_iter: int = option(1, "epochs of each Bernoulli machine; the Gaussian one has twice as many", minimum=1)
    rbm_lr: float = option(0.4, "learning rate of Bernoulli machines, of one rank, for gradients averaged over the minibatch", minimum=1e-9)
    rbm_lr_low: float = option(0.01, "learning rate of the Gaussian machine, likewise", minimum=1e-9)
    rbm_l2penalty: float = option(0.0002, "L2 penalty of the weights", minimum=0.0)
    param_stddev: float = option(0.1, "standard deviation of the initial weights", minimum=0.0)
    max_frames: int = option(6000, "longer utterances are left out", minimum=1)
