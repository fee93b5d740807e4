"""The total variability model against dense Gaussians in float64. EM never decreases the likelihood, recovers
a planted subspace, and gives the same model on all ranks."""

import dataclasses
import struct

import numpy as np
import pytest
from ivector_toys import DIM, NUM_GAUSS, one_hot, planted_stats, random_extractor, spoken

from pyasr.base.errors import UserError
from pyasr.base.outputs.progress_note import VARIABLE, read_note
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter
from pyasr.ivector.em import (
    Accumulators,
    EmOptions,
    FrameTotals,
    first_extractor,
    log_likelihood,
    train,
    update,
)
from pyasr.ivector.ivector_extractor import read_extractor, write_extractor
from pyasr.ivector.stats import BaumWelchStats, collect
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads

OPTIONS = EmOptions(ivector_dim=3, num_iters=8, gaussian_min_count=5.0, variance_floor_factor=0.01)


def test_statistics_equal_sums_over_frames():
    rng = np.random.default_rng(0)
    utterances = [(rng.random((num, NUM_GAUSS)), rng.standard_normal((num, DIM))) for num in (5, 0, 300)]
    stats = collect(utterances, NUM_GAUSS, DIM)
    assert len(stats.counts) == 2  # the utterance without frames does not count
    gamma, x = utterances[2]
    np.testing.assert_allclose(stats.counts[1], gamma.sum(0))
    np.testing.assert_allclose(stats.sums[1], np.einsum("tg,td->gd", gamma, x))
    gamma, x = (np.concatenate(parts) for parts in zip(*utterances))
    np.testing.assert_allclose(stats.squares, np.einsum("tg,td,te->gde", gamma, x, x), atol=1e-12)


def test_posterior_equals_stacked_matrix_formula():
    """(1 + M' N S^-1 M)^-1 with the supervector's matrices: M (G D, R), N and S block-diagonal (G D, G D)."""
    extractor, rng = random_extractor(rank=5), np.random.default_rng(2)
    counts, sums = 3 * rng.random(NUM_GAUSS), rng.standard_normal((NUM_GAUSS, DIM))
    big = extractor.projections.reshape(-1, 5)
    precision = np.zeros((NUM_GAUSS * DIM,) * 2)
    for g in range(NUM_GAUSS):
        precision[g * DIM : (g + 1) * DIM, g * DIM : (g + 1) * DIM] = np.linalg.inv(extractor.covariances[g])
    occupied = np.diag(np.repeat(counts, DIM))
    covariance = np.linalg.inv(np.eye(5) + big.T @ occupied @ precision @ big)
    mean = covariance @ (extractor.prior_offset * np.eye(5)[0] + big.T @ precision @ sums.ravel())
    found_means, found_covariances = extractor.posterior(counts[None], sums[None])
    np.testing.assert_allclose(found_covariances[0], covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found_means[0], mean, rtol=1e-9)


def test_max_count_limits_effective_number_of_frames():
    """Above it, doubled statistics give the same i-vector. Below it, nothing changes."""
    extractor, rng = random_extractor(), np.random.default_rng(3)
    counts, sums = rng.random((1, NUM_GAUSS)), rng.standard_normal((1, NUM_GAUSS, DIM))

    def ivector(times, max_count):
        linear, quadratic = extractor.terms(times * counts, times * sums)
        return extractor.estimate(linear, quadratic, times * counts.sum(1), max_count)

    most = float(counts.sum())
    np.testing.assert_allclose(ivector(7, most), ivector(1, most), rtol=1e-9)
    np.testing.assert_allclose(ivector(1, 2 * most), ivector(1, 0))
    assert np.abs(ivector(7, 0) - ivector(1, 0)).max() > 0.05
    offset = extractor.prior_offset * np.eye(extractor.dim)[0]
    np.testing.assert_allclose(ivector(3, 0), extractor.posterior(3 * counts, 3 * sums)[0] - offset)


def test_likelihood_equals_joint_gaussian_of_all_frames():
    """The frames of an utterance are jointly Gaussian: mean p M e_1, covariance M M' + noise, where M stacks
    the matrices of its frames."""
    extractor, rng = random_extractor(), np.random.default_rng(4)
    gaussians, x = spoken(extractor, np.array([5.0, 1.0, -1.0]), 7, rng)
    stacked = extractor.projections[gaussians].reshape(-1, extractor.dim)
    covariance = stacked @ stacked.T
    for t, g in enumerate(gaussians):
        covariance[t * DIM : (t + 1) * DIM, t * DIM : (t + 1) * DIM] += extractor.covariances[g]
    away = x.ravel() - extractor.prior_offset * stacked[:, 0]
    expected = -0.5 * (
        np.linalg.slogdet(2 * np.pi * covariance)[1] + away @ np.linalg.solve(covariance, away)
    )
    stats = collect([(one_hot(gaussians), x)], NUM_GAUSS, DIM)
    found = log_likelihood(extractor, Accumulators.of(extractor, stats), FrameTotals.of(stats, SoloComm()))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("covariances", ["full", "diagonal"])
def test_em_never_decreases_likelihood(covariances):
    """From a distant start, also with diagonal covariances although those of the data are full."""
    stats = planted_stats(random_extractor(), 60, 40)
    options = dataclasses.replace(OPTIONS, covariances=covariances)
    totals = FrameTotals.of(stats, SoloComm())
    extractor, found = first_extractor(totals, options, seed=5), []
    for _ in range(12):
        sums = Accumulators.of(extractor, stats)
        found.append(log_likelihood(extractor, sums, totals))
        extractor = update(extractor, sums, totals, options)
    assert (np.diff(found) > -1e-6).all() and found[-1] > found[0] + 100, found
    if covariances == "diagonal":
        np.testing.assert_allclose(extractor.covariances * (1 - np.eye(DIM)), 0, atol=1e-12)


