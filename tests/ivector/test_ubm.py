"""The UBM recovers a planted mixture, equal on all ranks; posteriors follow the definition; its file."""

import numpy as np
import pytest
from gmm_toys import log_gaussians, random_model

from pyasr.base.errors import UserError
from pyasr.base.outputs.progress_note import VARIABLE, read_note
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.ivector.ubm import PosteriorOptions, UbmOptions, frame_posteriors, read_ubm, train_ubm, write_ubm
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

OPTIONS = UbmOptions(num_gauss=4, ubm_iters=14, ubm_split_iters=6)
MEANS = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 6.0], [0.0, -6.0]])


def frames(num: int = 600) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (MEANS[rng.integers(4, size=num)] + rng.standard_normal((num, 2)) * [1.0, 0.5]).astype(np.float32)


def test_planted_mixture_is_recovered():
    ubm = train_ubm(frames(), SoloComm(), OPTIONS)
    nearest = np.linalg.norm(ubm.means[:, None] - MEANS, axis=2)
    assert sorted(nearest.argmin(1)) == [0, 1, 2, 3] and nearest.min(1).max() < 0.25
    np.testing.assert_allclose(ubm.variances, np.tile([1.0, 0.25], (4, 1)), rtol=0.3)
    np.testing.assert_allclose(ubm.weights, 0.25, atol=0.05)


def test_training_reports_progress(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "note"))
    train_ubm(frames(), SoloComm(), OPTIONS)
    note = read_note(tmp_path / "note")
    assert (note.what, note.share) == ("iteration of the UBM 14 of 14", 1.0) and -10 < note.objective < 0


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_result_does_not_depend_on_number_of_ranks(num_ranks):
    whole = frames()
    alone = train_ubm(whole, SoloComm(), OPTIONS)
    for one in run_threads(num_ranks, lambda comm: train_ubm(whole[comm.rank :: comm.size], comm, OPTIONS)):
        np.testing.assert_allclose(one.means, alone.means, atol=1e-3)
        np.testing.assert_allclose(one.weights, alone.weights, atol=1e-4)


def test_number_of_gaussians_grows_to_target():
    sizes = [UbmOptions(num_gauss=128).target(x) for x in range(24)]
    assert sizes == sorted(sizes) and sizes[0] == 1 and sizes[7] == 11 and sizes[15:] == [128] * 9


@pytest.mark.parametrize(
    "num_gauss, iters, split_iters",
    [(4, 7, 6), (4, 6, 6), (2, 5, 6), (2, 4, 6), (4, 2, 1), (4, 1, 1), (1, 1, 9)],
)
def test_too_few_iterations_for_gaussians_are_refused(num_gauss, iters, split_iters):
    options = UbmOptions(num_gauss=num_gauss, ubm_iters=iters, ubm_split_iters=split_iters)
    found = train_ubm(frames(), SoloComm(), options).num_gauss
    if found == num_gauss:
        options.check()
        return
    with pytest.raises(
        UserError,
        match=f"--ubm-iters {iters} would end with {found} of --num-gauss {num_gauss} Gaussians; give more",
    ):
        options.check()


def test_too_few_frames_give_smaller_model_or_error(capsys):
    assert (
        train_ubm(frames(60), SoloComm(), UbmOptions(num_gauss=64, ubm_iters=6, ubm_split_iters=4)).num_gauss
        <= 3
    )
    with pytest.raises(UserError, match="30 frames are too few for a UBM; give more data"):
        train_ubm(frames(30), SoloComm(), OPTIONS)


@pytest.mark.parametrize("min_post, scale", [(0.0, 1.0), (0.2, 0.1), (0.9, 1.0)])
def test_posteriors_equal_definition(min_post, scale):
    ubm, options = random_model(1, 9, 3, seed=4), PosteriorOptions(scale, min_post)
    feats = np.random.default_rng(5).standard_normal((50, 3)).astype(np.float32)
    expected = np.exp(log_gaussians(ubm, feats))
    expected /= expected.sum(1, keepdims=True)
    expected = np.where((expected >= min_post) | (expected == expected.max(1, keepdims=True)), expected, 0)
    expected *= scale / expected.sum(1, keepdims=True)
    np.testing.assert_allclose(frame_posteriors(ubm, feats, options), expected, atol=1e-4)
    assert frame_posteriors(ubm, feats[:0], options).shape == (0, ubm.num_gauss)


def test_ubm_survives_file_round_trip(tmp_path):
    ubm = random_model(1, 9, 3, seed=4)
    write_ubm(tmp_path / "final.dubm", ubm)
    again = read_ubm(tmp_path / "final.dubm")
    for name in ("offsets", "weights", "means_invvars", "inv_vars"):
        np.testing.assert_array_equal(getattr(again, name), getattr(ubm, name))
    with KaldiWriter(tmp_path / "final.mdl") as writer:
        ubm.write(writer)
    with pytest.raises(UserError, match="final.mdl: at byte"):
        read_ubm(tmp_path / "final.mdl")
