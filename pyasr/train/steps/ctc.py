"""CTC training: its options, and what the ranks find in their directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.left_out import LeftOutOptions
from pyasr.base.option_uses import never
from pyasr.base.options import argument, group
from pyasr.feats.inputs import InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.lang.subwords import MODEL, UNITS, UNITS_DIR, WORDS
from pyasr.parallel.strategies import MixingOptions
from pyasr.train.on_ranks import copy_inputs, training_output
from pyasr.train.options import LearnerOptions, LoopOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.rank_reader import FEATURES_FILE, are_prepared
from pyasr.train.targets import TARGETS_FILE, HeldoutOptions, trained_tables

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
class CtcStep:
    """The options of steps/train_ctc.py but those of its job."""

    data: Path = argument("data directory with features and transcripts")
    units_dir: Path = argument("directory of the units (utils/train_subwords.py)")
    network: Path = argument("file of layers (docs/networks.md); layers splice, so --splice-left and --splice-right do not count")
    out: Path = argument("directory of the model to be trained")
    input: InputOptions = group(InputOptions, only=dict.fromkeys(("splice_left", "splice_right"), _LAYERS_SPLICE))
    targets: CtcTargetOptions = group(CtcTargetOptions)
    training: CtcTraining = group(CtcTraining)


@dataclass(frozen=True)
class CtcSpec:
    """The work of all ranks: features of `data`, units of the transcripts in OUT/targets.npz, everything written to `out`."""

    data: Path
    network: Path
    out: Path
    input: InputOptions
    training: CtcTraining


@contextlib.contextmanager
def staged_ctc(step: CtcStep) -> Iterator[CtcSpec]:
    """The work of the ranks; its `out`, of `training_output`, has what they need.

    Raises UserError where options or inputs do not go together.
    """
    step.training.schedule.check_deaf()
    step.training.learner.check()
    input = step.input.unspliced()
    units = [step.units_dir / name for name in (MODEL, UNITS, WORDS)]
    with training_output(step, [*trained_tables(step.data, input), step.data / "text", step.network, *units]) as out:
        (out / UNITS_DIR).mkdir(exist_ok=True)
        copy_inputs(units, out / UNITS_DIR)
        input.save(out)
        keep_origin(out, step.data)
        if not are_prepared(out / TARGETS_FILE, out / FEATURES_FILE):
            from pyasr.train.ctc_targets import prepare  # imports torch: only when there is work to do

            prepare(step, input, out)
        yield CtcSpec(step.data, step.network, out, input, step.training)