def test_minimum_divergence_gives_standard_normal_prior():
    """After many iterations, i-vectors have the mean p e_1 and, with their covariances, the second moment
    1."""
    stats = planted_stats(random_extractor(), 80, 40)
    extractor = train(stats, SoloComm(), dataclasses.replace(OPTIONS, num_iters=40))
    sums = Accumulators.of(extractor, stats)
    mean = sums.mean / 80
    np.testing.assert_allclose(mean, extractor.prior_offset * np.eye(3)[0], atol=0.05)
    np.testing.assert_allclose(sums.outer / 80 - np.outer(mean, mean), np.eye(3), atol=0.1)


def angles(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Principal angles in degrees between the column spaces of two matrices."""
    bases = [np.linalg.qr(matrix)[0] for matrix in (first, second)]
    return np.degrees(np.arccos(np.clip(np.linalg.svd(bases[0].T @ bases[1])[1], -1, 1)))


def test_planted_subspace_is_recovered():
    """The directions in which speakers differ, the mean and the noise covariance are recovered from 200
    speakers with 100 frames each."""
    planted = random_extractor(seed=6)
    stats = planted_stats(planted, 200, 100)
    totals = FrameTotals.of(stats, SoloComm())
    start = first_extractor(totals, OPTIONS, seed=0)
    found = train(stats, SoloComm(), dataclasses.replace(OPTIONS, num_iters=25))
    before, after = (
        angles(one.projections.reshape(-1, 3), planted.projections.reshape(-1, 3)).max()
        for one in (start, found)
    )
    assert after < 5 < 40 < before, (before, after)
    errors = np.linalg.norm(found.covariances - planted.covariances, axis=(1, 2)) / np.linalg.norm(
        planted.covariances, axis=(1, 2)
    )
    assert errors.max() < 0.1
    mean = found.prior_offset * found.projections[:, :, 0]
    np.testing.assert_allclose(mean, planted.prior_offset * planted.projections[:, :, 0], atol=0.2)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_result_does_not_depend_on_number_of_ranks(num_ranks):
    stats = planted_stats(random_extractor(), 20, 30)
    options = dataclasses.replace(OPTIONS, num_iters=3)
    alone = train(stats, SoloComm(), options)

    def rank(comm):
        own = np.arange(20) % comm.size == comm.rank
        # sums over ranks do not depend on the distribution of the data
        squares = stats.squares if comm.rank == 0 else np.zeros_like(stats.squares)
        return train(BaumWelchStats(stats.counts[own], stats.sums[own], squares), comm, options)

    for one in run_threads(num_ranks, rank):
        np.testing.assert_allclose(one.projections, alone.projections, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(one.precisions, alone.precisions, rtol=1e-7)


def test_training_reports_progress(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "note"))
    train(planted_stats(random_extractor(), 20, 30), SoloComm(), dataclasses.replace(OPTIONS, num_iters=3))
    note = read_note(tmp_path / "note")
    assert (note.what, note.share) == ("iteration of the extractor 3 of 3", 1.0) and np.isfinite(
        note.objective
    )


def test_gaussians_without_data_stay_finite():
    """A Gaussian without frames starts at the mean of all frames."""
    rng = np.random.default_rng(0)
    utterances = [
        (one_hot(rng.integers(NUM_GAUSS - 1, size=30)), rng.standard_normal((30, DIM))) for _ in range(10)
    ]
    extractor = train(collect(utterances, NUM_GAUSS, DIM), SoloComm(), OPTIONS)
    assert np.isfinite(extractor.projections).all() and (np.linalg.eigvalsh(extractor.precisions) > 0).all()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda gamma, x: (gamma, x),
            "3 utterances are too few for i-vectors of dimension 3; give more data, or lower --ivector-dim",
        ),
        (
            lambda gamma, x: (np.vstack([gamma] * 4), np.vstack([x] * 4) * [1, 1, 0]),
            "some are constant or copies of others",
        ),
    ],
)
def test_too_little_data_and_constant_features_are_refused(change, message):
    rng = np.random.default_rng(0)
    num = 3 if "dimension" in message else 9
    utterances = [
        change(one_hot(rng.integers(NUM_GAUSS, size=9)), rng.standard_normal((9, DIM))) for _ in range(num)
    ]
    with pytest.raises(UserError, match=message):
        train(collect(utterances, NUM_GAUSS, DIM), SoloComm(), OPTIONS)


def test_extractor_survives_file_round_trip(tmp_path):
    extractor, path = random_extractor(), tmp_path / "final.ie"
    write_extractor(path, extractor)
    again = read_extractor(path)
    for name in ("projections", "precisions"):
        np.testing.assert_allclose(getattr(again, name), getattr(extractor, name), rtol=1e-12)
    assert again.prior_offset == extractor.prior_offset
    whole = path.read_bytes()
    for size in (1, 30, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match="final.ie"):
            read_extractor(path)


def test_symmetric_matrices_are_packed_like_kaldi(tmp_path):
    """Token, size, then the lower triangle row by row."""
    matrix = np.array([[1.0, 2.0, 4.0], [2.0, 3.0, 5.0], [4.0, 5.0, 6.0]])
    with KaldiWriter(tmp_path / "packed") as writer:
        writer.symmetric(matrix)
    assert (tmp_path / "packed").read_bytes() == b"\0BDP \x04" + struct.pack("<i6d", 3, 1, 2, 3, 4, 5, 6)
    np.testing.assert_array_equal(KaldiReader(tmp_path / "packed").symmetric(), matrix)
