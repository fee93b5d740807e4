"""CTC training: options, and preparation of the directory for the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.cli.options import argument, group
from pyasr.feats.inputs import InputOptions
from pyasr.lang.lang_dirs.subwords import MODEL, UNITS, UNITS_DIR, WORDS
from pyasr.parallel.strategies import MixingOptions
from pyasr.train.minibatches.over_time import SPLICED_BY_LAYERS
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.steps.loss import CTC, Loss
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.steps.training_step import TrainingSpec, TrainingStep
from pyasr.train.targets.pdf_targets import CtcTargetOptions, trained_tables
from pyasr.train.training_options import LoopOptions, UtteranceLearnerOptions


@dataclass(frozen=True)
class CtcTraining:
    """All options of the training itself. --minibatch counts frames, padding included. The learning rate is
    for the mean over units, with the mean number of units per minibatch of these data."""

    schedule: ScheduleOptions = group(ScheduleOptions, learning_rate=0.3)
    learner: UtteranceLearnerOptions = group(UtteranceLearnerOptions, minibatch=8000)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class CtcSpec(TrainingSpec):
    """Spec for all ranks; the units of the transcripts are in OUT/targets.npz.

    network  file of layers
    loss     training criterion
    """

    training: CtcTraining
    network: Path
    loss: Loss = CTC
    objective: str = field(default="pyasr.train.objectives.ctc_training:CtcRank", kw_only=True)


@dataclass(frozen=True)
class CtcStep(TrainingStep):
    """The options of steps/train_ctc.py except those of its job."""

    data: Path = argument("data directory with features and transcripts")
    units_dir: Path = argument("directory of the units (utils/train_subwords.py)")
    network: Path = argument(
        "file of layers (docs/networks/networks.md), which also define the splicing of the input"
    )
    out: Path = argument("output directory of the model")
    input: InputOptions = group(InputOptions, only=SPLICED_BY_LAYERS)
    targets: CtcTargetOptions = group(CtcTargetOptions)
    training: CtcTraining = group(CtcTraining)

    layers_splice = True
    spec_class = CtcSpec

    @property
    def loss(self) -> Loss:
        """Training criterion."""
        return CTC

    def check(self) -> None:
        """Raise UserError for contradictory options."""
        self.training.schedule.check_without_heldout()
        self.training.learner.check()

    def inputs(self) -> list[Path]:
        """Features, transcripts, layers and units."""
        return [*trained_tables(self.data, self.rank_input), self.data / "text", self.network, *self._units]

    def begin(self, out: Path) -> None:
        """Check the loss, and copy the units."""
        self.loss.make()
        (out / UNITS_DIR).mkdir(exist_ok=True)
        copy_inputs(self._units, out / UNITS_DIR)

    def prepare(self, out: Path) -> None:
        """Write the units of the transcripts and the feature tables."""
        from pyasr.train.steps.ctc_targets import prepare  # imports torch: only when there is work to do

        prepare(self.data, self.units_dir, self.network, self.rank_input, self.targets, out)

    @property
    def _units(self) -> list[Path]:
        return [self.units_dir / name for name in (MODEL, UNITS, WORDS)]
