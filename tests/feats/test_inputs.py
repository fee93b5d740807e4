"""CMVN, deltas and splicing against their definitions, implemented as loops."""

import json

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.feats.deltas import add_deltas, splice
from pyasr.feats.extraction.speaker_cmvn import publish, write_speaker_cmvn
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter, load_matrix, read_scp
from pyasr.io.text_tables import write_table

UTTERANCES = {"a-1": ("a", 30), "a-2": ("a", 7), "b-1": ("b", 12), "b-2": ("b", 1)}


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    with ArkWriter(tmp_path / "f.ark", tmp_path / "feats.scp") as writer:
        for utt, (_, length) in UTTERANCES.items():
            writer.write(utt, (3 + 2 * rng.standard_normal((length, 5))).astype(np.float32))
    write_table(tmp_path / "utt2spk", {utt: speaker for utt, (speaker, _) in UTTERANCES.items()})
    (tmp_path / "cmvn").mkdir()
    write_speaker_cmvn(tmp_path, tmp_path / "cmvn", tmp_path / "cmvn")
    publish(tmp_path)
    return tmp_path


def raw(data):
    return {utt: load_matrix(rx) for utt, rx in read_scp(data / "feats.scp").items()}


def frame(x, t):
    return x[min(max(t, 0), len(x) - 1)]


def test_cmvn_files_have_statistics_of_kaldi(data):
    native = pytest.importorskip("kaldi_native_io")
    with native.SequentialDoubleMatrixReader(f"scp:{data}/cmvn.scp") as reader:
        stats = {key: np.array(matrix) for key, matrix in reader}
    rows = np.vstack([raw(data)["a-1"], raw(data)["a-2"]]).astype(np.float64)
    np.testing.assert_allclose(stats["a"], [[*rows.sum(0), len(rows)], [*(rows**2).sum(0), 0]], rtol=1e-12)


@pytest.mark.parametrize("norm_vars", [False, True])
def test_speaker_normalisation(data, norm_vars):
    reader = FeatureReader(data, InputOptions(norm_vars=norm_vars))
    for speaker in "ab":
        rows = np.vstack([reader[utt] for utt in reader.keys if reader.speaker(utt) == speaker])
        np.testing.assert_allclose(rows.mean(0), 0, atol=1e-5)
        if norm_vars:
            np.testing.assert_allclose(rows.std(0), 1, atol=1e-5)


def test_utterance_normalisation_and_none(data):
    reader = FeatureReader(data, InputOptions(cmvn="utterance"))
    np.testing.assert_allclose(reader["a-2"].mean(0), 0, atol=1e-5)
    np.testing.assert_array_equal(FeatureReader(data, InputOptions(cmvn="none"))["a-2"], raw(data)["a-2"])


def test_deltas_follow_the_regression_formula():
    """d[t] = sum_j j x[t + j] / 10 for j = -2..2. The second order is the same of d, with x repeated at the
    ends before d is computed."""
    x = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
    out = add_deltas(x, 2)
    for t in range(9):
        first = {s: sum(j * frame(x, t + s + j) for j in range(-2, 3)) / 10 for s in range(-2, 3)}
        second = sum(j * first[j] for j in range(-2, 3)) / 10
        np.testing.assert_allclose(out[t], np.concatenate([x[t], first[0], second]), atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 20])
def test_splicing_repeats_first_and_last_frame(length):
    x = np.random.default_rng(1).standard_normal((length, 3)).astype(np.float32)
    out = splice(x, 3, 2)
    for t in range(length):
        np.testing.assert_array_equal(out[t], np.concatenate([frame(x, t + j) for j in range(-3, 3)]))


def test_order_is_cmvn_deltas_splice(data):
    options = InputOptions(deltas=1, splice_left=1, splice_right=2)
    reader = FeatureReader(data, options)
    x = raw(data)["b-1"] - np.vstack([raw(data)["b-1"], raw(data)["b-2"]]).mean(0)
    np.testing.assert_allclose(reader["b-1"], splice(add_deltas(x, 1), 1, 2), atol=1e-5)
    assert reader.dim == reader["b-1"].shape[1] == 40
    assert reader.num_frames("b-1") == 12


