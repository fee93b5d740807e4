"""fMLLR against its definition in float64: statistics, the objective and its maximum, speakers distributed
over ranks."""

import numpy as np
import pytest
from gmm_toys import log_gaussians, random_model

from pyasr.hmm.align.pdf_posteriors import PdfPosteriors
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.shards.speaker_transforms import (
    compose_all,
    estimate_transforms,
    shared_speakers,
    speaker_stats,
)
from pyasr.hmm.transforms.fmllr import (
    FmllrOptions,
    FmllrStats,
    estimate_fmllr,
    identity,
    load_stats,
    save_stats,
)
from pyasr.hmm.transforms.row_updates import maximise_rows, objective
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

DIM, PDFS = 5, 4


@pytest.fixture
def model():
    return random_model(num_pdfs=PDFS, max_gauss=3, dim=DIM, seed=3)


def soft(num_frames: int, seed: int) -> PdfPosteriors:
    """Up to three pdfs with weights for most frames."""
    rng = np.random.default_rng(seed)
    frames = np.sort(rng.choice(num_frames, 2 * num_frames))
    return PdfPosteriors(
        frames.astype(np.int32),
        rng.integers(0, PDFS, len(frames)).astype(np.int32),
        rng.uniform(0, 1, len(frames)).astype(np.float32),
    )


def sample(model: AmDiagGmm, num_frames: int, seed: int) -> tuple[np.ndarray, PdfPosteriors]:
    """Frames drawn from the model, and their pdfs."""
    rng = np.random.default_rng(seed)
    pdfs = rng.integers(0, model.num_pdfs, num_frames).astype(np.int32)
    gauss = [
        rng.choice(np.arange(model.offsets[p], model.offsets[p + 1]), p=_weights(model, p)) for p in pdfs
    ]
    feats = model.means[gauss] + np.sqrt(model.variances[gauss]) * rng.standard_normal(
        (num_frames, model.dim)
    )
    return feats, PdfPosteriors(np.arange(num_frames, dtype=np.int32), pdfs, np.ones(num_frames, np.float32))


def _weights(model, pdf):
    weights = model.weights[model.offsets[pdf] : model.offsets[pdf + 1]].astype(np.float64)
    return weights / weights.sum()


def dense(model, feats, posteriors, aligner):
    k, g, beta = np.zeros((DIM, DIM + 1)), np.zeros((DIM, DIM + 1, DIM + 1)), 0.0
    exponents = log_gaussians(aligner, feats)
    for t, pdf, weight in zip(posteriors.frames, posteriors.pdfs, posteriors.weights):
        own = np.arange(model.offsets[pdf], model.offsets[pdf + 1])
        gamma = weight * np.exp(exponents[t, own] - np.logaddexp.reduce(exponents[t, own]))
        xi = np.append(feats[t].astype(np.float64), 1)
        for share, mean, variance in zip(gamma, model.means[own], model.variances[own]):
            k += share * np.outer(mean / variance, xi)
            g += share * np.outer(xi, xi) / variance[:, None, None]
            beta += share
    return k, g, beta


@pytest.mark.parametrize("two_models", [False, True])
def test_statistics_equal_dense_sums(model, two_models):
    # more than one block of frames
    feats = 2 * np.random.default_rng(0).standard_normal((700, DIM)).astype(np.float32)
    posteriors = soft(700, 1)
    aligner = model
    if two_models:
        other = random_model(num_pdfs=PDFS, max_gauss=3, dim=DIM, seed=3, spread=1.0)
        aligner = AmDiagGmm(model.offsets, model.weights, other.means_invvars, other.inv_vars)
    stats = FmllrStats.zeros(DIM)
    stats.accumulate(model, feats, posteriors, aligner if two_models else None)
    k, g, beta = dense(model, feats, posteriors, aligner)
    np.testing.assert_allclose(stats.k, k, atol=1e-5 * np.abs(k).max())
    np.testing.assert_allclose(stats.quadratic, g, atol=1e-5 * np.abs(g).max())
    assert stats.beta == pytest.approx(beta, rel=1e-6)


def test_every_row_update_increases_objective(model):
    stats = FmllrStats.zeros(DIM)
    stats.accumulate(model, np.random.default_rng(0).standard_normal((900, DIM)), soft(900, 1))
    values = [
        objective(
            maximise_rows(stats.beta, stats.k, stats.quadratic, identity(DIM), n),
            stats.beta,
            stats.k,
            stats.quadratic,
        )
        for n in range(8)
    ]
    assert (
        all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in zip(values, values[1:]))
        and values[1] > values[0]
    )


def distorted_stats(model, seed: int = 0) -> tuple[FmllrStats, np.ndarray, np.ndarray]:
    """Statistics of frames x = A y + b, with y drawn from the model and known pdfs; A and b."""
    rng = np.random.default_rng(seed)
    a, b = np.eye(DIM) + 0.2 * rng.standard_normal((DIM, DIM)), rng.standard_normal(DIM)
    y, posteriors = sample(model, 5000, seed)
    stats = FmllrStats.zeros(DIM)
    stats.accumulate(model, y @ a.T + b, posteriors)
    return stats, a, b


