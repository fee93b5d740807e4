"""Features that do not match a model's matrix are refused before any job starts, with the splicing that the
matrix implies."""

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.feats.fit import check_dimension, check_features, check_input, gmm_dim, meant_splicing
from pyasr.feats.inputs import InputOptions
from pyasr.feats.transforms import write_matrix
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_dir import LANG_FILES
from pyasr.io.ark import ArkWriter
from pyasr.io.kaldi_objects import KaldiWriter


@pytest.fixture
def system(tmp_path):
    """A Kaldi system on LDA features without splice_opts, and a data directory with 13 columns."""
    data, model = tmp_path / "data", tmp_path / "tri2"
    data.mkdir()
    model.mkdir()
    (data / "utt2spk").write_text("utt spk\n")
    with ArkWriter(data / "feats.ark", data / "feats.scp") as writer:
        writer.write("utt", np.zeros((3, 13), np.float32))
    (model / "cmvn_opts").write_text("\n")
    write_matrix(model / "final.mat", np.zeros((40, 91)))
    return data, model


def test_missing_splice_opts_is_named_with_its_content(system):
    data, model = system
    report = (
        f"^{model}/final.mat: 91 columns, but features of 13 columns become 117; 91 = 13 x 7 means "
        f"'--left-context=3 --right-context=3': write that into {model}/splice_opts$"
    )
    for check in (check_features, check_input):
        with pytest.raises(UserError, match=report):
            check(data, model)
    (model / "splice_opts").write_text("--left-context=3 --right-context=3\n")
    check_features(data, model)


@pytest.mark.parametrize("columns, frames", [(92, 7), (65, 5), (39, 3)])
def test_other_matrix_shapes_are_refused(system, columns, frames):
    """92 columns include an offset."""
    data, model = system
    write_matrix(model / "final.mat", np.zeros((40, columns)))
    with pytest.raises(UserError, match=f"{columns} = 13 x {frames} means '--left-context={frames // 2} "):
        check_features(data, model)


@pytest.mark.parametrize("columns", [117, 118])
def test_default_splicing_of_kaldi_is_accepted(system, columns):
    data, model = system
    write_matrix(model / "final.mat", np.zeros((40, columns)))
    check_features(data, model)


def test_features_with_other_number_of_columns_are_refused(system):
    data, model = system
    InputOptions(splice_left=3, splice_right=3).save(model)
    check_features(data, model)
    write_matrix(model / "final.mat", np.zeros((40, 280)))
    with pytest.raises(
        UserError,
        match=(
            "280 columns, but features of 13 columns become 91; give the features that the model was "
            "trained on"
        ),
    ):
        check_features(data, model)


def test_splicing_is_guessed_from_number_of_columns():
    assert [meant_splicing(num) for num in (91, 92, 117, 118, 280, 360, 97)] == [
        (13, 7),
        (13, 7),
        (13, 9),
        (13, 9),
        (40, 7),
        (40, 9),
        None,
    ]


def write_gmm(path, dim, binary=True):
    """One Gaussian after the name of a transition model, which `check_dimension` skips."""
    with KaldiWriter(path, binary) as writer:
        writer.token("<TransitionModel>")
        writer.token("</TransitionModel>")
        AmDiagGmm(
            np.array([0, 1]),
            np.ones(1, np.float32),
            np.zeros((1, dim), np.float32),
            np.ones((1, dim), np.float32),
        ).write(writer)


@pytest.fixture
def deltas(system):
    """A Kaldi system of dimension 39 with derivatives, and a data directory with 13 columns."""
    data, model = system
    (model / "final.mat").unlink()
    write_gmm(model / "final.mdl", 39)
    (model / "tree").touch()
    return data, model


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dim", [4, 39, 256, 10])
def test_dimension_is_read_from_model_file(tmp_path, dim, binary):
    write_gmm(tmp_path / "final.mdl", dim, binary)
    assert gmm_dim(tmp_path / "final.mdl") == dim


def test_features_not_matching_gaussians_are_refused_before_jobs(deltas, tmp_path):
    data, model = deltas
    check_dimension(data, model)
    lang, graph = tmp_path / "lang", tmp_path / "graph"
    for path in (
        graph / "HCLG.fst",
        graph / "words.txt",
        data / "utt2spk",
        data / "text",
        model / "tree",
        *(lang / name for name in LANG_FILES),
    ):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    (model / "delta_opts").write_text("--delta-order=1\n")
    report = (
        f"^{data}/feats.scp: features of 13 columns become 26 by the options of {model}, but the Gaussians "
        f"of {model}/final.mdl have 39 dimensions; 39 = 13 x 3 means '--delta-order=2': write that into "
        f"{model}/delta_opts$"
    )
    for words in (
        ("align_si.py", data, lang, model, tmp_path / "out"),
        ("decode.py", "--model-dir", model, graph, data, tmp_path / "out"),
    ):
        with pytest.raises(UserError, match=report):
            run_here(*words)
        assert not list(tmp_path.glob("*out*"))


def test_gaussians_of_other_features_are_refused(deltas):
    data, model = deltas
    write_gmm(model / "final.mdl", 60)
    with pytest.raises(
        UserError, match="become 39 .* have 60 dimensions; give the features that the model was trained on"
    ):
        check_dimension(data, model)


def test_gaussians_not_matching_matrix_are_refused(system):
    data, model = system
    InputOptions(splice_left=3, splice_right=3).save(model)
    write_gmm(model / "final.mdl", 40)
    check_dimension(data, model)
    write_gmm(model / "final.mdl", 30)
    with pytest.raises(
        UserError,
        match=f"become 40 by {model}/final.mat, but the Gaussians of {model}/final.mdl have 30 dimensions",
    ):
        check_dimension(data, model)


def test_gaussians_next_to_network_may_have_any_dimension(deltas):
    data, model = deltas
    write_gmm(model / "final.mdl", 40)
    (model / "final.nnet").touch()
    check_dimension(data, model)
