"""Sequence-discriminative training on lattices: options, and preparation of the directory for the ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import read_done
from pyasr.feats.fit import check_features
from pyasr.feats.inputs import FeatureReader, InputOptions, input_option_files
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.int_vectors import job_archive_files
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.files import MODEL_FILE
from pyasr.parallel.strategies import MixingOptions
from pyasr.sequence.lattices.hypotheses_store import store_lattices
from pyasr.sequence.lattices.lattice_criteria import CriterionOptions
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.steps.on_ranks import copy_inputs
from pyasr.train.steps.training_step import TrainingSpec, TrainingStep
from pyasr.train.targets.alignment_spool import SPOOL_FILE, AlignmentSpool
from pyasr.train.targets.pdf_targets import TARGETS_FILE, choose_heldout, join, save_targets, trained_tables
from pyasr.train.targets.prepare_targets import NUM_CHECKED, TargetOptions, check_paths
from pyasr.train.targets.rank_reader import FEATURES_FILE
from pyasr.train.training_options import LoopOptions, UtteranceLearnerOptions

HYPOTHESES_FILE = "hypotheses.npz"
_SAME_SCALE = 0.01  # relative difference up to which scales are equal


@dataclass(frozen=True)
class SmbrTraining:
    """All options of the training itself; learning rate and epochs as in Kaldi's nnet1 recipe."""

    criterion: CriterionOptions = group(CriterionOptions)
    schedule: ScheduleOptions = group(
        ScheduleOptions, learning_rate=1e-5, lr_convention="sum", num_epochs=4, final_factor=1.0
    )
    learner: UtteranceLearnerOptions = group(UtteranceLearnerOptions, minibatch=1)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class SmbrSpec(TrainingSpec):
    """Spec for all ranks; references and hypotheses are in `out`.

    lang     lang directory
    dnn_dir  model directory of the initial network
    """

    training: SmbrTraining
    lang: Path
    dnn_dir: Path
    objective: str = field(default="pyasr.train.objectives.smbr_training:SmbrRank", kw_only=True)


@dataclass(frozen=True)
class SmbrStep(TrainingStep):
    """The options of steps/train_smbr.py except those of its job."""

    data: Path = argument("data directory with features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument(
        "directory of the reference alignments, preferably with the network (steps/align_dnn.py)"
    )
    decode_dir: Path = argument("directory of lattices of DATA (steps/decode.py with a weak language model)")
    dnn_dir: Path = argument("model directory of the initial network")
    out: Path = argument("output directory of the model")
    targets: TargetOptions = group(TargetOptions)
    training: SmbrTraining = group(SmbrTraining)

    spec_class = SmbrSpec

    @property
    def rank_input(self) -> InputOptions:
        """Input options of the initial network."""
        return InputOptions.load(self.dnn_dir)

    def lattices(self) -> list[Path]:
        """Lattice archives in `decode_dir`."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise UserError for contradictory options."""
        self.training.schedule.check_without_heldout()
        self.training.learner.check()

    def inputs(self) -> list[Path]:
        """Features, silence phones, the network, alignments and lattices."""
        model = [self.dnn_dir / name for name in (MODEL_FILE, MODEL, "tree")] + input_option_files(
            self.dnn_dir
        )
        alignments = [self.ali_dir / "num_jobs", self.ali_dir / MODEL, *job_archive_files(self.ali_dir)]
        lang = [self.lang / "phones.txt", self.lang / "phones/silence.int"]
        return [*trained_tables(self.data, self.rank_input), *lang, *model, *alignments, *self.lattices()]

    def check_features(self) -> None:
        """Raise UserError for features of another kind than the network was trained on."""
        check_features(self.data, self.dnn_dir)

    def begin(self, out: Path) -> None:
        """Check phones and scale, and copy the transition model and the tree."""
        check_phones(self.dnn_dir, LangDir(self.lang))
        check_silence(self)
        warn_of_another_scale(self.decode_dir, self.training.criterion.acoustic_scale)
        copy_inputs([self.dnn_dir / MODEL, self.dnn_dir / "tree", self.lang / "phones.txt"], out)

    def prepare(self, out: Path) -> None:
        """Write references, hypotheses and feature tables."""
        prepare(self, self.lattices(), out)