@pytest.mark.parametrize(
    "kind, free",
    [("full", np.ones((DIM, DIM + 1))), ("diag", np.eye(DIM, DIM + 1)), ("offset", np.zeros((DIM, DIM + 1)))],
)
def test_gradient_vanishes_at_estimated_transform(model, kind, free):
    """dQ/dW = beta [A^-T 0] + K - (G_d w_d)_d vanishes in the free entries. The others are those of the
    identity."""
    free = free.copy()
    free[:, -1] = 1
    stats, _, _ = distorted_stats(model)
    transform, gain = estimate_fmllr(stats, FmllrOptions(fmllr_update_type=kind, fmllr_num_iters=400))
    inverse = np.hstack([np.linalg.inv(transform[:, :-1]).T, np.zeros((DIM, 1))])
    gradient = stats.beta * inverse + stats.k - np.einsum("dij,dj->di", stats.quadratic, transform)
    assert np.abs(gradient * free).max() < 1e-6 * stats.beta
    np.testing.assert_array_equal(transform[free == 0], identity(DIM)[free == 0])
    before = objective(identity(DIM), stats.beta, stats.k, stats.quadratic)
    assert (
        gain == pytest.approx(objective(transform, stats.beta, stats.k, stats.quadratic) - before)
        and gain > 0
    )


def test_objective_increases_with_degrees_of_freedom(model):
    stats, _, _ = distorted_stats(model)
    gains = [
        estimate_fmllr(stats, FmllrOptions(fmllr_update_type=kind))[1] for kind in ("offset", "diag", "full")
    ]
    assert gains[0] < gains[1] < gains[2]


def test_known_distortion_is_inverted(model):
    """With known Gaussians (one per pdf), the transform is the inverse of the distortion."""
    single = AmDiagGmm.from_moments(
        np.arange(PDFS + 4),
        np.ones(PDFS + 3),
        *(lambda m: (m.means[: PDFS + 3], m.variances[: PDFS + 3]))(
            random_model(num_pdfs=PDFS + 3, max_gauss=1, dim=DIM, seed=8)
        ),
    )
    rng = np.random.default_rng(4)
    a, b = np.eye(DIM) + 0.3 * rng.standard_normal((DIM, DIM)), rng.standard_normal(DIM)
    y, posteriors = sample(single, 20000, 1)
    stats = FmllrStats.zeros(DIM)
    stats.accumulate(single, y @ a.T + b, posteriors)
    transform, _ = estimate_fmllr(stats, FmllrOptions(fmllr_num_iters=200))
    inverse = np.linalg.inv(a)
    np.testing.assert_allclose(transform, np.hstack([inverse, -(inverse @ b)[:, None]]), atol=0.06)


def test_too_few_frames_give_no_transform(model):
    stats, _, _ = distorted_stats(model)
    assert estimate_fmllr(stats, FmllrOptions(fmllr_min_count=5001)) == (None, 0.0)
    assert estimate_fmllr(stats, FmllrOptions(fmllr_update_type="none")) == (None, 0.0)
    assert estimate_fmllr(FmllrStats.zeros(DIM), FmllrOptions(fmllr_min_count=0)) == (None, 0.0)


def test_frames_in_a_plane_give_no_transform(model):
    stats = FmllrStats.zeros(DIM)
    feats, posteriors = sample(model, 1000, 0)
    feats[:, 2] = 0
    stats.accumulate(model, feats, posteriors)
    assert estimate_fmllr(stats) == (None, 0.0)


def utterances(model):
    """24 utterances of five speakers, the last with three short ones."""
    rng = np.random.default_rng(6)
    parts = []
    for i in range(24):
        feats, posteriors = sample(model, 20 if i % 8 == 7 else 400, i)
        parts.append(
            (
                "few" if i % 8 == 7 else f"s{i % 4}",
                (feats * (1 + 0.1 * (i % 4)) + rng.normal(size=1)).astype(np.float32),
                posteriors,
            )
        )
    return parts


def by_speaker(parts):
    return [
        (speaker, [part for part in parts if part[0] == speaker])
        for speaker in dict.fromkeys(part[0] for part in parts)
    ]


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_speakers_split_over_ranks_get_same_transforms(model, num_ranks):
    parts = utterances(model)
    alone = estimate_transforms(by_speaker(parts), model, FmllrOptions(), {}, SoloComm())
    assert np.array_equal(alone["few"], identity(DIM)) and not np.array_equal(alone["s1"], identity(DIM))

    def rank(comm):
        own = [part for i, part in enumerate(parts) if (i * i) % num_ranks == comm.rank]
        speakers = {speaker for speaker, _, _ in own}
        return estimate_transforms(
            by_speaker(own), model, FmllrOptions(), shared_speakers(speakers, comm), comm
        ), speakers

    for found, speakers in run_threads(num_ranks, rank):
        assert found.keys() == speakers
        for speaker in speakers:
            np.testing.assert_allclose(found[speaker], alone[speaker], atol=1e-6)


def test_statistics_survive_files(model, tmp_path):
    parts = utterances(model)
    save_stats(tmp_path / "1.npz", speaker_stats(parts[:9], model))
    save_stats(tmp_path / "2.npz", speaker_stats(parts[9:], model))
    whole = speaker_stats(parts, model)
    found = load_stats([tmp_path / "1.npz", tmp_path / "2.npz"], {"s0", "few"})
    assert found.keys() == {"s0", "few"}
    for speaker, stats in found.items():
        np.testing.assert_allclose(stats.g, whole[speaker].g, rtol=1e-9)
        np.testing.assert_allclose(stats.k, whole[speaker].k, rtol=1e-9)
        assert stats.beta == whole[speaker].beta


def test_transforms_of_speakers_are_composed():
    rng = np.random.default_rng(0)
    inner, outer = ({speaker: rng.standard_normal((DIM, DIM + 1)) for speaker in "ab"} for _ in range(2))
    both = compose_all(outer, inner)
    x = rng.standard_normal(DIM)
    y = inner["b"] @ np.append(x, 1)
    np.testing.assert_allclose(both["b"] @ np.append(x, 1), outer["b"] @ np.append(y, 1), rtol=1e-5)
