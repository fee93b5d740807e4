"""Synthetic speakers: frames of known Gaussians with means in a known subspace, and a data directory of
them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.data.tables.datadir import write_data_dir
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.io.ark import ArkWriter
from pyasr.ivector.ivector_extractor import IvectorExtractor
from pyasr.ivector.stats import BaumWelchStats, collect

NUM_GAUSS, DIM = 4, 3


def random_extractor(
    rank: int = 3, seed: int = 0, spread: float = 0.5, offset: float = 5.0
) -> IvectorExtractor:
    """Means of about 4; speakers shift them by `spread` in each of `rank` - 1 directions; full
    covariances."""
    rng = np.random.default_rng(seed)
    projections = spread * rng.standard_normal((NUM_GAUSS, DIM, rank))
    projections[:, :, 0] = 4 * rng.standard_normal((NUM_GAUSS, DIM)) / offset
    factors = 0.3 * rng.standard_normal((NUM_GAUSS, DIM, DIM)) + np.eye(DIM)
    return IvectorExtractor(projections, np.linalg.inv(0.2 * factors @ factors.transpose(0, 2, 1)), offset)


def spoken(
    extractor: IvectorExtractor, ivector: np.ndarray, num_frames: int, rng
) -> tuple[np.ndarray, np.ndarray]:
    """(index of the Gaussian (T), frames (T, DIM)) of a speaker with this i-vector, including its offset."""
    gaussians = rng.integers(NUM_GAUSS, size=num_frames)
    noise = np.linalg.cholesky(extractor.covariances)[gaussians] @ rng.standard_normal((num_frames, DIM, 1))
    return gaussians, (extractor.projections @ ivector)[gaussians] + noise[:, :, 0]


def one_hot(gaussians: np.ndarray) -> np.ndarray:
    return np.eye(NUM_GAUSS)[gaussians]


def utterances_of(
    extractor: IvectorExtractor, num: int, num_frames: int, seed: int = 1
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(posteriors, frames) of `num` speakers. Their i-vectors vary in all but the first dimension."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(num):
        ivector = np.concatenate([[extractor.prior_offset], rng.standard_normal(extractor.dim - 1)])
        gaussians, frames = spoken(extractor, ivector, num_frames, rng)
        found.append((one_hot(gaussians), frames))
    return found


def planted_stats(extractor: IvectorExtractor, num: int, num_frames: int, seed: int = 1) -> BaumWelchStats:
    return collect(utterances_of(extractor, num, num_frames, seed), NUM_GAUSS, DIM)


def ubm_of(extractor: IvectorExtractor) -> AmDiagGmm:
    """UBM with the means and diagonal covariances of the extractor."""
    means = extractor.projections[:, :, 0] * extractor.prior_offset
    return AmDiagGmm.from_moments(
        [0, NUM_GAUSS], np.full(NUM_GAUSS, 1 / NUM_GAUSS), means, extractor.covariances.diagonal(0, 1, 2)
    )


def write_speakers(
    path: Path, num_speakers: int = 12, num_utterances: int = 4, num_frames: int = 150, seed: int = 3
) -> Path:
    """A data directory with features of speakers whose means differ in two directions."""
    extractor, rng = random_extractor(seed=4), np.random.default_rng(seed)
    path.mkdir()
    utt2spk = {}
    with ArkWriter(path / "feats.ark", path / "feats.scp") as writer:
        for s in range(num_speakers):
            ivector = np.concatenate([[extractor.prior_offset], 2 * rng.standard_normal(extractor.dim - 1)])
            for u in range(num_utterances):
                utt = f"s{s:02d}-{u}"
                writer.write(utt, spoken(extractor, ivector, num_frames + u, rng)[1].astype(np.float32))
                utt2spk[utt] = f"s{s:02d}"
    write_data_dir(path, {"utt2spk": utt2spk})
    return path
