"""The LDA-like input transform and priors against dense formulas in float64."""

import numpy as np
import pytest
import torch
from training_corpora import DIM, frames_of, random_pdfs

from pyasr.base.errors import UserError
from pyasr.feats.deltas import splice
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.input_transform import InputTransformOptions, estimate_transform
from pyasr.train.data.minibatch_stream import ResidentFrames
from pyasr.train.data.sample import Sample, draw_sample
from pyasr.train.evolve.priors import PriorOptions, decoding_priors, presoftmax_scales
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import Plain
from pyasr.train.minibatches.frames import FrameStore

NUM_PDFS, WIDTH = 4, 3 * DIM
FREE = InputTransformOptions(input_transform="lda", within_class_factor=0.01, max_singular_value=1e9)


def corpus():
    rng = np.random.default_rng(2)
    pdfs = [random_pdfs(length, NUM_PDFS, rng) for length in (300, 170, 260)]
    return [frames_of(states, NUM_PDFS, rng) for states in pdfs], pdfs


def resident(features, pdfs):
    return ResidentFrames(FrameStore(features, pdfs, 1, 1, DIM), seed=0, rank=0)


def covariances():
    """(within classes, between classes, mean) of the spliced frames."""
    features, pdfs = corpus()
    x, classes = np.vstack([splice(f, 1, 1) for f in features]).astype(np.float64), np.concatenate(pdfs)
    mean, within = x.mean(0), np.zeros((WIDTH, WIDTH))
    for pdf in range(NUM_PDFS):
        part = x[classes == pdf]
        within += (part - part.mean(0)).T @ (part - part.mean(0)) / len(x)
    total = (x - mean).T @ (x - mean) / len(x)
    return within, total - within, mean


def test_rows_solve_generalised_eigenproblem():
    transform = estimate_transform(resident(*corpus()), NUM_PDFS, FREE, SoloComm()).double().numpy()
    within, between, mean = covariances()
    ratios, vectors = np.linalg.eig(np.linalg.solve(within, between))
    order = np.argsort(-ratios.real)
    ratios, vectors = np.maximum(ratios.real[order], 0), vectors.real[:, order]
    scale = np.sqrt((0.01 + ratios) / (1 + ratios))
    matrix = transform[:, :-1]
    for row in range(NUM_PDFS - 1):  # the other ratios are all 0, their eigenvectors are not unique
        expected = scale[row] * vectors[:, row] / np.sqrt(vectors[:, row] @ within @ vectors[:, row])
        np.testing.assert_allclose(matrix[row] * np.sign(matrix[row] @ expected), expected, atol=2e-3)
    np.testing.assert_allclose(matrix @ within @ matrix.T, np.diag(scale**2), atol=1e-3)
    np.testing.assert_allclose(
        matrix @ (within + between) @ matrix.T, np.diag(0.01 + ratios), atol=2e-3 * ratios.max()
    )
    np.testing.assert_allclose(matrix @ mean + transform[:, -1], 0, atol=1e-4)


def test_singular_values_are_capped():
    free = estimate_transform(resident(*corpus()), NUM_PDFS, FREE, SoloComm()).double().numpy()[:, :-1]
    singular = np.linalg.svd(free, compute_uv=False)
    cap = float(singular[2])
    options = InputTransformOptions(input_transform="lda", within_class_factor=0.01, max_singular_value=cap)
    capped = estimate_transform(resident(*corpus()), NUM_PDFS, options, SoloComm()).double().numpy()
    np.testing.assert_allclose(
        np.linalg.svd(capped[:, :-1], compute_uv=False), np.minimum(singular, cap), atol=1e-4
    )
    np.testing.assert_allclose(
        capped[:, :-1] @ capped[:, :-1].T @ free, free @ capped[:, :-1].T @ capped[:, :-1], atol=1e-3
    )
    np.testing.assert_allclose(capped @ np.append(covariances()[2], 1), 0, atol=1e-4)


