"""The real steps use a Kaldi experiment (fixtures/kaldi: no input.json, no done-files), and their outputs
follow Kaldi's conventions."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kaldialign
import numpy as np
import pytest

from pyasr.base.cli import options
from pyasr.base.errors import UserError
from pyasr.feats.deltas import splice
from pyasr.feats.inputs import FeatureReader, InputOptions, open_features
from pyasr.hmm.model.gmm_dir import write_static_files
from pyasr.hmm.model.model_file import read_model
from pyasr.io.ark import read_ark
from pyasr.io.int_vectors import read_int_vectors, read_job_archives, write_int_vectors
from pyasr.io.kaldi_objects import KaldiReader
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.lang_dir import LangDir

ROOT = Path(__file__).resolve().parents[2]
KALDI = ROOT / "tests" / "fixtures" / "kaldi"
DNN_FLAGS = ["--hidden-layers", 1, "--hidden-dim", 16, "--minibatch", 32, "--num-epochs", 1,
             "--precision", "float32", "--heldout-share", 0.2, "--splice-left", 2,
             "--splice-right", 2]  # fmt: skip


def given(
    cmvn: str, norm_vars: bool, deltas: int, splice_left: int = 0, splice_right: int = 0
) -> InputOptions:
    return InputOptions(
        cmvn=cmvn, norm_vars=norm_vars, deltas=deltas, splice_left=splice_left, splice_right=splice_right
    )


def write_scp(ark: Path, scp: Path) -> None:
    """Table of an archive, found by its keys."""
    content = ark.read_bytes()
    write_table(
        scp, {key: f"{ark}:{content.index(f'{key} '.encode()) + len(key) + 1}" for key in read_ark(ark)}
    )


def copy_experiment(out: Path) -> Path:
    for name in ("data", "lang", "exp"):
        shutil.copytree(KALDI / name, out / name)
    for name in ("feats", "cmvn"):
        write_scp(out / f"data/{name}.ark", out / f"data/{name}.scp")
    return out


@pytest.fixture(scope="module")
def kaldi(tmp_path_factory):
    return copy_experiment(tmp_path_factory.mktemp("kaldi"))


def run(script: str, *words: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, ROOT / script, *map(str, words)], env=environment, capture_output=True, text=True
    )


def succeed(script: str, *words: object) -> str:
    done = run(script, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_alignment_graph_and_decoding_with_kaldi_model(kaldi):
    system, data = kaldi / "exp/tri1", kaldi / "data"
    succeed("steps/align_si.py", "--nj", 1, "--beam", 30, data, kaldi / "lang", system, kaldi / "ours_ali")
    ours, theirs = read_job_archives(kaldi / "ours_ali"), read_job_archives(system)
    assert ours.keys() == theirs.keys()
    assert np.mean(np.concatenate([ours[key] == theirs[key] for key in theirs])) > 0.9
    succeed("utils/make_graph.py", kaldi / "lang", system, kaldi / "graph")
    scales = ("--acoustic-scale", 1, "--beam", 60)
    succeed(
        "steps/decode.py", "--nj", 1, *scales, "--model-dir", system, kaldi / "graph", data, kaldi / "decode"
    )
    text = {key: value.split() for key, value in read_table(data / "text").items()}
    lines = (kaldi / "decode/hyp.1.txt").read_text().splitlines()
    hypotheses = {key: words for key, *words in map(str.split, lines)}
    assert hypotheses.keys() == text.keys()
    errors = sum(kaldialign.edit_distance(text[key], hypotheses[key])["total"] for key in text)
    # some words have the same sound, and the language model is random
    assert errors < 0.4 * sum(map(len, text.values()))


def test_alignment_with_adapted_kaldi_system(kaldi):
    system = kaldi / "exp/tri4_ali"
    succeed(
        "steps/align_fmllr.py",
        "--nj",
        1,
        "--beam",
        30,
        kaldi / "data",
        kaldi / "lang",
        system,
        kaldi / "fmllr_ali",
    )
    ours, theirs = read_job_archives(kaldi / "fmllr_ali"), read_job_archives(system)
    assert (
        ours.keys() == theirs.keys()
        and np.mean(np.concatenate([ours[key] == theirs[key] for key in theirs])) > 0.85
    )


@pytest.mark.skipif(
    shutil.which("mpiexec", path=str(Path(sys.executable).parent)) is None, reason="needs MPI"
)
def test_network_on_kaldi_alignments(kaldi):
    succeed(
        "steps/train_dnn.py",
        "--num-ranks",
        2,
        *DNN_FLAGS,
        kaldi / "data",
        kaldi / "lang",
        kaldi / "exp/tri4_ali",
        kaldi / "dnn",
    )
    trans = read_model(kaldi / "exp/tri4_ali/final.mdl")[0]
    succeed("utils/make_graph.py", kaldi / "lang", kaldi / "exp/tri4_ali", kaldi / "graph4")
    assert (kaldi / "graph4/num_pdfs").read_text() == f"{trans.num_pdfs}\n"
    report = succeed(
        "steps/decode.py",
        "--nj",
        1,
        "--model-dir",
        kaldi / "dnn",
        kaldi / "graph4",
        kaldi / "data",
        kaldi / "decode_dnn",
    )
    assert "24 utterances" in report


def test_input_of_kaldi_delta_system(kaldi):
    assert InputOptions.load(kaldi / "exp/tri1") == given("speaker", False, 2, 0, 0)
    assert (
        open_features(kaldi / "data", kaldi / "exp/tri1").dim
        == read_model(kaldi / "exp/tri1/final.mdl")[1].dim
        == 12
    )


def test_input_of_adapted_kaldi_system(kaldi):
    """Splicing, final.mat, then the speakers' transforms, by the formula. They increase the likelihood of the
    alignments."""
    system = kaldi / "exp/tri4_ali"
    assert InputOptions.load(system) == given("speaker", False, 0, 3, 3)
    adapted, plain = open_features(kaldi / "data", system, system), open_features(kaldi / "data", system)
    raw = FeatureReader(kaldi / "data", InputOptions())
    matrix = KaldiReader(system / "final.mat").matrix().astype(np.float64)
    transforms = read_ark(system / "trans.1", np.float64) | read_ark(system / "trans.2", np.float64)
    trans, gmm = read_model(system / "final.mdl")
    scores = np.zeros(2)
    for key, alignment in read_job_archives(system).items():
        transform = transforms[raw.speaker(key)]
        expected = splice(raw[key], 3, 3) @ matrix.T @ transform[:, :-1].T + transform[:, -1]
        np.testing.assert_allclose(adapted[key], expected, atol=1e-4)
        frames = np.arange(len(alignment)), trans.tid2pdf[alignment]
        scores += [gmm.log_likelihoods(reader[key])[frames].sum() for reader in (adapted, plain)]
    assert scores[0] > scores[1]


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, given("speaker", False, 2, 0, 0)),
        ({"cmvn_opts": "--norm-means=true --norm-vars=true"}, given("speaker", True, 2, 0, 0)),
        ({"cmvn_opts": "--norm-means=false", "delta_opts": "--delta-order=3"}, given("none", False, 3, 0, 0)),
        ({"splice_opts": "--left-context=5"}, given("speaker", False, 2, 0, 0)),
        ({"final.mat": "", "splice_opts": ""}, given("speaker", False, 0, 4, 4)),
        (
            {
                "final.mat": "",
                "splice_opts": "--left-context=3 --right-context=3",
                "delta_opts": "--delta-order=1",
            },
            given("speaker", False, 0, 3, 3),
        ),
    ],
)
def test_kaldi_conventions_are_recognised(tmp_path, files, expected):
    for name, content in {"final.mdl": "", **files}.items():
        (tmp_path / name).write_text(content)
    assert InputOptions.load(tmp_path) == expected


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "cmvn_opts",
            "--reverse=true",
            "cmvn_opts: unknown option '--reverse=true'; known are --norm-means, --norm-vars",
        ),
        ("cmvn_opts", "--norm-vars=maybe", "'--norm-vars=maybe' has no true or false after the ="),
        ("cmvn_opts", "--norm-means=false --norm-vars=true", "variances are normalised but not means"),
        ("delta_opts", "--delta-window=3", "delta_opts: only derivatives over a window of 2 frames"),
        ("delta_opts", "2", "unknown option '2'"),
        ("delta_opts", "--delta-order=x", "no whole number after the ="),
    ],
)
def test_unknown_options_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        InputOptions.load(tmp_path)
    assert "\n" not in str(error.value)


def test_directory_without_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="input.json: no such file, nor cmvn_opts and final.mdl"):
        InputOptions.load(tmp_path)


@pytest.mark.parametrize(
    "inputs", [given("speaker", True, 2), given("none", False, 1), given("speaker", False, 0)]
)
def test_own_directories_follow_kaldi_conventions(kaldi, tmp_path, inputs):
    write_static_files(tmp_path, LangDir(kaldi / "lang"), inputs, 3)
    assert InputOptions.load(tmp_path) == inputs
    (tmp_path / "input.json").unlink()
    assert InputOptions.load(tmp_path) == inputs
    assert (tmp_path / "num_jobs").read_text() == "3\n" and (tmp_path / "phones.txt").read_text() == (
        kaldi / "lang/phones.txt"
    ).read_text()


def prepare_network(path: Path) -> None:
    """Run steps/train_dnn.py up to the start of its ranks."""
    spec = importlib.util.spec_from_file_location("train_dnn", ROOT / "steps/train_dnn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_ranks = lambda *_: None
    words = [*DNN_FLAGS, path / "data", path / "lang", path / "exp/tri4_ali", path / "dnn"]
    module.main(options.parse(module.TrainDnn, list(map(str, words)), "", {})[0])


def change(path: Path, edit) -> None:
    path.write_bytes(edit(path.read_bytes()))


def shorten(path: Path) -> None:
    write_int_vectors(path, {key: vector[:-1] for key, vector in read_int_vectors(path).items()})


def renumber(path: Path) -> None:
    """Replace transition-ids by those of another model."""
    write_int_vectors(
        path, {key: np.maximum(vector - 1, 1) for key, vector in read_int_vectors(path).items()}
    )


DAMAGED = [
    (
        lambda x: (x / "exp/tri4_ali/num_jobs").unlink(),
        "num_jobs: missing or not a number; is this an alignment directory?",
    ),
    (lambda x: (x / "exp/tri4_ali/num_jobs").write_text("3\n"), r"ali.3.gz: no such file"),
    (
        lambda x: change(x / "exp/tri4_ali/ali.2.gz", lambda b: b[:-20]),
        r"ali.2.gz: damaged or truncated gzip file",
    ),
    (
        lambda x: shorten(x / "exp/tri4_ali/ali.1.gz"),
        "does not match .*data: 0 of 24 utterances have no alignment and 12 an alignment of another",
    ),
    (
        lambda x: renumber(x / "exp/tri4_ali/ali.1.gz"),
        "not a path through the phones' HMMs .*; .* different models",
    ),
    (
        lambda x: change(x / "exp/tri4_ali/final.mdl", lambda b: b[:200]),
        r"final.mdl: at byte \d+: .*truncated",
    ),
    (
        lambda x: shutil.copy(x / "exp/tri1/tree", x / "exp/tri4_ali"),
        "tree: the tree has .* pdfs, the model .*; use tree and",
    ),
    (
        lambda x: change(x / "exp/tri4_ali/phones.txt", lambda b: b.replace(b"P0_B", b"Q0_B")),
        "phones.txt differ .for example in 'P0_B 11'",
    ),
    (
        lambda x: change(x / "data/feats.scp", lambda b: b.replace(b"feats.ark", b"gone.ark", 1)),
        "gone.ark: no such file",
    ),
]


@pytest.mark.parametrize("damage, message", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_experiments_give_one_sentence(tmp_path, damage, message):
    copy_experiment(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        prepare_network(tmp_path)
    assert "\n" not in str(error.value) and not (tmp_path / "dnn").exists()


def test_mismatched_matrix_is_refused(kaldi, tmp_path):
    shutil.copytree(kaldi / "exp/tri4_ali", tmp_path / "ali")
    (tmp_path / "ali/splice_opts").write_text("--left-context=2 --right-context=2\n")
    reader = open_features(kaldi / "data", tmp_path / "ali")
    with pytest.raises(UserError, match="the model's matrix has 28 columns, but the features 20"):
        reader[reader.keys[0]]


def test_alignment_with_damaged_model_leaves_no_output(kaldi, tmp_path):
    shutil.copytree(kaldi / "exp/tri1", tmp_path / "tri1")
    change(tmp_path / "tri1/final.mdl", lambda content: content[:-30])
    done = run(
        "steps/align_si.py", "--nj", 1, kaldi / "data", kaldi / "lang", tmp_path / "tri1", tmp_path / "ali"
    )
    assert done.returncode == 1 and "final.mdl: at byte" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "ali").exists()