def test_input_options_are_saved_with_model(tmp_path):
    options = InputOptions(deltas=2, splice_left=3)
    options.save(tmp_path)
    assert InputOptions.load(tmp_path) == options
    with pytest.raises(UserError, match="input.json: no such file"):
        InputOptions.load(tmp_path / "none")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("deltas", 9, "--deltas: 9 is above the maximum 4"),
        ("splice_left", -1, "--splice-left: -1 is below the minimum"),
        ("splice_right", 10**9, "--splice-right: 1000000000 is above"),
        ("norm_vars", "yes", "--norm-vars: 'yes' is not a value of type bool"),
        ("deltas", 1.5, "--deltas: '1.5' is not a value of type int"),
        ("cmvn", "mean", "--cmvn: 'mean' is not one of"),
        ("sliding", 3, "sliding: expected options"),
        ("deltas", None, "--deltas: 'None' is not a value of type int"),
        ("type", "os:system", "options of os"),
        ("type", "pyasr.base.jobs.job:main", "not compatible with this version"),
        ("type", "pyasr.feats.options:MfccOptions", "MfccOptions is not one of the expected classes"),
        ("other", 1, "has no other"),
    ],
)
def test_input_options_from_other_sources_are_checked(name, value, message, tmp_path):
    """They are checked like a command line, and cannot name another class."""
    InputOptions().save(tmp_path)
    path = tmp_path / "input.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(UserError, match=f"input.json.*{message}"):
        InputOptions.load(tmp_path)


def test_deeply_nested_json_is_refused(tmp_path):
    (tmp_path / "input.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="input.json: not a file of saved options"):
        InputOptions.load(tmp_path)


def test_missing_tables_are_named(data):
    (data / "cmvn.scp").unlink()
    with pytest.raises(
        UserError,
        match="cmvn.scp: no such file; run steps/compute_cmvn.py .* first, or train with --cmvn none",
    ):
        FeatureReader(data, InputOptions())
    (data / "feats.scp").unlink()
    with pytest.raises(UserError, match="feats.scp: no such file; run steps/make_mfcc.py"):
        FeatureReader(data, InputOptions(cmvn="none"))


def test_speaker_without_statistics_is_refused(data):
    write_table(data / "utt2spk", dict.fromkeys(UTTERANCES, "c"))
    with pytest.raises(UserError, match="no statistics of speaker c"):
        FeatureReader(data, InputOptions())["a-1"]


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("shape", [(1, 6), (3, 6), (0, 0)])
def test_statistics_of_other_shape_are_refused(data, shape, norm_vars):
    with ArkWriter(data / "other.ark", data / "cmvn.scp") as writer:
        writer.write("a", np.ones(shape))
    found = (
        f"the statistics of speaker a have {shape[0]} rows and {shape[1]} columns, not 2 rows; run "
        f"steps/compute_cmvn.py {data}"
    )
    with pytest.raises(UserError, match=f"^{data}/cmvn.scp: {found}$"):
        FeatureReader(data, InputOptions(norm_vars=norm_vars))["a-1"]


@pytest.mark.parametrize("cmvn", ["speaker", "utterance", "sliding", "none"])
def test_features_of_other_dimension_are_named(data, cmvn):
    """The first features define the dimension, even if they are not read. Utterances without frames have
    none."""
    features = {
        "a-0": np.zeros((0, 0)),
        "a-1": np.ones((30, 5)),
        "a-2": np.ones((7, 5)),
        "b-1": np.ones((12, 6)),
        "b-2": np.ones((1, 6)),
    }
    with ArkWriter(data / "mixed.ark", data / "feats.scp") as writer:
        for utt, matrix in features.items():
            writer.write(utt, matrix.astype(np.float32))
    reader = FeatureReader(data, InputOptions(cmvn=cmvn, deltas=1))
    report = (
        f"{data}: b-2 has 6 columns, other utterances have 5; compute the features of {data} again, or remove"
    )
    with pytest.raises(UserError, match=report):
        reader["b-2"]
    assert reader.dim == reader["a-2"].shape[1] == 10
    assert (
        reader.raw("a-0").shape == (0, 5)
        and reader["a-0"].shape == (0, 10)
        and reader["a-0"].dtype == np.float32
    )
