"""Pretraining of a deep belief net: options, and preparation of the directory for the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.nn.network_options import HiddenOptions
from pyasr.parallel.strategies import MixingOptions
from pyasr.train.compute import ComputeOptions
from pyasr.train.schedules import ScalingOptions
from pyasr.train.steps.training_step import TrainingSpec, TrainingStep
from pyasr.train.targets.pdf_targets import HeldoutOptions, choose_heldout, save_targets, trained_tables
from pyasr.train.targets.rank_reader import FEATURES_FILE
from pyasr.train.training_options import LoopOptions, MomentumOptions, RbmOptions, StoreOptions

UTTERANCES_FILE = "utterances.npz"


@dataclass(frozen=True)
class DbnTraining:
    """All options of the pretraining itself."""

    hidden: HiddenOptions = group(HiddenOptions, hidden_layers=6, hidden_dim=2048)
    rbm: RbmOptions = group(RbmOptions)
    momentum: MomentumOptions = group(MomentumOptions)
    scaling: ScalingOptions = group(ScalingOptions)
    compute: ComputeOptions = group(ComputeOptions, minibatch=100)
    store: StoreOptions = group(StoreOptions)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class PretrainSpec(TrainingSpec):
    """Spec for all ranks; the utterances are in OUT/utterances.npz."""

    training: DbnTraining


@dataclass(frozen=True)
class DbnStep(TrainingStep):
    """The options of steps/pretrain_dbn.py except those of its job."""

    data: Path = argument("data directory with features")
    out: Path = argument("output directory of the DBN")
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    heldout: HeldoutOptions = group(HeldoutOptions)
    training: DbnTraining = group(DbnTraining)

    spec_class = PretrainSpec
    function, targets_file, parts, log = (
        "pyasr.train.objectives.dbn_training:pretrain_rank",
        UTTERANCES_FILE,
        "rbm*/",
        "pretrain.log",
    )

    def check(self) -> None:
        """Raise UserError for a type of matrix products that the device does not support."""
        self.training.compute.check()

    def inputs(self) -> list[Path]:
        """The features."""
        return trained_tables(self.data, self.input)

    def prepare(self, out: Path) -> None:
        """Write the utterances of the ranks and the feature tables."""
        prepare_utterances(self.data, out, self.heldout, self.training.rbm.max_frames, self.input.cmvn)


def prepare_utterances(
    data: Path, out: Path, heldout: HeldoutOptions, max_frames: int, cmvn: str = "none"
) -> None:
    """Choose the held-out set, and write OUT/utterances.npz (targets with a single pdf, without alignments)
    and feature tables.

    cmvn  `cmvn` of the ranks' input options
    """
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    keys = [key for key in reader.keys if 0 < reader.num_frames(key) <= max_frames]
    if len(keys) < len(reader.keys):
        log.info(
            f"skipped {len(reader.keys) - len(keys)} of {len(reader.keys)} utterances, empty or with more "
            f"than {max_frames} frames"
        )
    if not keys:
        raise UserError(
            f"{data}: no utterance has from 1 to {max_frames} frames; raise --max-frames, or compute the "
            "features again"
        )
    lengths = np.array([reader.num_frames(key) for key in keys])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    held = choose_heldout(keys, lengths, reader.original, heldout)
    reader.save_tables(out / FEATURES_FILE, keys, lengths, cmvn)
    save_targets(
        out / UTTERANCES_FILE, keys, offsets, (np.zeros(length, np.int32) for length in lengths), held, 1
    )
