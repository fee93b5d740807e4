"""CTC training: its options, and what the ranks find in their directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.option_uses import never
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.skipped_utterances import LeftOutOptions
from pyasr.feats.inputs import InputOptions
from pyasr.lang.lang_dirs.subwords import MODEL, UNITS, UNITS_DIR, WORDS
from pyasr.parallel.strategies import MixingOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.steps.loss import CTC, Loss
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.steps.training_step import TrainingStep
from pyasr.train.targets.pdf_targets import HeldoutOptions, trained_tables
from pyasr.train.training_options import LearnerOptions, LoopOptions

_LAYERS_SPLICE = never("the layers of the network splice")


@dataclass(frozen=True)
class CtcTraining:
    """All options of the training itself; --minibatch counts frames, those that are repeated too. The learning rate is for the mean over
    units, of which a minibatch has as many as is usual in these data."""

    schedule: ScheduleOptions = group(ScheduleOptions, learning_rate=0.3)
    learner: LearnerOptions = group(LearnerOptions, minibatch=8000)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class CtcTargetOptions(HeldoutOptions):
    """Which utterances are trained on."""

    missing: LeftOutOptions = group(LeftOutOptions, max_missing=0.05)


@dataclass(frozen=True)
class CtcStep(TrainingStep):
    """The options of steps/train_ctc.py but those of its job."""

    data: Path = argument("data directory with features and transcripts")
    units_dir: Path = argument("directory of the units (utils/train_subwords.py)")
    network: Path = argument("file of layers (docs/networks.md); layers splice, so --splice-left and --splice-right do not count")
    out: Path = argument("directory of the model to be trained")
    input: InputOptions = group(InputOptions, only=dict.fromkeys(("splice_left", "splice_right"), _LAYERS_SPLICE))
    targets: CtcTargetOptions = group(CtcTargetOptions)
    training: CtcTraining = group(CtcTraining)

    function = "pyasr.train.objectives.ctc_training:train_rank"

    @property
    def loss(self) -> Loss:
        """What the network learns."""
        return CTC

    @property
    def rank_input(self) -> InputOptions:
        """Not spliced."""
        return self.input.unspliced()

    def inputs(self) -> list[Path]:
        """Features, transcripts, layers and units."""
        return [*trained_tables(self.data, self.rank_input), self.data / "text", self.network, *self._units]

    def begin(self, out: Path) -> None:
        """Check the loss, and copy the units."""
        self.loss.make()
        (out / UNITS_DIR).mkdir(exist_ok=True)
        copy_inputs(self._units, out / UNITS_DIR)

    def prepare(self, out: Path) -> None:
        """Units of the transcripts."""
        from pyasr.train.steps.ctc_targets import prepare  # imports torch: only when there is work to do

        prepare(self, self.rank_input, out)

    def spec(self, out: Path) -> CtcSpec:
        """The work of all ranks."""
        return CtcSpec(self.data, self.network, out, self.rank_input, self.training, self.loss)

    @property
    def _units(self) -> list[Path]:
        return [self.units_dir / name for name in (MODEL, UNITS, WORDS)]


@dataclass(frozen=True)
class CtcSpec:
    """The work of all ranks: features of `data`, units of the transcripts in OUT/targets.npz, everything written to `out`.

    loss  what the network learns
    """

    data: Path
    network: Path
    out: Path
    input: InputOptions
    training: CtcTraining
    loss: Loss = CTC
