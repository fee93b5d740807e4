"""Model files: `final.mdl`, a transition model followed by the GMMs of its pdfs, and `tree`, which must
belong to the same model.

A system with speaker adaptive training has a second model, `final.alimdl`: the same Gaussians for features
before fMLLR.
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
GMM_REMEDY = (
    "give the directory of a GMM system, written by steps/train_mono.py, train_deltas.py, "
    "train_lda_mllt.py or train_sat.py"
)
_MODEL_REMEDY = f"give the {MODEL} written by the training of the model"
_TREE_REMEDY = f"give the tree that the training of the model wrote to the directory of {MODEL}"
_BEHIND_TRANSITIONS = re.compile(rb"</TransitionModel>\s+(\S{0,20})")


def first_pass_model(model_dir: Path) -> Path:
    """The model for speakers without a transform: final.alimdl, or final.mdl if there is no final.alimdl."""
    path = Path(model_dir) / ALIGNMENT_MODEL
    return path if path.exists() else Path(model_dir) / MODEL


def read_model(path: Path) -> tuple[TransitionModel, AmDiagGmm]:
    """Read a GMM model. Raises UserError with file and offset, also if GMMs and transitions do not match."""
    from pyasr.hmm.model.gmm import AmDiagGmm

    reader = KaldiReader(path)
    transitions = _transitions(reader)
    _refuse_other_model(path, "" if reader.at_end() else reader.peek_token())
    gmm = AmDiagGmm.read(reader)
    reader.expect_end()
    if gmm.num_pdfs != transitions.num_pdfs:
        raise reader.error(
            f"{gmm.num_pdfs} GMMs for a transition model with {transitions.num_pdfs} pdfs; the file is "
            "damaged"
        )
    return transitions, gmm


def check_gmm(path: Path) -> None:
    """Raise UserError if a model file has something other than GMMs after its transition model. Does not
    parse the file to its end."""
    content = read_content(path)
    KaldiReader(path, content).refuse_other(TRANSITIONS, _MODEL_REMEDY)
    if found := _BEHIND_TRANSITIONS.search(content):
        _refuse_other_model(path, found[1].decode("ascii", "replace"))


def _refuse_other_model(path: Path, word: str) -> None:
    """Raise UserError if `word`, the first token after a transition model, is '' or that of a model other
    than GMMs."""
    from pyasr.hmm.model.gmm import OTHER_MODELS

    if not word:
        raise UserError(f"{path}: a transition model without GMMs; {GMM_REMEDY}")
    if word in OTHER_MODELS:
        raise UserError(f"{path}: {OTHER_MODELS[word]} ({word}), expected diagonal GMMs; {GMM_REMEDY}")


def write_model(path: Path, transitions: TransitionModel, gmm: AmDiagGmm, binary: bool = True) -> None:
    """Write `final.mdl`, atomically."""
    with KaldiWriter(path, binary) as writer:
        transitions.write(writer)
        gmm.write(writer)


def read_transitions(path: Path) -> TransitionModel:
    """The transition model at the start of a model file; the rest is ignored."""
    return _transitions(KaldiReader(path))


def _transitions(reader: KaldiReader) -> TransitionModel:
    reader.refuse_other(TRANSITIONS, _MODEL_REMEDY)
    return TransitionModel.read(reader)


def subsampling_files(model_dir: Path) -> list[Path]:
    """The file with the frame subsampling factor, if present."""
    path = Path(model_dir) / SUBSAMPLING
    return [path] if path.exists() else []


def write_subsampling(model_dir: Path, factor: int) -> None:
    """Write Kaldi's file with the frame subsampling factor: the model has one output frame per `factor`
    frames of its features."""
    with atomic_write(Path(model_dir) / SUBSAMPLING) as f:
        f.write(f"{factor}\n")


def read_subsampling(model_dir: Path) -> int:
    """The frame subsampling factor of a model; 1 without such a file. Raises UserError if the file has no
    integer from 1 to 9999."""
    path = Path(model_dir) / SUBSAMPLING
    text = "".join(read_lines(path)).strip() if path.exists() else "1"
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise UserError(
            f"{path}: '{text[:20]}' is not a frame subsampling factor; write an integer, such as 3 for one "
            "output per 3 frames"
        )
    return int(text)


def answer_shift_s(data: Path, model_dir: Path) -> float:
    """Time between frames of a model's alignments and lattices of a data directory, seconds."""
    return frame_shift_s(data, model_dir) * read_subsampling(model_dir)


def read_tree(path: Path, transitions: TransitionModel | None = None) -> ContextTree:
    """Read `tree`. With `transitions`, raises UserError unless it is the tree of that model."""
    reader = KaldiReader(path)
    reader.refuse_other(TREE, _TREE_REMEDY)
    tree = ContextTree.read(reader)
    reader.expect_end()
    if transitions is not None and tree.num_pdfs != transitions.num_pdfs:
        found = f"the tree has {tree.num_pdfs} pdfs, the model {transitions.num_pdfs}"
        raise UserError(f"{path}: {found}; use tree and final.mdl from the same directory")
    return tree