def test_statistics_are_summed_over_ranks():
    features, pdfs = corpus()
    alone = estimate_transform(resident(features, pdfs), NUM_PDFS, FREE, SoloComm())
    shares = [slice(0, 2), slice(2, 3), slice(3, 3)]
    ranks = run_threads(
        3,
        lambda comm: estimate_transform(
            resident(features[shares[comm.rank]], pdfs[shares[comm.rank]]), NUM_PDFS, FREE, comm
        ),
    )
    assert torch.equal(ranks[0], ranks[1]) and torch.equal(ranks[0], ranks[2])
    # independent of the basis of the dimensions of ratio 0
    gram, expected = (m[:, :-1].T @ m[:, :-1] for m in (ranks[0], alone))
    torch.testing.assert_close(gram, expected, atol=2e-3, rtol=0)


def test_constant_columns_in_input_transform():
    features, pdfs = corpus()
    for matrix in features:
        matrix[:, 2] = 0
    assert estimate_transform(resident(features, pdfs), NUM_PDFS, InputTransformOptions(), SoloComm()) is None
    with pytest.raises(
        UserError,
        match="--input-transform lda: LDA: .* some feature columns are constant.*, or omit this option",
    ):
        estimate_transform(resident(features, pdfs), NUM_PDFS, FREE, SoloComm())


def test_presoftmax_factors_equal_formula():
    counts = np.array([1000, 10, 0, 190])
    scales = presoftmax_scales(counts, -0.25).numpy()
    expected = np.array([1003.0, 13, 3, 193]) ** -0.25
    np.testing.assert_allclose(scales, expected / expected.mean(), rtol=1e-6)
    assert presoftmax_scales(counts, 0.0) is None


def test_priors_are_mean_posteriors_over_ranks():
    network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=5), WIDTH, NUM_PDFS)
    x = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(0))
    expected = network(x).double().softmax(1).mean(0).log().detach()

    def rank(comm):
        sample = Sample(x[comm.rank :: 2], torch.zeros(25, dtype=torch.int64), comm)
        return decoding_priors(PriorOptions(priors="posteriors"), network, np.array([1, 2, 3, 4]), sample)

    for priors in run_threads(2, rank):
        np.testing.assert_allclose(priors.numpy(), expected, atol=1e-6)
    sample = Sample(x, torch.zeros(50, dtype=torch.int64), SoloComm())
    np.testing.assert_allclose(
        decoding_priors(PriorOptions(), network, np.array([1, 2, 3, 4]), sample).exp(),
        np.array([2, 3, 4, 5]) / 14,
        rtol=1e-6,
    )


class Right(torch.nn.Module):
    """A network over time with certain posteriors: its input, one column for each pdf, is the target."""

    num_pdfs = 3

    def forward(self, x):
        return 50 * x


def test_priors_exclude_padding_frames():
    """The end of a short utterance is repeated, and chunks overlap. The priors of a network without errors
    are the relative frequencies."""
    pdfs = [np.repeat([0, 1, 2], times) for times in ([4, 3, 3], [10, 9, 3])]  # 10 and 22 frames
    store = Packing(chunk=20).store(
        (np.eye(3, dtype=np.float32)[part] for part in pdfs), pdfs, 3, Plain(torch.float32), False
    )
    sample = Sample(*store.gather(torch.arange(store.num_items)), SoloComm())
    counts = np.bincount(np.concatenate(pdfs))
    priors = decoding_priors(PriorOptions(priors="posteriors"), Right(), counts, sample)
    np.testing.assert_allclose(priors.exp(), counts / 32, atol=1e-6)


def test_sample_has_proportional_part_of_each_rank():
    features, pdfs = corpus()

    def rank(comm):
        return draw_sample(resident(features[comm.rank :: 2], pdfs[comm.rank :: 2]), 73, comm, seed=5)

    first, second = run_threads(2, rank)
    assert first.num_frames == second.num_frames and 73 <= first.num_frames <= 74
    assert abs(len(first.pdfs) - 73 * 560 / 730) <= 1 and len(first.x.unique(dim=0)) == len(first.x)
    whole = draw_sample(resident(features, pdfs), 10**9, SoloComm(), seed=5)
    assert sorted(whole.pdfs.tolist()) == sorted(np.concatenate(pdfs).tolist())
    assert sum(1 for _ in whole.batches(100)) == 8
