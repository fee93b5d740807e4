"""GMM likelihoods, statistics and updates against their definitions in float64. Model files keep all bits;
damaged ones are detected."""

import numpy as np
import pytest
from gmm_toys import log_gaussians, random_model

from pyasr.base.cli.options import parse
from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_kernels import BLOCK, augmented_blocks, score_block
from pyasr.hmm.model.gmm_update import (
    GmmStats,
    GmmUpdateOptions,
    accumulate,
    by_pdf,
    mix_up,
    pdf_occupancies,
    split_targets,
    update,
)
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

DIM = 7


@pytest.fixture
def model():
    return random_model(num_pdfs=5, max_gauss=4, dim=DIM, seed=1)


@pytest.fixture
def feats():
    return (2 * np.random.default_rng(2).standard_normal((700, DIM))).astype(np.float32)


def log_likelihoods(model, feats):
    exponents = log_gaussians(model, feats)
    pieces = np.split(exponents, model.offsets[1:-1], axis=1)
    return np.stack([np.logaddexp.reduce(piece, axis=1) for piece in pieces], axis=1)


def test_log_likelihoods_equal_definition(model, feats):
    ours = model.log_likelihoods(feats)
    assert ours.dtype == np.float32 and ours.shape == (700, 5) and ours.flags.c_contiguous
    np.testing.assert_allclose(ours, log_likelihoods(model, feats), rtol=2e-6, atol=2e-5)


def test_log_likelihoods_of_selected_pdfs(model, feats):
    pdfs = np.array([4, 0, 2])
    np.testing.assert_allclose(
        model.log_likelihoods_by_pdf(feats, pdfs).T,
        model.log_likelihoods(feats)[:, pdfs],
        rtol=2e-6,
        atol=2e-5,
    )


@pytest.mark.parametrize("dim", [1, 3, 6, 13])
def test_blocks_of_frames_equal_whole_utterances(dim):
    """The kernel that alignment calls, with odd and even numbers of Gaussians and dimensions that are not a
    multiple of its step."""
    model = random_model(num_pdfs=6, max_gauss=7, dim=dim, seed=dim)
    feats = np.random.default_rng(3).standard_normal((37, dim)).astype(np.float32)
    blocks = augmented_blocks(feats)
    scores = np.empty((6, len(blocks), BLOCK), np.float32)
    for pdf in range(6):
        for number, block in enumerate(blocks):
            scratch = np.empty((9, BLOCK), np.float32)
            score_block(
                model.exponent_matrix,
                model.offsets[pdf],
                model.offsets[pdf + 1],
                block,
                scratch,
                scores[pdf, number],
            )
    np.testing.assert_allclose(
        scores.reshape(6, -1)[:, :37].T, log_likelihoods(model, feats), rtol=2e-6, atol=2e-5
    )


def test_far_frames_and_zero_weights_stay_finite(model, feats):
    weights = model.weights.copy()
    weights[model.offsets[3]] = 0.0
    model = AmDiagGmm(model.offsets, weights, model.means_invvars, model.inv_vars)
    ours = model.log_likelihoods(100 * feats)
    assert np.isfinite(ours[:, model.num_gauss_of > 1]).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(ours[:, :3], log_likelihoods(model, 100 * feats)[:, :3], rtol=1e-5)


def test_boost_adds_to_log_likelihoods_of_phones(model, feats):
    boosted = model.boosted(np.array([1, 3]), 2.5).log_likelihoods(feats)
    np.testing.assert_allclose(
        boosted - model.log_likelihoods(feats), np.log([[1, 2.5, 1, 2.5, 1]] * 700), atol=3e-5
    )


def test_features_of_other_dimension_are_refused(model, feats):
    with pytest.raises(UserError, match="dimension 6, but the GMM was trained on dimension 7"):
        model.log_likelihoods(feats[:, :6])


@pytest.mark.parametrize("binary", [True, False])
def test_model_file_keeps_every_bit(tmp_path, model, binary):
    with KaldiWriter(tmp_path / "gmm", binary) as writer:
        model.write(writer)
    reader = KaldiReader(tmp_path / "gmm")
    again = AmDiagGmm.read(reader)
    reader.expect_end()
    for name, array in vars(again).items():
        np.testing.assert_array_equal(array, getattr(model, name))


def test_every_truncated_file_is_refused(tmp_path, model):
    with KaldiWriter(tmp_path / "gmm") as writer:
        model.write(writer)
    whole = (tmp_path / "gmm").read_bytes()
    for size in range(2, len(whole), 7):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(UserError, match="cut"):
            AmDiagGmm.read(KaldiReader(tmp_path / "cut"))


