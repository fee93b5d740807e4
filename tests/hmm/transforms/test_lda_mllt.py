"""LDA and MLLT against their definitions in float64: scatter, whitening, the objective and its maximum."""

import numpy as np
import pytest
from gmm_toys import log_gaussians, random_model

from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm_update import GmmStats, accumulate, by_pdf
from pyasr.hmm.transforms.lda import LdaStats, estimate_lda, scatter
from pyasr.hmm.transforms.mllt import MlltStats, estimate_mllt, transform_means
from pyasr.hmm.transforms.row_updates import maximise_rows, objective

DIM, CLASSES = 6, 5


@pytest.fixture
def labelled():
    """Frames of classes with different means and one full covariance. Class -1 is ignored."""
    rng = np.random.default_rng(0)
    means, mix = 2 * rng.standard_normal((CLASSES, DIM)), rng.standard_normal((DIM, DIM))
    classes = rng.integers(-1, CLASSES, 3000)
    return (means[classes] + rng.standard_normal((3000, DIM)) @ mix).astype(np.float32), classes


def lda_stats(feats, classes, pieces: int = 3) -> LdaStats:
    stats = LdaStats.zeros(CLASSES + 1, DIM)  # the last class has no frame
    for x, c in zip(np.array_split(feats, pieces), np.array_split(classes, pieces)):
        stats.accumulate(x, c)
    return stats


def dense_scatter(feats, classes):
    x, c = feats[classes >= 0].astype(np.float64), classes[classes >= 0]
    centres = np.stack([x[c == k].mean(0) for k in range(CLASSES)])[c]
    return (x - centres).T @ (x - centres) / len(x), (centres - x.mean(0)).T @ (centres - x.mean(0)) / len(x)


