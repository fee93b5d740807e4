r"""Maximum-likelihood re-estimation of Gaussian mixtures from frames with a known pdf: E-step, M-step,
splitting.

    gamma_g(t) = exp(exponent_g(x_t)) / sum_{h in p} exp(exponent_h(x_t))               for the frame's pdf p
    n_g = sum_t gamma_g(t),  a_g = sum_t gamma_g(t) x_t,  b_g = sum_t gamma_g(t) x_t²   statistics, float64
    w_g = n_g / sum_{h in p} n_h,  mu_g = a_g / n_g,  sigma²_g = b_g / n_g - mu_g²      M-step

The M-step and the splitting behave as Kaldi's gmm-est.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pyasr.base.cli.options import option
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_kernels import augment

FRAMES_PER_BLOCK = 2048


@dataclass(frozen=True)
class GmmUpdateOptions:
    """Floors of the M-step and growth of the mixtures. Defaults are Kaldi's."""

    heading = "Gaussians"

    min_gaussian_weight: float = option(
        1e-5, "minimum weight of a Gaussian; Gaussians below it are removed", minimum=0.0, rare=True
    )
    min_gaussian_occupancy: float = option(
        10.0, "minimum number of frames of a Gaussian; Gaussians below it are removed", minimum=0.0, rare=True
    )
    min_variance: float = option(0.001, "floor of the variances", minimum=1e-8, rare=True)
    power: float = option(
        0.25,
        "exponent of a pdf's number of frames, to which its number of Gaussians is proportional",
        minimum=0.0,
        rare=True,
    )
    perturb_factor: float = option(
        0.01,
        "distance by which the halves of a split Gaussian are moved, in standard deviations",
        minimum=0.0,
        rare=True,
    )
    min_count: float = option(
        20.0, "minimum number of frames per Gaussian for a further split of a pdf", minimum=0.0, rare=True
    )


@dataclass
class GmmStats:
    """Sums over frames, which can be added over shards and ranks. `sums`, float64 (num_gauss, 1 + 2 dim):
    n_g, a_g, b_g."""

    sums: np.ndarray
    log_like: float = 0.0
    num_frames: float = 0.0

    @classmethod
    def zeros(cls, model: AmDiagGmm) -> GmmStats:
        """Statistics of `model` without frames."""
        return cls(np.zeros((model.num_gauss, 1 + 2 * model.dim)))

    @property
    def occupancies(self) -> np.ndarray:
        """n_g, float64 (num_gauss)."""
        return self.sums[:, 0]

    def allreduce(self, comm) -> GmmStats:
        """Replace the sums by those over all ranks of `comm`. Returns the object itself."""
        comm.allreduce(self.sums)
        self.log_like, self.num_frames = comm.allreduce(np.array([self.log_like, self.num_frames])).tolist()
        return self


def global_moments(feats: np.ndarray | Iterable[np.ndarray], comm) -> tuple[np.ndarray, np.ndarray, float]:
    """(mean, variances, number) of the frames of all ranks, float64 (D). `feats`: an array (T, D), or an
    iterable of such arrays."""
    num_frames, total = 0, None
    for part in blocks(feats) if isinstance(feats, np.ndarray) else feats:
        sums = np.concatenate([part, np.square(part, dtype=np.float64)], axis=1, dtype=np.float64)
        total = (sums if total is None else np.concatenate([total[None], sums])).sum(0)
        num_frames += len(part)
    sums = comm.allreduce(np.concatenate([[num_frames], total]))
    mean, squares = sums[1:].reshape(2, -1) / max(sums[0], 1.0)
    return mean, squares - mean**2, float(sums[0])


def blocks(feats: np.ndarray) -> Iterator[np.ndarray]:
    """The frames (T, D) in blocks; one empty block if there are no frames."""
    for begin in range(0, max(len(feats), 1), FRAMES_PER_BLOCK):
        yield feats[begin : begin + FRAMES_PER_BLOCK]


def pdf_occupancies(model: AmDiagGmm, stats: GmmStats) -> np.ndarray:
    """Number of frames of each pdf, float64 (num_pdfs)."""
    return np.add.reduceat(stats.occupancies, model.offsets[:-1])


