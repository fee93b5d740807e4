r"""Maximum-likelihood estimation of the total variability model by EM with minimum divergence, over all
ranks.

The posteriors gamma of the UBM are constant, so N, F and S = sum gamma x x' of every utterance are computed
once. With the mean v_u and the covariance C_u of the i-vector of utterance u (`extractor`),

    Y_g = sum_u F_ug v_u',     R_g = sum_u N_ug (C_u + v_u v_u')                             E-step
    M_g = Y_g R_g^-1,          S_g = (sum_u S_ug - Y_g M_g' - M_g Y_g' + M_g R_g M_g') / N_g   M-step

and the prior becomes N(m, K), where m is the mean of v_u and K that of C_u + v_u v_u' - m m'. Minimum
divergence restores N(p e_1, 1): with K = A A', a reflection H that maps A^-1 m to p e_1, and M_g A H in place
of M_g, the likelihood is the same. Up to constants, it is

    sum_u ( b_u' v_u - log |L_u| - p^2 ) / 2 - sum_g ( N_g log |S_g| + tr S_g^-1 S_g ) / 2

and never falls, except by the flooring of covariances: the eigenvalues of S_g relative to their mean are at
least `variance_floor_factor`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.base.outputs.progress_note import Course
from pyasr.ivector.ivector_extractor import IvectorExtractor, gaussian
from pyasr.ivector.stats import BaumWelchStats

_UTTERANCES_PER_BLOCK = 64
_FIRST_OFFSET, _FIRST_SPREAD = 100.0, 0.1


@dataclass(frozen=True)
class EmOptions:
    """Size and training of the extractor."""

    heading = "i-vectors"

    ivector_dim: int = option(40, "dimension of the i-vectors", minimum=1, common=True)
    num_iters: int = option(10, "number of EM iterations of the extractor", minimum=1, common=True)
    covariances: str = option(
        "full", "type of the within-speaker covariances of frames", choices=("full", "diagonal"), rare=True
    )
    gaussian_min_count: float = option(
        100.0, "minimum number of frames for an update of a Gaussian", minimum=0.0, rare=True
    )
    variance_floor_factor: float = option(
        0.1, "floor of the covariances, relative to their mean", minimum=0.0, maximum=1.0, rare=True
    )


@dataclass
class Accumulators:
    """Sums over utterances, float64, which can be added over ranks.

    cross (num_gauss, D, R): Y;  second (num_gauss, R, R): R;  mean (R), outer (R, R): sums of v and C + v v';
    total (2): number of utterances, and sum_u ( b' v - log |L| - p^2 ) / 2
    """

    cross: np.ndarray
    second: np.ndarray
    mean: np.ndarray
    outer: np.ndarray
    total: np.ndarray

    @classmethod
    def of(cls, extractor: IvectorExtractor, stats: BaumWelchStats) -> Accumulators:
        """E-step on the utterances of this rank."""
        dim = extractor.dim
        sums = cls(
            np.zeros_like(extractor.projections),
            np.zeros((extractor.num_gauss, dim, dim)),
            np.zeros(dim),
            np.zeros((dim, dim)),
            np.zeros(2),
        )
        for begin in range(0, len(stats.counts), _UTTERANCES_PER_BLOCK):
            block = slice(begin, begin + _UTTERANCES_PER_BLOCK)
            sums._add(extractor, stats.counts[block], stats.sums[block])
        return sums

    def _add(self, extractor: IvectorExtractor, counts: np.ndarray, sums: np.ndarray) -> None:
        linear, quadratic = extractor.add_prior(*extractor.terms(counts, sums))
        means, covariances = gaussian(linear, quadratic)
        moments = covariances + means[:, :, None] * means[:, None, :]
        num, dim = means.shape
        self.cross += (sums.reshape(num, -1).T @ means).reshape(self.cross.shape)
        self.second += (counts.T @ moments.reshape(num, -1)).reshape(self.second.shape)
        self.mean += means.sum(0)
        self.outer += moments.sum(0)
        log_dets = np.linalg.slogdet(covariances)[1]
        self.total += num, 0.5 * (np.vdot(linear, means) + log_dets.sum() - num * extractor.prior_offset**2)

    def allreduce(self, comm) -> Accumulators:
        """Replace the sums by those over all ranks. Returns the object itself."""
        for array in (self.cross, self.second, self.mean, self.outer, self.total):
            comm.allreduce(array)
        return self


@dataclass(frozen=True)
class FrameTotals:
    """N (num_gauss), F (num_gauss, D) and S (num_gauss, D, D) of all frames of all ranks."""

    counts: np.ndarray
    sums: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, stats: BaumWelchStats, comm) -> FrameTotals:
        arrays = stats.counts.sum(0), stats.sums.sum(0), stats.squares.copy()
        return cls(*(comm.allreduce(np.ascontiguousarray(array)) for array in arrays))


def first_extractor(totals: FrameTotals, options: EmOptions, seed: int) -> IvectorExtractor:
    """Means and covariances of the frames of each Gaussian (with all frames added with the weight of one),
    and small random directions."""
    num_frames = totals.counts.sum()
    mean = totals.sums.sum(0) / num_frames
    moment = totals.squares.sum(0) / num_frames
    weights = totals.counts + 1.0
    means = (totals.sums + mean) / weights[:, None]
    covariances = (totals.squares + moment) / weights[:, None, None] - means[:, :, None] * means[:, None, :]
    covariances = floored(_restricted(covariances, options), totals.counts, options.variance_floor_factor)
    shape = (*means.shape, options.ivector_dim)
    spread = _FIRST_SPREAD * np.sqrt(covariances.diagonal(axis1=1, axis2=2))[:, :, None]
    projections = spread * generator(seed, "ivector_extractor").standard_normal(shape)
    projections[:, :, 0] = means / _FIRST_OFFSET
    return IvectorExtractor(projections, np.linalg.inv(covariances), _FIRST_OFFSET)


def train(stats: BaumWelchStats, comm, options: EmOptions, seed: int = 0) -> IvectorExtractor:
    """EM on the statistics of all ranks. Returns the same extractor on every rank.

    Raises UserError if there are no more utterances than dimensions, or if some features are constant.
    """
    totals = FrameTotals.of(stats, comm)
    num_utterances = comm.reduce_scalar(len(stats.counts))
    if num_utterances <= options.ivector_dim:
        raise UserError(
            f"{num_utterances:.0f} utterances are too few for i-vectors of dimension {options.ivector_dim}; "
            "give more data, or lower --ivector-dim"
        )
    extractor = comm.bcast_object(first_extractor(totals, options, seed) if comm.rank == 0 else None)
    course = Course("iteration of the extractor", options.num_iters)
    for x in range(options.num_iters):
        sums = Accumulators.of(extractor, stats).allreduce(comm)
        if comm.rank == 0:
            per_frame = log_likelihood(extractor, sums, totals) / totals.counts.sum()
            log.info(
                f"iteration {x}: log-likelihood per frame {per_frame:.4f} over {totals.counts.sum():.0f} "
                f"frames of {num_utterances:.0f} utterances, prior offset {extractor.prior_offset:.2f}"
            )
            course.tell(x + 1, per_frame, totals.counts.sum())
        extractor = comm.bcast_object(update(extractor, sums, totals, options) if comm.rank == 0 else None)
    return extractor


def log_likelihood(extractor: IvectorExtractor, sums: Accumulators, totals: FrameTotals) -> float:
    """log p of all frames given their Gaussians (weighted by gamma), integrated over the i-vectors."""
    log_dets = np.linalg.slogdet(extractor.precisions)[1]
    frames = totals.counts @ (log_dets - extractor.feat_dim * np.log(2 * np.pi)) - np.vdot(
        extractor.precisions, totals.squares
    )
    return float(0.5 * frames + sums.total[1])


def update(
    extractor: IvectorExtractor, sums: Accumulators, totals: FrameTotals, options: EmOptions
) -> IvectorExtractor:
    """The M-step with minimum divergence."""
    good = totals.counts > max(options.gaussian_min_count, 0.0)
    projections, covariances = extractor.projections.copy(), extractor.covariances.copy()
    cross, second = sums.cross[good], sums.second[good]
    new = np.linalg.solve(second, cross.transpose(0, 2, 1)).transpose(0, 2, 1)
    product = cross @ new.transpose(0, 2, 1)
    scatter = (
        totals.squares[good] - product - product.transpose(0, 2, 1) + new @ second @ new.transpose(0, 2, 1)
    )
    projections[good] = new
    covariances[good] = _restricted(scatter / totals.counts[good, None, None], options)
    covariances = floored(covariances, totals.counts, options.variance_floor_factor)
    change, prior_offset = minimum_divergence(sums)
    return IvectorExtractor(projections @ change, np.linalg.inv(covariances), prior_offset)


def _restricted(covariances: np.ndarray, options: EmOptions) -> np.ndarray:
    return covariances * np.eye(covariances.shape[1]) if options.covariances == "diagonal" else covariances


def minimum_divergence(sums: Accumulators) -> tuple[np.ndarray, float]:
    """(A H (R, R), p): M_g A H with the prior N(p e_1, 1) is the same model as M_g with the moments of the
    i-vectors as prior."""
    num = sums.total[0]
    mean = sums.mean / num
    factor = np.linalg.cholesky(sums.outer / num - np.outer(mean, mean))
    whitened = np.linalg.solve(factor, mean)
    prior_offset = float(np.linalg.norm(whitened))
    normal = whitened.copy()
    normal[0] -= prior_offset
    length = normal @ normal
    reflection = np.eye(len(mean)) - (
        2.0 / length * np.outer(normal, normal) if length > 1e-20 * prior_offset**2 else 0.0
    )
    return factor @ reflection, prior_offset


def floored(covariances: np.ndarray, counts: np.ndarray, factor: float) -> np.ndarray:
    """Covariances (num_gauss, D, D) whose eigenvalues relative to their mean, weighted by `counts`, are at
    least `factor`."""
    mean = np.tensordot(counts / counts.sum(), covariances, 1)
    try:
        root = np.linalg.cholesky(mean)
    except np.linalg.LinAlgError:
        raise UserError(
            "the covariance of the features is singular: some are constant or copies of others; give other "
            "features"
        ) from None
    inverse = np.linalg.inv(root)
    relative = inverse @ covariances @ inverse.T
    values, vectors = np.linalg.eigh((relative + relative.transpose(0, 2, 1)) / 2)
    if (values >= factor).all():
        return covariances
    back = root @ vectors
    return (back * np.maximum(values, factor)[:, None, :]) @ back.transpose(0, 2, 1)
