"""LF-MMI training: options, and preparation of the directory for the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base.cli.option_uses import never
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions, check_skipped
from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import MODEL, SUBSAMPLING, read_subsampling, read_transitions, read_tree
from pyasr.io.int_vectors import job_archive_files
from pyasr.io.keys import Keys
from pyasr.io.openfst import write_fst
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.parallel.strategies import MixingOptions
from pyasr.sequence.lfmmi.aligned_phones_file import save_aligned_phones
from pyasr.sequence.lfmmi.chain import num_subsampled, output_numbers
from pyasr.sequence.lfmmi.denominator_graph import make_denominator_graph
from pyasr.sequence.lfmmi.lfmmi_options import LfMmiOptions
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm
from pyasr.sequence.lfmmi.supervision import SupervisionOptions, ToleranceOptions
from pyasr.train.minibatches.over_time import SPLICED_BY_LAYERS, ChunkOptions
from pyasr.train.perturbing import PerturbOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.steps.training_step import TrainingSpec, TrainingStep
from pyasr.train.targets.alignment_spool import SPOOL_FILE
from pyasr.train.targets.pdf_targets import TARGETS_FILE, choose_heldout, join, save_targets, trained_tables
from pyasr.train.targets.phone_spool import PhoneSpool
from pyasr.train.targets.prepare_targets import TargetOptions
from pyasr.train.targets.rank_reader import FEATURES_FILE
from pyasr.train.training_options import (
    CombineOptions,
    LearnerOptions,
    LoopOptions,
    SampleOptions,
    StoreOptions,
)

DENOMINATOR_FILE, PHONES_FILE, PHONE_LM_FILE = "denominator.npz", "phones.npz", "phone_lm.fst"
_TREE_FILES = (MODEL, "tree", "phones.txt", SUBSAMPLING)
_BLOCK = 1000  # utterances whose targets are computed at once
_NO_ROOM = "it has more phones than outputs, or too many in a short time"


@dataclass(frozen=True)
class RegularisationOptions:
    """Regularisation in addition to the penalty on the outputs."""

    heading = "objective"

    xent_regularize: float = option(
        0.1,
        "weight of the cross-entropy of a second output layer, which is used only in training; 0: none",
        minimum=0.0,
    )


@dataclass(frozen=True)
class LfMmiTraining:
    """All options of the training itself; frames are counted at the network's outputs."""

    over_time: ChunkOptions = group(
        ChunkOptions, only={"carry_state": never("LF-MMI takes chunks in random order")}, chunk=150
    )
    objective: LfMmiOptions = group(LfMmiOptions)
    regularisation: RegularisationOptions = group(RegularisationOptions)
    tolerance: ToleranceOptions = group(ToleranceOptions)
    phone_lm: PhoneLmOptions = group(PhoneLmOptions)
    schedule: ScheduleOptions = group(
        ScheduleOptions, learning_rate=1.0, schedule="exponential-frames", num_epochs=6, final_factor=0.1
    )
    learner: LearnerOptions = group(LearnerOptions, minibatch=1600, max_change=2.0)
    perturb: PerturbOptions = group(PerturbOptions)
    store: StoreOptions = group(StoreOptions)
    combine: CombineOptions = group(CombineOptions)
    sample: SampleOptions = group(SampleOptions)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)

    @property
    def layers_file(self) -> Path:
        """The file of the network's layers, which `check_training` requires."""
        assert self.over_time.network is not None
        return self.over_time.network


@dataclass(frozen=True)
class LfMmiSpec(TrainingSpec):
    """Spec of all ranks; tree, model, denominator, phones and targets are in `out`."""

    training: LfMmiTraining
    objective: str = field(default="pyasr.train.objectives.lfmmi_training:LfMmiRank", kw_only=True)