def test_inconsistent_shapes_are_refused(tmp_path, model):
    class Liar(AmDiagGmm):
        dim = DIM - 1

    with KaldiWriter(tmp_path / "gmm") as writer:
        Liar(**vars(model)).write(writer)
    with pytest.raises(UserError, match="the model is damaged"):
        AmDiagGmm.read(KaldiReader(tmp_path / "gmm"))


def direct_sums(model, feats, pdfs):
    """(n_g, a_g, b_g) as (num_gauss, 1 + 2 dim) and the log-likelihood, frame by frame."""
    sums, total = np.zeros((model.num_gauss, 1 + 2 * model.dim)), 0.0
    exponents = log_gaussians(model, feats)
    for x, row, pdf in zip(feats.astype(np.float64), exponents, pdfs):
        if pdf >= 0:
            own = slice(model.offsets[pdf], model.offsets[pdf + 1])
            log_like = np.logaddexp.reduce(row[own])
            total += log_like
            sums[own] += np.exp(row[own] - log_like)[:, None] * np.concatenate([[1.0], x, x * x])
    return sums, total


def random_pdfs(num_frames, num_pdfs, seed=4):
    return np.random.default_rng(seed).integers(-1, num_pdfs, num_frames)


def test_statistics_equal_dense_sums(model, feats):
    pdfs = random_pdfs(len(feats), model.num_pdfs)
    stats = GmmStats.zeros(model)
    accumulate(model, by_pdf(feats[:300], pdfs[:300]), stats)
    accumulate(model, by_pdf(feats[300:], pdfs[300:]), stats)
    sums, total = direct_sums(model, feats, pdfs)
    np.testing.assert_allclose(stats.sums, sums, rtol=1e-4, atol=1e-4)
    assert stats.num_frames == (pdfs >= 0).sum() and stats.log_like == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(
        pdf_occupancies(model, stats), np.bincount(pdfs[pdfs >= 0], minlength=5), rtol=1e-5
    )


def test_em_equals_float64(feats):
    """Ten iterations of EM, compared with a plain implementation. The likelihood never decreases."""
    model = random_model(3, 3, DIM, seed=8, spread=1.0)
    pdfs = random_pdfs(len(feats), 3)
    options = GmmUpdateOptions(min_gaussian_occupancy=0.0, min_variance=0.01)
    plain, last = model, -np.inf
    for _ in range(10):
        stats = GmmStats.zeros(model)
        accumulate(model, by_pdf(feats, pdfs), stats)
        assert stats.log_like >= last - 1e-3
        last = stats.log_like
        model = update(model, stats, options)
        sums, _ = direct_sums(plain, feats, pdfs)
        n, a, b = sums[:, 0], sums[:, 1 : 1 + DIM], sums[:, 1 + DIM :]
        of_pdf = np.repeat(np.arange(3), plain.num_gauss_of)
        means = a / n[:, None]
        variances = np.maximum(b / n[:, None] - means**2, 0.01)
        plain = AmDiagGmm.from_moments(plain.offsets, n / np.bincount(of_pdf, n)[of_pdf], means, variances)
    np.testing.assert_allclose(model.weights, plain.weights, atol=1e-4)
    np.testing.assert_allclose(model.means, plain.means, atol=2e-3)
    np.testing.assert_allclose(model.variances, plain.variances, rtol=2e-3)


def sums_with(model, occupancies):
    """Statistics in which Gaussian g has `occupancies[g]` frames at mean 1 and variance 2."""
    n = np.asarray(occupancies, np.float64)[:, None]
    return GmmStats(np.hstack([n, n * np.ones(model.dim), n * 3 * np.ones(model.dim)]))