def test_scatter_equals_that_of_frames(labelled):
    within, between, mean = scatter(lda_stats(*labelled))
    expected_within, expected_between = dense_scatter(*labelled)
    np.testing.assert_allclose(within, expected_within, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(between, expected_between, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mean, labelled[0][labelled[1] >= 0].mean(0), atol=1e-5)


def test_lda_whitens_within_class_and_sorts_between_class(labelled):
    within, between = dense_scatter(*labelled)
    matrix, ratios = estimate_lda(lda_stats(*labelled), DIM)
    np.testing.assert_allclose(matrix @ within @ matrix.T, np.eye(DIM), atol=1e-4)
    np.testing.assert_allclose(matrix @ between @ matrix.T, np.diag(ratios), atol=1e-3)
    expected = np.sort(np.linalg.eigvals(np.linalg.solve(within, between)).real)[::-1]
    np.testing.assert_allclose(ratios, expected, atol=1e-3 * expected[0])
    fewer, _ = estimate_lda(lda_stats(*labelled), 3)
    np.testing.assert_array_equal(fewer, matrix[:3])


def test_lda_with_offset_has_zero_mean(labelled):
    matrix, _ = estimate_lda(lda_stats(*labelled), 4, remove_offset=True)
    assert matrix.shape == (4, DIM + 1)
    used = labelled[0][labelled[1] >= 0]
    np.testing.assert_allclose((used @ matrix[:, :-1].T + matrix[:, -1]).mean(0), 0, atol=1e-4)


@pytest.mark.parametrize(
    "dim, num_frames, message",
    [
        (7, 3000, "LDA cannot map features with 6 columns to 7 dimensions"),
        (3, 5, "5 frames of speech are too few"),
        (3, 0, "0 frames of speech are too few"),
    ],
)
def test_lda_with_too_little_data_is_refused(labelled, dim, num_frames, message):
    stats = lda_stats(labelled[0][labelled[1] >= 0][:num_frames], labelled[1][labelled[1] >= 0][:num_frames])
    with pytest.raises(UserError, match=message):
        estimate_lda(stats, dim)


def test_lda_with_duplicate_column_is_refused(labelled):
    feats = labelled[0].copy()
    feats[:, 1] = 0
    with pytest.raises(UserError, match="singular"):
        estimate_lda(lda_stats(feats, labelled[1]), 3)


@pytest.fixture
def corpus():
    """A model, and frames with full covariances, each with a pdf or none."""
    rng = np.random.default_rng(1)
    model = random_model(num_pdfs=4, max_gauss=3, dim=DIM, seed=5)
    pdfs = rng.integers(-1, 4, 4000)
    mix = np.eye(DIM) + 0.4 * rng.standard_normal((DIM, DIM))
    feats = model.means[model.offsets[np.maximum(pdfs, 0)]] + rng.standard_normal((4000, DIM)) @ mix
    return model, feats.astype(np.float32), pdfs


def mllt_stats(model, feats, pdfs) -> MlltStats:
    stats = MlltStats.zeros(DIM)
    for part in np.array_split(np.arange(len(feats)), 3):
        stats.accumulate(model, by_pdf(feats[part], pdfs[part]))
    return stats


def test_mllt_statistics_equal_dense_sums(corpus):
    model, feats, pdfs = corpus
    exponents = log_gaussians(model, feats)
    expected, beta = np.zeros((DIM, DIM, DIM)), 0.0
    for t in np.flatnonzero(pdfs >= 0):
        own = np.arange(model.offsets[pdfs[t]], model.offsets[pdfs[t] + 1])
        gamma = np.exp(exponents[t, own] - np.logaddexp.reduce(exponents[t, own]))
        for g, weight in zip(own, gamma):
            apart = feats[t] - model.means[g]
            expected += weight * np.outer(apart, apart) / model.variances[g][:, None, None]
            beta += weight
    stats = mllt_stats(*corpus)
    np.testing.assert_allclose(stats.g, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    assert stats.beta == pytest.approx(beta, rel=1e-6)


def test_every_row_update_increases_objective(corpus):
    stats, nothing = mllt_stats(*corpus), np.zeros((DIM, DIM))
    values = [
        objective(maximise_rows(stats.beta, nothing, stats.g, np.eye(DIM), n), stats.beta, nothing, stats.g)
        for n in range(8)
    ]
    assert (
        all(later >= earlier - 1e-7 * abs(earlier) for earlier, later in zip(values, values[1:]))
        and values[1] > values[0]
    )


def test_gradient_vanishes_at_estimated_mllt(corpus):
    """dQ/dM = beta M^-T - (G_d m_d)_d vanishes, and no neighbour is better."""
    stats, rng, nothing = mllt_stats(*corpus), np.random.default_rng(2), np.zeros((DIM, DIM))

    def value(matrix):
        return objective(matrix, stats.beta, nothing, stats.g)

    best = maximise_rows(stats.beta, nothing, stats.g, np.eye(DIM), 3000)
    gradient = stats.beta * np.linalg.inv(best).T - np.einsum("dij,dj->di", stats.g, best)
    assert np.abs(gradient).max() < 1e-6 * stats.beta
    assert all(value(best + 0.01 * rng.standard_normal((DIM, DIM))) < value(best) for _ in range(50))
    matrix, gain = estimate_mllt(stats)
    assert gain == pytest.approx((value(matrix) - value(np.eye(DIM))) / stats.beta)
    assert value(best) - value(matrix) < 1e-3 * stats.beta


def test_likelihood_increases_at_least_by_reported_gain(corpus):
    """The log-likelihood of the original frames is that of transformed frames under the transformed model
    plus log |det M|."""
    model, feats, pdfs = corpus
    matrix, gain = estimate_mllt(mllt_stats(*corpus))
    before, after = GmmStats.zeros(model), GmmStats.zeros(model)
    accumulate(model, by_pdf(feats, pdfs), before)
    accumulate(transform_means(model, matrix), by_pdf((feats @ matrix.T).astype(np.float32), pdfs), after)
    rise = (after.log_like - before.log_like) / before.num_frames + np.linalg.slogdet(matrix)[1]
    assert rise >= gain - 1e-4 and gain > 0.01


def test_affine_transform_is_applied_to_means(corpus):
    matrix = np.random.default_rng(0).standard_normal((DIM, DIM + 1))
    moved = transform_means(corpus[0], matrix)
    np.testing.assert_allclose(
        moved.means, corpus[0].means @ matrix[:, :-1].T + matrix[:, -1], rtol=1e-4, atol=1e-4
    )


def test_mllt_without_frames_is_refused():
    with pytest.raises(UserError, match="the MLLT statistics of 0 frames of speech are singular"):
        estimate_mllt(MlltStats.zeros(3))
