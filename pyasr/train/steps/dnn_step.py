"""Cross-entropy training on alignments: options, and preparation of the directory for the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base.cli.option_uses import if_set, unless_set
from pyasr.base.cli.options import argument, group, option, refuse_combination
from pyasr.base.errors import UserError
from pyasr.feats.inputs import INPUT_FILE, FeatureReader, InputOptions, input_tables
from pyasr.feats.origin import check_origin
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import read_tree
from pyasr.io.int_vectors import job_archive_files
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.files import DBN_FILE, MODEL_FILE
from pyasr.nn.network_options import DnnOptions
from pyasr.parallel.strategies import MixingOptions
from pyasr.train.minibatches.over_time import OverTimeOptions
from pyasr.train.perturbing import PerturbOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.steps.loss import CROSS_ENTROPY, Loss
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.steps.training_step import TrainingSpec, TrainingStep
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets, trained_tables
from pyasr.train.targets.prepare_targets import TargetOptions, prepare_targets
from pyasr.train.targets.rank_reader import FEATURES_FILE, TEACHERS_FILE
from pyasr.train.training_options import (
    FEED_FORWARD,
    CombineOptions,
    FrameLoopOptions,
    GrowthOptions,
    InputTransformOptions,
    LearnerOptions,
    OneLearnerOptions,
    PriorOptions,
    SampleOptions,
    StoreOptions,
    TeacherOptions,
    check_growth,
)


@dataclass(frozen=True)
class DnnTraining:
    """All options of the training itself."""

    dnn: DnnOptions = group(DnnOptions, only=unless_set("network"))
    over_time: OverTimeOptions = group(
        OverTimeOptions, only={"chunk": if_set("network"), "carry_state": if_set("network")}
    )
    schedule: ScheduleOptions = group(ScheduleOptions)
    learner: LearnerOptions = group(LearnerOptions)
    perturb: PerturbOptions = group(PerturbOptions)
    store: StoreOptions = group(StoreOptions)
    teacher: TeacherOptions = group(TeacherOptions)
    transform: InputTransformOptions = group(InputTransformOptions)
    growth: GrowthOptions = group(GrowthOptions)
    priors: PriorOptions = group(PriorOptions)
    combine: CombineOptions = group(CombineOptions)
    sample: SampleOptions = group(SampleOptions)
    mixing: MixingOptions = group(MixingOptions)
    loop: FrameLoopOptions = group(FrameLoopOptions)
    saving: OneLearnerOptions = group(OneLearnerOptions)

    @property
    def uses_sample(self) -> bool:
        """Whether something is measured on a sample of the training frames."""
        return (
            self.combine.combine != "none"
            or self.priors.priors == "posteriors"
            or any(self.growth.measures.values())
        )


@dataclass(frozen=True)
class TrainSpec(TrainingSpec):
    """Spec for all ranks; the targets are in OUT/targets.npz.

    dbn   directory of a DBN whose RBMs are the initial hidden layers, with its input normalisation; None:
          random initialisation
    loss  training criterion
    """

    training: DnnTraining
    dbn: Path | None = None
    loss: Loss = CROSS_ENTROPY
    objective: str = field(default="pyasr.train.objectives.dnn_training:DnnRank", kw_only=True)


@dataclass(frozen=True)
class DnnStep(TrainingStep):
    """The options of every step that trains a DNN."""

    data: Path = argument("data directory with features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the alignments and their model")
    out: Path = argument("output directory of the model")
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    targets: TargetOptions = group(TargetOptions)
    dbn: Path | None = option(
        None, "directory of a DBN to start from (steps/pretrain_dbn.py)", only=FEED_FORWARD, heading="network"
    )
    training: DnnTraining = group(DnnTraining)

    spec_class = TrainSpec

    @property
    def loss(self) -> Loss:
        """Training criterion."""
        return CROSS_ENTROPY

    @property
    def layers_splice(self) -> bool:
        """Whether the network is one of --network, whose layers splice."""
        return bool(self.training.over_time.network)

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables of the features, and of the teacher's features."""
        return (FEATURES_FILE, TEACHERS_FILE) if self.training.teacher.teacher else (FEATURES_FILE,)

    def check(self) -> None:
        """Raise UserError for contradictory options."""
        check_training(self.training)
        check_loss(self.training, self.loss)
        self.training.perturb.check(self.data, self.input)

    def inputs(self) -> list[Path]:
        """Features, alignments, and the files of layers, a DBN and a teacher."""
        model = [self.ali_dir / name for name in ("num_jobs", "final.mdl", "tree")]
        alignments, network = job_archive_files(self.ali_dir), self.training.over_time.network
        teachers = _teachers_files(self.training.teacher, self.data)
        optional = [*([self.dbn / DBN_FILE] if self.dbn else []), *([network] if network else []), *teachers]
        return [
            *trained_tables(self.data, self.input),
            self.lang / "phones.txt",
            *model,
            *alignments,
            *optional,
        ]

    def begin(self, out: Path) -> None:
        """Check the network, the loss, the phones and the teacher, and copy transition model and tree."""
        options = self.training
        if self.dbn or options.over_time.network:
            # imports torch: only when there is something to check
            from pyasr.train.steps.network_checks import check_network

            check_network(
                options.dnn, options.over_time, options.growth, self.rank_input, self.data, self.dbn
            )
        if self.loss != CROSS_ENTROPY:
            self.loss.make()
        check_phones(self.ali_dir, LangDir(self.lang))
        if self.training.teacher.teacher:
            check_teachers_tree(self.training.teacher.teacher, self.ali_dir)
        copy_inputs([self.ali_dir / "final.mdl", self.ali_dir / "tree", self.lang / "phones.txt"], out)

    def prepare(self, out: Path) -> None:
        """Write targets, and tables of the features and of the teacher's features."""
        prepare_targets(
            self.data,
            self.ali_dir,
            out,
            self.targets,
            self.training.schedule.uses_heldout,
            self.rank_input.cmvn,
        )
        if self.training.teacher.teacher:
            save_teachers_tables(self.training.teacher, self.data, out)