def test_rare_gaussians_are_removed_except_the_last():
    weights = np.array([0.2, 0.3, 0.5, 0.4, 0.6, 1.0])
    model = AmDiagGmm.from_moments([0, 3, 5, 6], weights, np.arange(12.0).reshape(6, 2), np.full((6, 2), 4.0))
    new = update(model, sums_with(model, [5, 30, 70, 3, 2, 0]), GmmUpdateOptions())
    assert new.num_gauss_of.tolist() == [2, 1, 1]
    np.testing.assert_allclose(new.weights, [0.3, 0.7, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(new.means, [[1, 1], [1, 1], [8, 9], [10, 11]], rtol=1e-6)
    np.testing.assert_allclose(new.variances, [[2, 2], [2, 2], [4, 4], [4, 4]], rtol=1e-6)


def test_variance_floor_and_minimum_weight():
    model = AmDiagGmm.from_moments([0, 2], np.array([0.5, 0.5]), np.zeros((2, 1)), np.ones((2, 1)))
    stats = GmmStats(np.array([[20.0, 20.0, 20.0 * 1.00001], [1e9, 0.0, 1e9]]))
    assert update(model, stats, GmmUpdateOptions(min_gaussian_weight=0)).variances[0, 0] == pytest.approx(
        0.001
    )
    assert update(model, stats, GmmUpdateOptions()).num_gauss == 1


@pytest.mark.parametrize("floor", ["0", "-1", "nan"])
def test_invalid_variance_floor_is_refused(floor):
    with pytest.raises(UserError, match=f"--min-variance.*{floor}"):
        parse(GmmUpdateOptions, ["--min-variance", floor])


def test_smallest_variance_floor_keeps_constant_frames_finite():
    model = AmDiagGmm.from_moments([0, 1], [1.0], np.zeros((1, 1)), np.ones((1, 1)))
    stats = GmmStats(np.array([[50.0, 50.0 * 3, 50.0 * 9]]))
    options = parse(GmmUpdateOptions, ["--min-variance", "1e-8", "--min-gaussian-occupancy", "0"])[0]
    assert np.isfinite(
        update(model, stats, options).log_likelihoods(np.array([[3.0], [4.0]], np.float32))
    ).all()


def plain_targets(occupancies, num_gauss, power, min_count):
    """The same rule with a linear search."""
    targets = [1] * len(occupancies)
    able = [True] * len(occupancies)
    while sum(targets) < num_gauss and any(able):
        best = max(
            (i for i in range(len(targets)) if able[i]), key=lambda i: occupancies[i] ** power / targets[i]
        )
        able[best] = (targets[best] + 1) * min_count < occupancies[best]
        targets[best] += able[best]
    return targets


@pytest.mark.parametrize("num_gauss", [3, 8, 40, 120, 1000])
def test_split_targets_equal_plain_computation(num_gauss):
    occupancies = np.random.default_rng(0).exponential(800, 8)
    assert split_targets(occupancies, num_gauss, 0.25, 20.0).tolist() == plain_targets(
        occupancies.tolist(), num_gauss, 0.25, 20.0
    )


def test_splitting_keeps_weights_and_separates_halves(model):
    occupancies = np.array([1000.0, 3000.0, 100.0, 0.0, 500.0])
    options = GmmUpdateOptions()
    new = mix_up(model, occupancies, model.num_gauss + 6, options, np.random.default_rng(0))
    assert new.num_gauss == max(model.num_gauss, new.num_gauss) > model.num_gauss
    np.testing.assert_allclose(np.add.reduceat(new.weights, new.offsets[:-1]), 1.0, rtol=1e-6)
    changed = new.num_gauss_of - model.num_gauss_of
    assert (changed >= 0).all() and changed[3] == 0
    one = AmDiagGmm.from_moments([0, 1], np.ones(1), np.full((1, DIM), 3.0), np.full((1, DIM), 4.0))
    two = mix_up(one, np.array([1e4]), 2, options, np.random.default_rng(1))
    apart = (two.means - 3.0) / 2.0
    np.testing.assert_allclose(two.weights, 0.5)
    np.testing.assert_allclose(apart[0], -apart[1], atol=1e-6)
    assert 0 < np.abs(apart).max() < 5 * options.perturb_factor
    assert mix_up(model, occupancies, 2, options, np.random.default_rng(0)) is model


def split_by_hand(weights, means, variances, target, factor, rng):
    """The heaviest Gaussian is replaced by two with half its weight and its variances, shifted by ± `factor`
    n standard deviations with random n."""
    weights, means, variances = list(weights), list(means), list(variances)
    while len(weights) < target:
        old = int(np.argmax(weights))
        step = factor * rng.standard_normal(len(means[0])) * np.sqrt(variances[old])
        weights[old] /= 2
        weights.append(weights[old])
        variances.append(variances[old])
        means.append(means[old] + step)
        means[old] = means[old] - step
    return np.array(weights), np.array(means), np.array(variances)


def test_split_halves_lie_symmetrically_around_mean():
    """Compared with splitting by the definition, with distant means, different variances, and several splits
    of one pdf."""
    model = random_model(4, 4, 3, seed=5)
    occupancies = np.array([9000.0, 40.0, 400.0, 2500.0])
    grown = mix_up(model, occupancies, 40, GmmUpdateOptions(perturb_factor=0.3), np.random.default_rng(11))
    rng = np.random.default_rng(11)
    for old, new in zip(
        zip(model.offsets[:-1], model.offsets[1:]), zip(grown.offsets[:-1], grown.offsets[1:])
    ):
        before, after = slice(*old), slice(*new)
        parts = split_by_hand(
            model.weights[before], model.means[before], model.variances[before], new[1] - new[0], 0.3, rng
        )
        for found, expected in zip((grown.weights[after], grown.means[after], grown.variances[after]), parts):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert grown.num_gauss_of[0] > 10