@dataclass(frozen=True)
class LfMmiStep(TrainingStep):
    """The options of steps/train_lfmmi.py except those of its job."""

    data: Path = argument("data directory with features")
    ali_dir: Path = argument(
        "directory of alignments of any GMM system; only phones and their times are used"
    )
    tree_dir: Path = argument("directory of the tree (steps/build_chain_tree.py)")
    out: Path = argument("output directory of the model")
    input: InputOptions = group(InputOptions, only=SPLICED_BY_LAYERS)
    targets: TargetOptions = group(TargetOptions)
    training: LfMmiTraining = group(LfMmiTraining)

    layers_splice = True
    spec_class = LfMmiSpec

    def check(self) -> None:
        """Raise UserError for contradictory options, or without --network."""
        check_training(self.training)
        self.training.perturb.check(self.data, self.rank_input)

    def inputs(self) -> list[Path]:
        """Features, layers, the tree and the alignments."""
        tree = [self.tree_dir / name for name in _TREE_FILES]
        alignments = [self.ali_dir / "num_jobs", self.ali_dir / MODEL, *job_archive_files(self.ali_dir)]
        return [*trained_tables(self.data, self.input), self.training.layers_file, *tree, *alignments]

    def begin(self, out: Path) -> None:
        """Check the phones and the subsampling of the tree."""
        check_phones(self.ali_dir, LangDir(self.tree_dir))
        check_factor(self, self.rank_input)

    def prepare(self, out: Path) -> None:
        """Write denominator, phones, targets and feature tables."""
        prepare(self, out)


def check_training(options: LfMmiTraining) -> None:
    """Raise UserError for contradictory options."""
    options.schedule.check_without_heldout()
    options.learner.check()
    if not options.over_time.network:
        raise UserError(
            "--network: no network is given; give a file of layers, such as conf/network/tdnn_chain.net"
        )


def check_factor(step: LfMmiStep, input: InputOptions) -> None:
    """Raise UserError unless the network has the subsampling factor that the tree was built for."""
    packing = step.training.over_time.packing(input, FeatureReader(step.data, input).dim)
    built_for = read_subsampling(step.tree_dir)
    if packing.subsampling != built_for:
        found = (
            f"the network has one output per {packing.subsampling} frames, {step.tree_dir} was built "
            f"for one per {built_for}"
        )
        raise UserError(
            f"{step.training.over_time.network}: {found}; choose strides of the layers that multiply to "
            f"{built_for}"
        )


def prepare(step: LfMmiStep, out: Path) -> None:
    """Write the tree's files, the phones of usable utterances, their phone language model, the denominator,
    and targets to OUT.

    Raises UserError if alignments, features and model do not match, or too many utterances are too short for
    their phones.
    """
    copy_inputs([step.tree_dir / name for name in _TREE_FILES], out)
    reader, training = FeatureReader(step.data, InputOptions(cmvn="none")), step.training
    trans = read_transitions(out / MODEL)
    tree, factor = read_tree(out / "tree", trans), read_subsampling(out)
    options = SupervisionOptions(**vars(training.tolerance), frame_subsampling_factor=factor)
    with PhoneSpool(step.ali_dir, reader, options, out / SPOOL_FILE) as spool:
        keys = _that_fit(step, spool, reader)
        phone_lm = estimate_phone_lm((one.phones for one in spool.aligned(keys)), training.phone_lm)
        save_aligned_phones(out / PHONES_FILE, zip(keys, spool.aligned(keys)))
        lengths = np.fromiter(map(spool.num_frames.__getitem__, keys), np.int64, len(keys))
    write_fst(out / PHONE_LM_FILE, phone_lm)
    make_denominator_graph(phone_lm, trans, tree).save(out / DENOMINATOR_FILE)
    offsets = np.append(0, np.cumsum(lengths))
    heldout = choose_heldout(keys, lengths, reader.original, step.targets)
    reader.save_tables(out / FEATURES_FILE, keys, lengths, step.input.cmvn)
    save_targets(out / TARGETS_FILE, keys, offsets, _numbers(lengths, factor), heldout, trans.num_pdfs)


def _numbers(lengths: np.ndarray, factor: int) -> Iterator[np.ndarray]:
    """Targets as in `output_numbers`, in pieces of some utterances."""
    first = 0
    for begin in range(0, len(lengths), _BLOCK):
        part = lengths[begin : begin + _BLOCK]
        yield output_numbers(part, factor) + np.int32(first)
        first += int(num_subsampled(part, factor).sum())


def _that_fit(step: LfMmiStep, spool: PhoneSpool, reader: FeatureReader) -> Keys:
    """The utterances that have features and are long enough for their phones. Logs the others."""
    keys = join(reader, spool.num_frames, step.targets.max_missing, step.ali_dir)
    have_room = spool.have_room(keys)
    skipped = dict.fromkeys(keys.take(np.flatnonzero(~have_room)), _NO_ROOM)
    check_skipped(
        skipped,
        len(keys),
        SkippedOptions(step.targets.max_missing),
        str(step.ali_dir),
        "raise the tolerances",
    )
    return keys.take(np.flatnonzero(have_room))
