"""Linear and affine transforms against their definition; exchange of matrix files with Kaldi; features by a
model directory."""

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.feats.inputs import INPUT_TABLES, InputOptions, open_features
from pyasr.feats.transforms import (
    affine,
    apply_transform,
    compose,
    read_matrix,
    read_transforms,
    transform_files,
    write_matrix,
    write_transforms,
)
from pyasr.io.ark import ArkWriter, write_ark
from pyasr.io.text_tables import read_table, write_table


def matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


@pytest.mark.parametrize("outer_affine", [False, True])
@pytest.mark.parametrize("inner_affine", [False, True])
def test_composed_transforms_apply_in_sequence(outer_affine, inner_affine):
    inner, outer = matrix(3, 5 + inner_affine, 1), matrix(2, 3 + outer_affine, 2)
    x = matrix(11, 5, 3).astype(np.float32)
    both = compose(outer, inner, 5)
    assert both.shape == (2, 6 if inner_affine or outer_affine else 5)
    expected = np.hstack([x, np.ones((11, 1))]) @ affine(inner, 5).T
    expected = np.hstack([expected, np.ones((11, 1))]) @ affine(outer, 3).T
    np.testing.assert_allclose(apply_transform(x, both), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        apply_transform(apply_transform(x, inner), outer), expected, rtol=1e-5, atol=1e-5
    )


def test_matrix_of_other_dimension_is_refused():
    with pytest.raises(UserError, match="the LDA matrix has 9 columns, but the features 5"):
        apply_transform(matrix(4, 5, 0), matrix(3, 9, 0), "the LDA matrix")


@pytest.mark.parametrize("binary", [True, False])
def test_matrices_are_exchanged_with_kaldi(tmp_path, binary):
    native = pytest.importorskip("kaldi_native_io")
    ours = matrix(4, 7, 0).astype(np.float32)
    write_matrix(tmp_path / "final.mat", ours, binary)
    np.testing.assert_allclose(native.FloatMatrix.read(str(tmp_path / "final.mat")).numpy(), ours, rtol=1e-6)
    native.FloatMatrix(ours).write(str(tmp_path / "theirs.mat"), binary)
    np.testing.assert_allclose(read_matrix(tmp_path / "theirs.mat"), ours, rtol=1e-5)


def test_transforms_are_exchanged_with_kaldi(tmp_path):
    native = pytest.importorskip("kaldi_native_io")
    ours = {speaker: matrix(4, 5, i).astype(np.float32) for i, speaker in enumerate("abc")}
    write_transforms(tmp_path / "trans.1", ours)
    with native.SequentialFloatMatrixReader(f"ark:{tmp_path}/trans.1") as reader:
        theirs = {key: np.array(value) for key, value in reader}
    assert theirs.keys() == ours.keys() and all(np.array_equal(ours[key], theirs[key]) for key in ours)
    for specifier, job in (("ark", 1), ("ark,t", 2)):
        with native.FloatMatrixWriter(f"{specifier}:{tmp_path}/trans.{job}") as writer:
            writer.write(f"speaker{job}", ours["a"])
    (tmp_path / "num_jobs").write_text("2\n")
    found = read_transforms(tmp_path)
    assert sorted(found) == ["speaker1", "speaker2"]
    np.testing.assert_allclose(found["speaker2"], ours["a"], rtol=1e-5)


def test_speaker_in_several_archives(tmp_path):
    (tmp_path / "num_jobs").write_text("2\n")
    one = {"a": matrix(2, 3, 0)}
    write_transforms(tmp_path / "trans.1", one)
    write_transforms(tmp_path / "trans.2", one | {"b": matrix(2, 3, 1)})
    assert sorted(read_transforms(tmp_path)) == ["a", "b"]
    write_transforms(tmp_path / "trans.2", {"a": matrix(2, 3, 1)})
    with pytest.raises(UserError, match="the transform of speaker a differs"):
        read_transforms(tmp_path)


def test_directory_without_transforms_is_refused(tmp_path):
    with pytest.raises(UserError, match="num_jobs: missing or not a number; transforms come from"):
        read_transforms(tmp_path)


