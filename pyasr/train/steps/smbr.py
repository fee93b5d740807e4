"""Sequence-discriminative training on lattices: its options, and what the ranks find in their directory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.fingerprint import read_done
from pyasr.base.options import argument, group
from pyasr.feats.fit import check_features
from pyasr.feats.inputs import FeatureReader, InputOptions, input_option_files
from pyasr.feats.origin import keep_origin
from pyasr.hmm.gmm_dir import check_phones
from pyasr.hmm.model import MODEL, read_transitions
from pyasr.hmm.transitions import TransitionModel
from pyasr.io.int_vectors import job_archive_files
from pyasr.lang.lang_dir import LangDir
from pyasr.nn.files import MODEL_FILE
from pyasr.parallel.strategies import MixingOptions
from pyasr.sequence.hypotheses_store import store_lattices
from pyasr.sequence.lattice_criteria import CriterionOptions
from pyasr.train.alignment_spool import SPOOL_FILE, AlignmentSpool
from pyasr.train.on_ranks import copy_inputs, training_output
from pyasr.train.options import LearnerOptions, LoopOptions
from pyasr.train.prepare import NUM_CHECKED, TargetOptions, check_paths
from pyasr.train.rank_reader import FEATURES_FILE, are_prepared
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.targets import TARGETS_FILE, choose_heldout, join, save_targets, trained_tables

HYPOTHESES_FILE = "hypotheses.npz"
_SAME_SCALE = 0.01  # relative difference of scales that makes none


@dataclass(frozen=True)
class SmbrTraining:
    """All options of the training itself; rate and epochs are those of Kaldi's nnet1 recipe."""

    criterion: CriterionOptions = group(CriterionOptions)
    schedule: ScheduleOptions = group(ScheduleOptions, learning_rate=1e-5, lr_convention="sum", num_epochs=4, final_factor=1.0)
    learner: LearnerOptions = group(LearnerOptions, minibatch=1)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class SmbrStep:
    """The options of steps/train_smbr.py but those of its job."""

    data: Path = argument("data directory of the features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the reference alignments, best by the network (steps/align_dnn.py)")
    decode_dir: Path = argument("directory of lattices of DATA (steps/decode.py with a weak language model)")
    dnn_dir: Path = argument("directory of the network to start from")
    out: Path = argument("directory of the model to be trained")
    targets: TargetOptions = group(TargetOptions)
    training: SmbrTraining = group(SmbrTraining)


@dataclass(frozen=True)
class SmbrSpec:
    """The work of all ranks: features of `data`, references and hypotheses in `out`, where everything is written."""

    data: Path
    lang: Path
    dnn_dir: Path
    out: Path
    training: SmbrTraining


@contextlib.contextmanager
def staged_smbr(step: SmbrStep, lattices: list[Path]) -> Iterator[SmbrSpec]:
    """The work of the ranks; its `out`, of `training_output`, has what they need.

    lattices  the archives of `step.decode_dir`

    Raises UserError where options or inputs do not go together.
    """
    step.training.schedule.check_deaf()
    step.training.learner.check()
    with training_output(step, _inputs(step, lattices), check=lambda: check_features(step.data, step.dnn_dir)) as out:
        check_phones(step.dnn_dir, LangDir(step.lang))
        check_silence(step)
        warn_of_another_scale(step.decode_dir, step.training.criterion.acoustic_scale)
        copy_inputs([step.dnn_dir / MODEL, step.dnn_dir / "tree", step.lang / "phones.txt"], out)
        InputOptions.load(step.dnn_dir).save(out)
        keep_origin(out, step.data)
        if not are_prepared(out / TARGETS_FILE, out / FEATURES_FILE):
            prepare(step, lattices, out)
        yield SmbrSpec(step.data, step.lang, step.dnn_dir, out, step.training)