def save_teachers_tables(options: TeacherOptions, data: Path, out: Path) -> None:
    """Write the tables through which ranks read the features of the teacher."""
    targets, theirs = Targets.load(out / TARGETS_FILE), InputOptions.load(options.directory)
    reader = FeatureReader(options.teacher_data or data, theirs)
    reader.save_tables(out / TEACHERS_FILE, targets.keys, np.diff(targets.offsets), theirs.cmvn)


def _teachers_files(options: TeacherOptions, data: Path) -> list[Path]:
    if not options.teacher:
        return []
    check_origin(options.teacher_data or data, options.teacher)
    tables = input_tables(options.teacher_data or data, InputOptions.load(options.teacher))
    return [*(options.teacher / name for name in (MODEL_FILE, INPUT_FILE, "tree")), *tables]


def check_teachers_tree(teacher: Path, ali_dir: Path) -> None:
    """Raise UserError unless the teacher has the tree of the alignments. Another tree with as many pdfs has
    other states."""
    one, other = (read_tree(directory / "tree") for directory in (teacher, ali_dir))
    if (one.context_width, one.central_position, one.root) != (
        other.context_width,
        other.central_position,
        other.root,
    ):
        raise UserError(
            f"--teacher {teacher}: its tree differs from that of {ali_dir}; give alignments with the "
            "teacher's tree"
        )


def check_training(options: DnnTraining) -> None:
    """Raise UserError for invalid or contradictory options."""
    options.schedule.check()
    options.learner.check()
    check_growth(options.growth, options.schedule.uses_heldout)
    by_posteriors = {"--priors posteriors": options.priors.priors == "posteriors"}
    if options.over_time.carry_state:
        refuse_combination(
            "--carry-state", by_posteriors, "the chunks of a sample would all begin without a state"
        )
    if options.teacher.teacher:
        refuse_combination("--teacher", by_posteriors, "measurements on a sample need the alignment")


def check_loss(options: DnnTraining, loss: Loss) -> None:
    """Raise UserError for options that need the cross-entropy if another loss is used."""
    if loss != CROSS_ENTROPY:
        asked = {
            "--carry-state": options.over_time.carry_state,
            "--teacher": options.teacher.teacher is not None,
        }
        for flag in (flag for flag, is_given in asked.items() if is_given):
            raise UserError(
                f"{flag}: it needs the cross-entropy, but the criterion of this step is {loss.criterion}; "
                f"omit {flag}"
            )