def check_silence(step: SmbrStep) -> None:
    """Warn of an empty list of silence phones if the criterion uses them. Raises UserError for a phone that
    the model does not have."""
    criterion = step.training.criterion
    if criterion.criterion == "mmi" and not criterion.boost:
        return
    silence, model = LangDir(step.lang).silence_phones, step.dnn_dir / MODEL
    path = step.lang / "phones/silence.int"
    if not silence:
        taken = f"so --criterion {criterion.criterion} treats all phones as speech"
        log.warning(f"{path}: the list is empty, {taken}; list the silence phones")
    foreign = np.setdiff1d(silence, read_transitions(model).tid2phone[1:])
    if len(foreign):
        raise UserError(
            f"{path}: phone {foreign[0]} is not in {model}; give the lang directory that the model was "
            "trained with"
        )


def warn_of_another_scale(decode_dir: Path, acoustic_scale: float) -> None:
    """Warn if the lattices were decoded at another acoustic scale, which determined their paths."""
    decode = (read_done(decode_dir) or {}).get("options", {}).get("decode", {})
    theirs = decode.get("acoustic_scale", acoustic_scale)
    if not math.isclose(theirs, acoustic_scale, rel_tol=_SAME_SCALE):
        found = f"the lattices were decoded at --acoustic-scale {theirs:g}, which determined their paths"
        log.warning(
            f"{decode_dir}: {found}, but the training uses {acoustic_scale:g}; give both steps the same scale"
        )


def prepare(step: SmbrStep, lattices: list[Path], out: Path) -> None:
    """Write OUT/targets.npz, with the references' transition-ids as targets, and OUT/hypotheses.npz, for
    utterances with features, alignment and lattice.

    Raises UserError if alignments, lattices, features and model do not match.
    """
    reader, transitions = (
        FeatureReader(step.data, InputOptions(cmvn="none")),
        same_transitions(step.ali_dir, step.dnn_dir),
    )
    with AlignmentSpool(step.ali_dir, np.arange(transitions.num_tids + 1), out / SPOOL_FILE) as spool:
        keys = join(reader, spool.lengths, step.targets.max_missing, step.ali_dir)
        keys = store_lattices(
            lattices,
            out / HYPOTHESES_FILE,
            keys,
            spool.lengths.__getitem__,
            transitions,
            step.targets.max_missing,
        )
        spool.check(keys)
        check_paths(spool.alignments(keys[:NUM_CHECKED]), transitions, step.ali_dir)
        lengths = np.diff(spool.offsets(keys))
        heldout = choose_heldout(keys, lengths, reader.original, step.targets)
        reader.save_tables(out / FEATURES_FILE, keys, lengths, InputOptions.load(step.dnn_dir).cmvn)
        save_targets(
            out / TARGETS_FILE,
            keys,
            spool.offsets(keys),
            spool.vectors(keys),
            heldout,
            transitions.num_tids + 1,
        )


def same_transitions(ali_dir: Path, dnn_dir: Path) -> TransitionModel:
    """The common transition model of both directories. Raises UserError if the two differ, or the network
    does not fit the model."""
    ours, theirs = (read_transitions(directory / MODEL) for directory in (dnn_dir, ali_dir))
    if not np.array_equal(ours.tuples, theirs.tuples) or ours.num_tids != theirs.num_tids:
        raise UserError(
            f"{ali_dir} and {dnn_dir} have different transition models; align with the network: "
            "steps/align_dnn.py"
        )
    from pyasr.nn.networks.acoustic import load_scorer

    model = load_scorer(dnn_dir)
    model.check_answers_on_all(dnn_dir, "an alignment")
    model.check_pdfs(dnn_dir, ours.num_pdfs)
    return ours
