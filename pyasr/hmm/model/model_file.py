"""Model files: `final.mdl` is a transition model followed by the GMMs of its pdfs; `tree` must be of the same model.

A system with speaker adaptive training has a second model, `final.alimdl`: the same Gaussians for features before fMLLR.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.feats.frame_shift import frame_shift_s
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.content import read_content
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter
from pyasr.io.object_kinds import TRANSITIONS, TREE
from pyasr.io.text_tables import read_lines

if TYPE_CHECKING:
    from pyasr.hmm.model.gmm import AmDiagGmm

MODEL, ALIGNMENT_MODEL = "final.mdl", "final.alimdl"
SUBSAMPLING = "frame_subsampling_factor"
GMM_REMEDY = "give the directory of a GMM system, which steps/train_mono.py, train_deltas.py, train_lda_mllt.py or train_sat.py made"
_MODEL_REMEDY = f"give the {MODEL} that the training of the model wrote"
_TREE_REMEDY = f"give the tree that the training of the model wrote beside {MODEL}"
_BEHIND_TRANSITIONS = re.compile(rb"</TransitionModel>\s+(\S{0,20})")


def first_pass_model(model_dir: Path) -> Path:
    """The model for speakers without a transform: final.alimdl, or final.mdl where there is none."""
    path = Path(model_dir) / ALIGNMENT_MODEL
    return path if path.exists() else Path(model_dir) / MODEL


def read_model(path: Path) -> tuple[TransitionModel, AmDiagGmm]:
    """Read a GMM model. Raises UserError with file and offset; also when the GMMs are not those of the transition model."""
    from pyasr.hmm.model.gmm import AmDiagGmm

    reader = KaldiReader(path)
    transitions = _transitions(reader)
    _refuse_other_model(path, "" if reader.at_end() else reader.peek_token())
    gmm = AmDiagGmm.read(reader)
    reader.expect_end()
    if gmm.num_pdfs != transitions.num_pdfs:
        raise reader.error(f"{gmm.num_pdfs} GMMs for a transition model with {transitions.num_pdfs} pdfs; the file is damaged")
    return transitions, gmm


def check_gmm(path: Path) -> None:
    """Raise UserError for a model file that holds something else than GMMs behind its transition model. It is not read to its end."""
    content = read_content(path)
    KaldiReader(path, content).refuse_other(TRANSITIONS, _MODEL_REMEDY)
    if found := _BEHIND_TRANSITIONS.search(content):
        _refuse_other_model(path, found[1].decode("ascii", "replace"))


def _refuse_other_model(path: Path, word: str) -> None:
    """Raise UserError where `word`, the first behind a transition model, is '' or that of another model than GMMs."""
    from pyasr.hmm.model.gmm import OTHER_MODELS

    if not word:
        raise UserError(f"{path}: a transition model alone, without GMMs; {GMM_REMEDY}")
    if word in OTHER_MODELS:
        raise UserError(f"{path}: {OTHER_MODELS[word]} ({word}), expected diagonal GMMs; {GMM_REMEDY}")


def write_model(path: Path, transitions: TransitionModel, gmm: AmDiagGmm, binary: bool = True) -> None:
    """Write `final.mdl`, atomically."""
    with KaldiWriter(path, binary) as writer:
        transitions.write(writer)
        gmm.write(writer)


def read_transitions(path: Path) -> TransitionModel:
    """Only the transition model at the head of a model file; what follows is not looked at."""
    return _transitions(KaldiReader(path))


def _transitions(reader: KaldiReader) -> TransitionModel:
    reader.refuse_other(TRANSITIONS, _MODEL_REMEDY)
    return TransitionModel.read(reader)


def subsampling_files(model_dir: Path) -> list[Path]:
    """The file that says so, where there is one."""
    path = Path(model_dir) / SUBSAMPLING
    return [path] if path.exists() else []


def write_subsampling(model_dir: Path, factor: int) -> None:
    """Say that the model answers on every `factor`-th frame of its features alone, in the file that Kaldi has for it."""
    with atomic_write(Path(model_dir) / SUBSAMPLING) as f:
        f.write(f"{factor}\n")


def read_subsampling(model_dir: Path) -> int:
    """What `write_subsampling` wrote; 1 where it did not. Raises UserError where there is no such number."""
    path = Path(model_dir) / SUBSAMPLING
    text = "".join(read_lines(path)).strip() if path.exists() else "1"
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise UserError(f"{path}: '{text[:20]}' is no number of frames; write 3 for a model that answers on every third")
    return int(text)


def answer_shift_s(data: Path, model_dir: Path) -> float:
    """Seconds from one frame of alignments and lattices of a data directory by a model to the next."""
    return frame_shift_s(data, model_dir) * read_subsampling(model_dir)


def read_tree(path: Path, transitions: TransitionModel | None = None) -> ContextTree:
    """Read `tree`; with `transitions`, raise UserError unless it is the tree of that model."""
    reader = KaldiReader(path)
    reader.refuse_other(TREE, _TREE_REMEDY)
    tree = ContextTree.read(reader)
    reader.expect_end()
    if transitions is not None and tree.num_pdfs != transitions.num_pdfs:
        told = f"the tree has {tree.num_pdfs} pdfs, the model {transitions.num_pdfs}"
        raise UserError(f"{path}: {told}; take tree and final.mdl from the same directory")
    return tree