@pytest.mark.parametrize("content", ["-1", "1000000"])
def test_number_of_jobs_is_limited(tmp_path, content):
    (tmp_path / "num_jobs").write_text(content)
    with pytest.raises(UserError, match="num_jobs: not a number from 1 to 100000; transforms come from"):
        transform_files(tmp_path)


@pytest.mark.parametrize("binary", [True, False])
def test_vectors_instead_of_transforms_are_refused(tmp_path, binary):
    (tmp_path / "num_jobs").write_text("1\n")
    write_ark(tmp_path / "trans.1", {"a": matrix(3, 4, 0), "b": matrix(1, 3, 0)[0]}, binary)
    with pytest.raises(
        UserError,
        match="trans.1: speaker b has a vector of 3 numbers, not a matrix; transforms come from steps/",
    ):
        read_transforms(tmp_path)


def test_features_follow_model_directory(tmp_path):
    """CMVN is off; frames are spliced by hand, then the model's matrix and the speaker's transform are
    applied."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3)).astype(np.float32)
    with ArkWriter(tmp_path / "f.ark", tmp_path / "feats.scp") as writer:
        writer.write("a-1", x)
    write_table(tmp_path / "utt2spk", {"a-1": "a"})
    InputOptions(cmvn="none", splice_left=1).save(tmp_path)
    lda, fmllr = matrix(4, 7, 1), matrix(4, 5, 2)
    write_matrix(tmp_path / "final.mat", lda)
    write_transforms(tmp_path / "trans.1", {"a": fmllr})
    (tmp_path / "num_jobs").write_text("1\n")
    spliced = np.hstack([x[[0, 0, 1, 2, 3, 4]], x, np.ones((6, 1))])
    expected = spliced @ lda.T
    reader = open_features(tmp_path, tmp_path)
    np.testing.assert_allclose(reader["a-1"], expected, rtol=1e-4, atol=1e-4)
    assert reader.dim == 4
    adapted = open_features(tmp_path, tmp_path, tmp_path)["a-1"]
    np.testing.assert_allclose(
        adapted, np.hstack([expected, np.ones((6, 1))]) @ fmllr.T, rtol=1e-4, atol=1e-4
    )
    write_transforms(tmp_path / "trans.1", {"b": fmllr})
    with pytest.raises(UserError, match="no transform of speaker a"):
        open_features(tmp_path, tmp_path, tmp_path)["a-1"]


def test_job_has_transforms_of_its_own_speakers(tmp_path):
    data, model, out = (tmp_path / name for name in ("data", "model", "out"))
    data.mkdir()
    model.mkdir()
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        for utt in ("a-1", "b-1", "c-1"):
            writer.write(utt, matrix(6, 3, 0).astype(np.float32))
    write_table(data / "utt2spk", {f"{speaker}-1": speaker for speaker in "abc"})
    InputOptions(cmvn="none").save(model)
    write_transforms(model / "trans.1", {speaker: matrix(3, 4, 1) for speaker in "abc"})
    (model / "num_jobs").write_text("1\n")
    with parts_of_jobs(data, out, [["a-1"], ["b-1", "c-1"]], INPUT_TABLES):
        readers = [open_features(data, model, model, part_of(data, out, 2, job)) for job in (1, 2)]
    assert [sorted(reader.transforms) for reader in readers] == [["a"], ["b", "c"]]
    assert np.array_equal(readers[1]["c-1"], open_features(data, model, model)["c-1"])


def test_corrected_transcript_is_copied(tmp_path):
    data, model, out = (tmp_path / name for name in ("data", "model", "out"))
    data.mkdir()
    model.mkdir()
    with ArkWriter(data / "f.ark", data / "feats.scp") as writer:
        writer.write("a-1", matrix(6, 3, 0).astype(np.float32))
    write_table(data / "utt2spk", {"a-1": "a"})
    InputOptions(cmvn="none").save(model)
    write_transforms(model / "trans.1", {"a": matrix(3, 4, 1)})
    (model / "num_jobs").write_text("1\n")
    for words in ("as it was", "as it is"):
        write_table(data / "text", {"a-1": words})
        run_here("make_fmllr_feats.py", "--nj", 1, data, model, out)
        assert read_table(out / "text") == {"a-1": words}
