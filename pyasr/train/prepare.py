"""From alignments and features to the directory in which the ranks of a training job find what they need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.options import argument, group, option
from pyasr.feats.inputs import INPUT_FILE, FeatureReader, InputOptions, input_tables
from pyasr.feats.origin import check_origin, keep_origin
from pyasr.hmm.gmm_dir import check_phones
from pyasr.hmm.model import read_transitions, read_tree
from pyasr.hmm.phone_segments import split_to_phones
from pyasr.hmm.transitions import TransitionModel
from pyasr.io.int_vectors import job_archive_files, read_job_archives
from pyasr.lang.lang_dir import LangDir
from pyasr.nn.acoustic import MODEL_FILE
from pyasr.nn.dbn import DBN_FILE
from pyasr.train.dbn import check_dbn
from pyasr.train.dnn import DnnTraining, TrainSpec, check_training
from pyasr.train.on_ranks import copy_inputs, training_output
from pyasr.train.soft_targets import TeacherOptions
from pyasr.train.targets import TARGETS_FILE, HeldoutOptions, Targets, choose_heldout, join, make_targets, trained_tables

_NUM_CHECKED = 100


@dataclass(frozen=True)
class TargetOptions(HeldoutOptions):
    """Which utterances are trained on."""

    max_missing: float = option(0.01, "greatest share of utterances without features or a matching alignment", minimum=0.0, maximum=1.0)


@dataclass(frozen=True)
class DnnStep:
    """The options of every step that trains a DNN."""

    data: Path = argument("data directory of the features")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("directory of the model to be trained")
    input: InputOptions = group(InputOptions, splice_left=5, splice_right=5)
    targets: TargetOptions = group(TargetOptions)
    training: DnnTraining = group(DnnTraining)


@contextlib.contextmanager
def staged_training(step: DnnStep, dbn: Path | None = None) -> Iterator[TrainSpec]:
    """The work of the ranks; its `out`, of `training_output`, has what they need, the targets among it.

    Raises UserError where options or inputs do not go together.
    """
    check_training(step.training, dbn)
    input, over_time = step.input, step.training.over_time
    if over_time.network:
        input = replace(input, splice_left=0, splice_right=0)
        over_time.packing(input, FeatureReader(step.data, input).dim)
    step.training.perturb.check(step.data, input)
    with training_output(step, _inputs(step, dbn)) as out:
        check_phones(step.ali_dir, LangDir(step.lang))
        if dbn:
            check_dbn(dbn, step.training.dnn, step.input, step.data)
        if step.training.teacher.teacher:
            check_teachers_tree(step.training.teacher.teacher, step.ali_dir)
        copy_inputs([step.ali_dir / "final.mdl", step.ali_dir / "tree", step.lang / "phones.txt"], out)
        input.save(out)
        keep_origin(out, step.data)
        prepare_targets(step.data, step.ali_dir, out, step.targets, step.training.schedule.listens)
        yield TrainSpec(step.data, out, input, step.training, dbn)


def _inputs(step: DnnStep, dbn: Path | None) -> list[Path]:
    """Files whose change makes the model out of date."""
    model = [step.ali_dir / name for name in ("num_jobs", "final.mdl", "tree")]
    alignments, network = job_archive_files(step.ali_dir), step.training.over_time.network
    optional = [*([dbn / DBN_FILE] if dbn else []), *([network] if network else []), *_teachers_files(step.training.teacher, step.data)]
    return [*trained_tables(step.data, step.input), step.lang / "phones.txt", *model, *alignments, *optional]


def _teachers_files(options: TeacherOptions, data: Path) -> list[Path]:
    if not options.teacher:
        return []
    check_origin(options.teacher_data or data, options.teacher)
    tables = input_tables(options.teacher_data or data, InputOptions.load(options.teacher))
    return [*(options.teacher / name for name in (MODEL_FILE, INPUT_FILE, "tree")), *tables]


def check_teachers_tree(teacher: Path, ali_dir: Path) -> None:
    """Raise UserError unless the teacher was trained on the tree of the alignments: as many pdfs of another tree are other states."""
    one, other = (read_tree(directory / "tree") for directory in (teacher, ali_dir))
    if (one.context_width, one.central_position, one.root) != (other.context_width, other.central_position, other.root):
        raise UserError(f"--teacher {teacher}: its tree is not that of {ali_dir}; give alignments by the tree that it was trained on")


def prepare_targets(data: Path, ali_dir: Path, out: Path, options: TargetOptions, needs_heldout: bool = False) -> None:
    """Check that alignments match the features, and the tree the model; choose the held-out set, write OUT/targets.npz.

    Raises UserError where they do not match, or nothing is held out and `needs_heldout`: the schedule goes by it.
    """
    reader = FeatureReader(data, InputOptions(cmvn="none"))
    alignments = read_job_archives(ali_dir)
    keys = join(reader, alignments, options.max_missing, ali_dir)
    transitions = read_transitions(ali_dir / "final.mdl")
    read_tree(ali_dir / "tree", transitions)
    offsets, pdfs = make_targets(keys, alignments, transitions.tid2pdf, ali_dir)
    check_paths({key: alignments[key] for key in keys[:_NUM_CHECKED]}, transitions, ali_dir)
    heldout = choose_heldout(keys, np.diff(offsets), reader.original, options)
    if needs_heldout and not heldout.any():
        raise UserError(f"{data}: no utterance is held out, and this --schedule goes by them; raise --heldout-share or give another one")
    Targets(keys, offsets, pdfs, heldout, transitions.num_pdfs).save(out / TARGETS_FILE)


def check_paths(alignments: dict[str, np.ndarray], transitions: TransitionModel, ali_dir: Path) -> None:
    """Raise UserError unless the alignments go through the model's HMMs: those of another model, whose transition-ids happen to be the
    model's as well, would be silently taken for other pdfs."""
    try:
        split_to_phones(transitions, alignments)
    except UserError as error:
        raise UserError(f"{ali_dir}: {error}; ali.*.gz and final.mdl are of different models") from None