def check_silence(step: SmbrStep) -> None:
    """Warn of an empty list of silence phones where the criterion asks for them. Raises UserError for one that the model lacks."""
    criterion = step.training.criterion
    if criterion.criterion == "mmi" and not criterion.boost:
        return
    silence, model = LangDir(step.lang).silence_phones, step.dnn_dir / MODEL
    path = step.lang / "phones/silence.int"
    if not silence:
        taken = f"so --criterion {criterion.criterion} takes all phones for speech"
        log.warning(f"{path}: the list is empty, {taken}; list those that are silence")
    foreign = np.setdiff1d(silence, read_transitions(model).tid2phone[1:])
    if len(foreign):
        raise UserError(f"{path}: phone {foreign[0]} is not in {model}; give the language directory that the model was made with")


def warn_of_another_scale(decode_dir: Path, acoustic_scale: float) -> None:
    """Warn where the lattices were made at another scale than this: by theirs it was chosen which paths they have."""
    decode = (read_done(decode_dir) or {}).get("options", {}).get("decode", {})
    theirs = decode.get("acoustic_scale", acoustic_scale)
    if not math.isclose(theirs, acoustic_scale, rel_tol=_SAME_SCALE):
        found = f"the lattices were made at --acoustic-scale {theirs:g}, which chose the paths that they have"
        log.warning(f"{decode_dir}: {found}, and are learned from at {acoustic_scale:g}; give both steps the same")


def _inputs(step: SmbrStep, lattices: list[Path]) -> list[Path]:
    """Files whose change makes the model out of date."""
    model = [step.dnn_dir / name for name in (MODEL_FILE, MODEL, "tree")] + input_option_files(step.dnn_dir)
    alignments = [step.ali_dir / "num_jobs", step.ali_dir / MODEL, *job_archive_files(step.ali_dir)]
    tables = trained_tables(step.data, InputOptions.load(step.dnn_dir))
    return [*tables, step.lang / "phones.txt", step.lang / "phones/silence.int", *model, *alignments, *lattices]


def prepare(step: SmbrStep, lattices: list[Path], out: Path) -> None:
    """Write OUT/targets.npz, with the reference's transition-ids as targets, and OUT/hypotheses.npz, of the utterances that have all.

    Raises UserError where alignments, lattices, features and model do not match.
    """
    reader, transitions = FeatureReader(step.data, InputOptions(cmvn="none")), same_transitions(step.ali_dir, step.dnn_dir)
    with AlignmentSpool(step.ali_dir, np.arange(transitions.num_tids + 1), out / SPOOL_FILE) as spool:
        keys = join(reader, spool.frames, step.targets.max_missing, step.ali_dir)
        keys = store_lattices(lattices, out / HYPOTHESES_FILE, keys, lambda key: len(spool.frames[key]), transitions,
                              step.targets.max_missing)  # fmt: skip
        spool.check(keys)
        check_paths(spool.alignments(keys[:NUM_CHECKED]), transitions, step.ali_dir)
        lengths = np.diff(spool.offsets(keys))
        heldout = choose_heldout(keys, lengths, reader.original, step.targets)
        reader.save_tables(out / FEATURES_FILE, keys, lengths, InputOptions.load(step.dnn_dir).cmvn)
        save_targets(out / TARGETS_FILE, keys, spool.offsets(keys), spool.targets(keys), heldout, transitions.num_tids + 1)


def same_transitions(ali_dir: Path, dnn_dir: Path) -> TransitionModel:
    """The transition model of both directories. Raises UserError where they have different ones, or the network is of another."""
    ours, theirs = (read_transitions(directory / MODEL) for directory in (dnn_dir, ali_dir))
    if not np.array_equal(ours.tuples, theirs.tuples) or ours.num_tids != theirs.num_tids:
        raise UserError(f"{ali_dir} and {dnn_dir} have different transition models; align with the network: steps/align_dnn.py")
    from pyasr.nn.acoustic import load_scorer

    model = load_scorer(dnn_dir)
    model.check_answers_on_all(dnn_dir, "an alignment")
    model.check_pdfs(dnn_dir, ours.num_pdfs)
    return ours
