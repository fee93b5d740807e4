"""Models and trees of a kind that a step cannot use: an error before any job names the kind, and the steps
that write the right one."""

import shutil
from pathlib import Path

import pytest
from gmm_corpus import write_corpus
from gmm_toys import random_model, random_transitions, triphone_tree
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.model.model_file import check_gmm, read_model, read_transitions, read_tree, write_model
from pyasr.tensor.file import save_tensors

GMM = (
    "give the directory of a GMM system, written by steps/train_mono.py, train_deltas.py, "
    "train_lda_mllt.py or train_sat.py"
)
MODEL = "expected a transition model; give the final.mdl written by the training of the model"
TREE = (
    "expected a decision tree; give the tree that the training of the model wrote to the directory of "
    "final.mdl"
)


@pytest.fixture(params=[True, False], ids=["binary", "text"])
def system(request, tmp_path) -> Path:
    """A directory with final.mdl and tree."""
    tree = triphone_tree()
    trans = random_transitions(tree)
    write_model(tmp_path / "final.mdl", trans, random_model(trans.num_pdfs, 2, 4), request.param)
    tree.write(tmp_path / "tree", request.param)
    trans.write(tmp_path / "trans.mdl", request.param)
    return tmp_path


def test_matching_systems_are_accepted(system):
    read_model(system / "final.mdl")
    check_gmm(system / "final.mdl")
    assert (
        read_transitions(system / "trans.mdl").num_pdfs
        == read_tree(system / "tree", read_transitions(system / "final.mdl")).num_pdfs
    )


@pytest.mark.parametrize(
    "name, found",
    [
        ("tree", "a decision tree"),
        ("nnet1", "an nnet1 network"),
        ("nnet3", "an nnet3 network"),
        ("own", "a network of pyasr"),
        ("wav", "a WAV file"),
    ],
)
def test_other_files_in_place_of_model_or_tree_are_named(system, name, found):
    binary = (system / "tree").read_bytes()[:2] == b"\0B"
    mark = b"\0B" if binary else b""
    (system / "nnet1").write_bytes(mark + b"<Nnet> \n<AffineTransform> 3 3 ")
    (system / "nnet3").write_bytes(mark + b"<Nnet3> \ninput-node name=input dim=4")
    (system / "wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    save_tensors(system / "own", {"format": 1})
    for read in (read_model, read_transitions, check_gmm):
        with pytest.raises(UserError, match=f"^{system / name}: found {found}, {MODEL}$"):
            read(system / name)
    if name != "tree":
        with pytest.raises(UserError, match=f"^{system / name}: found {found}, {TREE}$"):
            read_tree(system / name)


def test_model_in_place_of_tree_is_named(system):
    with pytest.raises(UserError, match=f"final.mdl: found a transition model, {TREE}$"):
        read_tree(system / "final.mdl")


@pytest.mark.parametrize(
    "behind, found",
    [
        (b"", "a transition model without GMMs"),
        (b"<Nnet3> ", r"a network of Kaldi's nnet3 \(<Nnet3>\), expected diagonal GMMs"),
        (b"<Nnet> ", r"a network of Kaldi's nnet1 or nnet2 \(<Nnet>\), expected diagonal GMMs"),
        (b"<SGMM> ", r"a subspace GMM \(<SGMM>\), expected diagonal GMMs"),
    ],
)
def test_other_models_after_transition_model_are_named(system, behind, found):
    path = system / "trans.mdl"
    path.write_bytes(path.read_bytes() + behind)
    read_transitions(path)
    for read in (read_model, check_gmm):
        with pytest.raises(UserError, match=f"^{path}: {found}; {GMM}$"):
            read(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_utterances=2)


def broken(model: Path, what: str) -> str:
    """Damage a system in one way. Returns a pattern of the error message."""
    trans = random_transitions(triphone_tree())
    if what == "a network":
        (model / "final.nnet").touch()
        return (
            f"^{model}: a network \\(final.nnet\\), expected a GMM system; {GMM}; "
            "to align or decode with a network, run steps/align_dnn.py or steps/decode.py"
        )
    if what == "transitions alone":
        trans.write(model / "final.mdl")
        return f"^{model}/final.mdl: a transition model without GMMs; {GMM}$"
    if what == "a tree":
        shutil.copy(model / "tree", model / "final.mdl")
        return f"^{model}/final.mdl: found a decision tree, {MODEL}$"
    shutil.copy(model / "final.mdl", model / "tree")
    return f"^{model}/tree: found a transition model, {TREE}$"


STEPS = {
    "align_si.py": ("a network", "transitions alone", "a tree", "a model as tree"),
    "align_fmllr.py": ("a network", "transitions alone"),
    "decode.py": ("transitions alone", "a tree"),
    "decode_fmllr.py": ("a network", "a tree"),
    "train_deltas.py": ("a tree",),
}


@pytest.mark.parametrize("step, what", [(step, what) for step, kinds in STEPS.items() for what in kinds])
def test_wrong_model_is_reported_before_jobs(step, what, corpus, tmp_path):
    data, lang = corpus
    model, tree = tmp_path / "model", triphone_tree()
    model.mkdir()
    trans = random_transitions(tree)
    write_model(model / "final.mdl", trans, random_model(trans.num_pdfs, 2, 4))
    tree.write(model / "tree")
    InputOptions(cmvn="none").save(model)
    (model / "num_jobs").write_text("1\n")
    (model / "graph").mkdir()
    for name in ("ali.1.gz", "graph/HCLG.fst", "graph/words.txt"):
        (model / name).touch()
    report = broken(model, what)
    places = [model / "graph", data] if step.startswith("decode") else [data, lang, model]
    with pytest.raises(UserError, match=report):
        run_here(step, "--nj", 1, *places, tmp_path / "out", threads=True)
    assert not (tmp_path / "out.tmp").exists()