# a pdf and some of its frames, float32 (up to FRAMES_PER_BLOCK, dim)
PdfFrames = Iterable[tuple[int, np.ndarray]]


def by_pdf(feats: np.ndarray, pdfs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks (pdf, frames) of `feats` (T, dim), sorted by their `pdfs` (T); those with pdf -1 are skipped."""
    order = np.argsort(pdfs, kind="stable")
    present, begins = np.unique(pdfs[order], return_index=True)
    for pdf, begin, end in zip(present, begins, np.append(begins[1:], len(order))):
        for first in range(begin, end if pdf >= 0 else begin, FRAMES_PER_BLOCK):
            yield int(pdf), feats[order[first : min(end, first + FRAMES_PER_BLOCK)]]


@dataclass(frozen=True)
class PdfBlock:
    """Frames of one pdf (T, dim), [1, x, x²] of them (T, 1 + 2 dim), posteriors of the pdf's `gaussians`
    float32 (num_gauss, T), and log-likelihoods (T); `seen_as`: other features of the same frames (T, dim), or
    None."""

    pdf: int
    gaussians: slice
    feats: np.ndarray
    data: np.ndarray
    posteriors: np.ndarray
    log_likes: np.ndarray
    seen_as: np.ndarray | None = None


def pdf_blocks(model: AmDiagGmm, frames: PdfFrames, paired: bool = False) -> Iterator[PdfBlock]:
    """Blocks of `frames`. With `paired`, frames have 2 dim columns: their features, followed by those of
    `seen_as`."""
    for pdf, rows in frames:
        feats, *others = (np.ascontiguousarray(part) for part in (np.hsplit(rows, 2) if paired else [rows]))
        gaussians = slice(int(model.offsets[pdf]), int(model.offsets[pdf + 1]))
        yield _pdf_block(model, pdf, gaussians, model.checked(feats), *others)


def _pdf_block(
    model: AmDiagGmm, pdf: int, gaussians: slice, feats: np.ndarray, seen_as: np.ndarray | None = None
) -> PdfBlock:
    data = augment(feats)
    posteriors = model.exponent_matrix[gaussians] @ data.T
    best = posteriors.max(0)
    posteriors = np.exp(posteriors - best)
    total = posteriors.sum(0)
    posteriors /= total
    return PdfBlock(pdf, gaussians, feats, data, posteriors, best + np.log(total), seen_as)


def accumulate(model: AmDiagGmm, frames: PdfFrames, stats: GmmStats, paired: bool = False) -> None:
    """Add the statistics of `frames` to `stats`. The result depends on the order of the frames of a pdf, but
    not on that of the pdfs.

    paired  as in `pdf_blocks`: posteriors from the first half of the columns, sums over the second half
            (gmm-acc-stats-twofeats)

    Posteriors are computed in float32, all sums in float64.
    """
    log_likes: dict[int, list[float]] = {}
    for block in pdf_blocks(model, frames, paired):
        data = augment(block.seen_as) if paired else block.data
        stats.sums[block.gaussians] += block.posteriors.astype(np.float64) @ data.astype(np.float64)
        log_likes.setdefault(block.pdf, []).append(float(block.log_likes.sum(dtype=np.float64)))
        stats.num_frames += len(data)
    for pdf in sorted(log_likes):  # makes the sum independent of the order of the pdfs
        for log_like in log_likes[pdf]:
            stats.log_like += log_like


def update(
    model: AmDiagGmm, stats: GmmStats, options: GmmUpdateOptions, remove_low_count: bool = True
) -> AmDiagGmm:
    """M-step. Gaussians with too little data are removed; a pdf that would lose all keeps its last one
    unchanged.

    With `remove_low_count` False, Gaussians with too little data keep their means and variances; only their
    weights are updated.
    """
    n = stats.occupancies
    of_pdf = np.repeat(np.arange(model.num_pdfs), model.num_gauss_of)
    pdf_frames = np.bincount(of_pdf, n, minlength=model.num_pdfs)[of_pdf]
    weights = np.where(pdf_frames > 0, n / np.maximum(pdf_frames, 1e-300), 1.0 / model.num_gauss_of[of_pdf])
    good = (n > options.min_gaussian_occupancy) & (weights > options.min_gaussian_weight)
    means, variances = _moments(model, stats, good, options.min_variance)
    keep = good.copy() if remove_low_count else np.ones_like(good)
    keep[model.offsets[1:][np.add.reduceat(good, model.offsets[:-1], dtype=np.int64) == 0] - 1] = True
    counts = np.bincount(of_pdf[keep], minlength=model.num_pdfs)
    kept_weights = np.maximum(weights[keep], options.min_gaussian_weight)
    kept_weights /= np.bincount(of_pdf[keep], kept_weights, minlength=model.num_pdfs)[of_pdf[keep]]
    return AmDiagGmm.from_moments(
        np.concatenate([[0], np.cumsum(counts)]), kept_weights, means[keep], variances[keep]
    )


def _moments(
    model: AmDiagGmm, stats: GmmStats, good: np.ndarray, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """New means and floored variances of the Gaussians in the mask `good`, the model's own for the others."""
    dim = model.dim
    means, variances = model.means, model.variances
    means[good] = stats.sums[good, 1 : 1 + dim] / stats.occupancies[good, None]
    variances[good] = np.maximum(
        stats.sums[good, 1 + dim :] / stats.occupancies[good, None] - means[good] ** 2, floor
    )
    return means, variances


def split_targets(occupancies: np.ndarray, num_gauss: int, power: float, min_count: float) -> np.ndarray:
    """Target number of Gaussians of each pdf, up to `num_gauss` in total, int64 (num_pdfs).

    Each pdf gets one. The others go one by one to the pdf with the largest occupancy^power per Gaussian, as
    long as its Gaussians then have more than `min_count` frames each.
    """
    targets = np.ones(len(occupancies), np.int64)
    queue = [(-(float(occ) ** power), pdf) for pdf, occ in enumerate(occupancies)]
    heapq.heapify(queue)
    left = num_gauss - len(occupancies)
    while left > 0 and queue:
        _, pdf = heapq.heappop(queue)
        if (targets[pdf] + 1) * min_count >= occupancies[pdf]:
            continue
        targets[pdf] += 1
        left -= 1
        heapq.heappush(queue, (-(float(occupancies[pdf]) ** power) / targets[pdf], pdf))
    return targets


def mix_up(
    model: AmDiagGmm,
    occupancies: np.ndarray,
    num_gauss: int,
    options: GmmUpdateOptions,
    rng: np.random.Generator,
) -> AmDiagGmm:
    """Grow the model towards `num_gauss` Gaussians: split the Gaussians with the largest weights of each pdf
    below its target."""
    targets = np.maximum(
        split_targets(occupancies, num_gauss, options.power, options.min_count), model.num_gauss_of
    )
    if targets.sum() == model.num_gauss:
        return model
    parts = []
    for begin, end, target in zip(model.offsets[:-1], model.offsets[1:], targets):
        parts.append(
            _split(
                model.weights[begin:end],
                model.means_invvars[begin:end],
                model.inv_vars[begin:end],
                int(target),
                options.perturb_factor,
                rng,
            )
        )
    return AmDiagGmm(
        np.concatenate([[0], np.cumsum(targets)]), *(np.concatenate(part) for part in zip(*parts))
    )


def _split(weights, means_invvars, inv_vars, target: int, perturb_factor: float, rng):
    """Split the Gaussian with the largest weight until there are `target`; a random multiple of the standard
    deviation moves the halves apart."""
    num = len(weights)
    if target <= num:
        return weights, means_invvars, inv_vars
    more = [(0, target - num), (0, 0)]
    weights = np.pad(weights, more[:1])
    means_invvars, inv_vars = np.pad(means_invvars, more), np.pad(inv_vars, more)
    for new in range(num, target):
        old = int(weights[:new].argmax())
        weights[old] = weights[new] = weights[old] / 2
        step = (perturb_factor * rng.standard_normal(inv_vars.shape[1]) * np.sqrt(inv_vars[old])).astype(
            np.float32
        )
        inv_vars[new] = inv_vars[old]
        means_invvars[new] = means_invvars[old] + step
        means_invvars[old] -= step
    return weights, means_invvars, inv_vars
