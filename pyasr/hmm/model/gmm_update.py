r"""Maximum-likelihood re-estimation of Gaussian mixtures from frames with a known pdf: E-step, M-step, splitting.

    gamma_g(t) = exp(exponent_g(x_t)) / sum_{h in p} exp(exponent_h(x_t))                      for the frame's pdf p
    n_g = sum_t gamma_g(t),  a_g = sum_t gamma_g(t) x_t,  b_g = sum_t gamma_g(t) x_t²           statistics, float64
    w_g = n_g / sum_{h in p} n_h,  mu_g = a_g / n_g,  sigma²_g = b_g / n_g - mu_g²               M-step

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
    """Floors of the M-step and how mixtures grow; Kaldi's defaults."""

    min_gaussian_weight: float = option(1e-5, "Gaussians of less weight are removed", minimum=0.0)
    min_gaussian_occupancy: float = option(10.0, "Gaussians with fewer frames are removed", minimum=0.0)
    min_variance: float = option(0.001, "variance floor", minimum=1e-8)
    power: float = option(0.25, "Gaussians of a pdf are in proportion to its frames to this power", minimum=0.0)
    perturb_factor: float = option(0.01, "standard deviations by which the halves of a split Gaussian are moved apart", minimum=0.0)
    min_count: float = option(20.0, "frames per Gaussian below which a pdf is not split further", minimum=0.0)


@dataclass
class GmmStats:
    """Sums over frames. `sums` float64 (num_gauss, 1 + 2 dim) holds n_g, a_g, b_g; they add over shards and ranks."""

    sums: np.ndarray
    log_like: float = 0.0
    num_frames: float = 0.0

    @classmethod
    def zeros(cls, model: AmDiagGmm) -> GmmStats:
        """Statistics of no frames, of the shapes that `model` needs."""
        return cls(np.zeros((model.num_gauss, 1 + 2 * model.dim)))

    @property
    def occupancies(self) -> np.ndarray:
        """n_g, float64 (num_gauss)."""
        return self.sums[:, 0]

    def allreduce(self, comm) -> GmmStats:
        """Replace the sums by those over all ranks of `comm`; returns itself."""
        comm.allreduce(self.sums)
        self.log_like, self.num_frames = comm.allreduce(np.array([self.log_like, self.num_frames])).tolist()
        return self


def global_moments(feats: np.ndarray | Iterable[np.ndarray], comm) -> tuple[np.ndarray, np.ndarray, float]:
    """(mean, variances, number) of the frames (T, D) of all ranks, float64 (D): of one array, or of several one after the other."""
    num_frames, total = 0, None
    for part in blocks(feats) if isinstance(feats, np.ndarray) else feats:
        sums = np.concatenate([part, np.square(part, dtype=np.float64)], axis=1, dtype=np.float64)
        total = (sums if total is None else np.concatenate([total[None], sums])).sum(0)
        num_frames += len(part)
    sums = comm.allreduce(np.concatenate([[num_frames], total]))
    mean, squares = sums[1:].reshape(2, -1) / max(sums[0], 1.0)
    return mean, squares - mean ** 2, float(sums[0])


def blocks(feats: np.ndarray) -> Iterator[np.ndarray]:
    """The frames (T, D) in blocks, one without frames where there are none."""
    for begin in range(0, max(len(feats), 1), FRAMES_PER_BLOCK):
        yield feats[begin:begin + FRAMES_PER_BLOCK]


def pdf_occupancies(model: AmDiagGmm, stats: GmmStats) -> np.ndarray:
    """Frames of each pdf, float64 (num_pdfs)."""
    return np.add.reduceat(stats.occupancies, model.offsets[:-1])


PdfFrames = Iterable[tuple[int, np.ndarray]]  # a pdf and frames of it, float32 (up to FRAMES_PER_BLOCK, dim)


def by_pdf(feats: np.ndarray, pdfs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The frames of `feats` (T, dim), which belong to `pdfs` (T), pdf by pdf in blocks; frames with pdf -1 are left out."""
    order = np.argsort(pdfs, kind="stable")
    present, begins = np.unique(pdfs[order], return_index=True)
    for pdf, begin, end in zip(present, begins, np.append(begins[1:], len(order))):
        for first in range(begin, end if pdf >= 0 else begin, FRAMES_PER_BLOCK):
            yield int(pdf), feats[order[first:min(end, first + FRAMES_PER_BLOCK)]]


@dataclass(frozen=True)
class PdfBlock:
    """Frames of one pdf (T, dim), [1, x, x²] of them (T, 1 + 2 dim), posteriors of the pdf's `gaussians` float32 (num_gauss, T), and
    log-likelihoods (T); `seen_as`: other features of the same frames (T, dim), or None."""

    pdf: int
    gaussians: slice
    feats: np.ndarray
    data: np.ndarray
    posteriors: np.ndarray
    log_likes: np.ndarray
    seen_as: np.ndarray | None = None


def pdf_blocks(model: AmDiagGmm, frames: PdfFrames, paired: bool = False) -> Iterator[PdfBlock]:
    """Blocks of `frames`; with `paired` these have 2 dim columns, of which the second half is what the frames are `seen_as`."""
    for pdf, rows in frames:
        feats, *others = (np.ascontiguousarray(part) for part in (np.hsplit(rows, 2) if paired else [rows]))
        gaussians = slice(int(model.offsets[pdf]), int(model.offsets[pdf + 1]))
        yield _pdf_block(model, pdf, gaussians, model.checked(feats), *others)


def _pdf_block(model: AmDiagGmm, pdf: int, gaussians: slice, feats: np.ndarray, seen_as: np.ndarray | None = None) -> PdfBlock:
    data = augment(feats)
    posteriors = model.exponent_matrix[gaussians] @ data.T
    best = posteriors.max(0)
    posteriors = np.exp(posteriors - best)
    total = posteriors.sum(0)
    posteriors /= total
    return PdfBlock(pdf, gaussians, feats, data, posteriors, best + np.log(total), seen_as)


def accumulate(model: AmDiagGmm, frames: PdfFrames, stats: GmmStats, paired: bool = False) -> None:
    """Add the statistics of `frames` to `stats`; those of a pdf must come in one order, but pdfs may come in any.

    paired  as of `pdf_blocks`: the first half of the columns gives posteriors, sums are of the second (gmm-acc-stats-twofeats)

    Posteriors are computed in float32, all sums in float64.
    """
    log_likes: dict[int, list[float]] = {}
    for block in pdf_blocks(model, frames, paired):
        data = augment(block.seen_as) if paired else block.data
        stats.sums[block.gaussians] += block.posteriors.astype(np.float64) @ data.astype(np.float64)
        log_likes.setdefault(block.pdf, []).append(float(block.log_likes.sum(dtype=np.float64)))
        stats.num_frames += len(data)
    for pdf in sorted(log_likes):  # the same sum in whatever order pdfs have come
        for log_like in log_likes[pdf]:
            stats.log_like += log_like


def update(model: AmDiagGmm, stats: GmmStats, options: GmmUpdateOptions, remove_low_count: bool = True) -> AmDiagGmm:
    """The M-step: Gaussians with too little data are removed, except the last one of a pdf, which stays as it was.

    With `remove_low_count` False all of them stay as they were, but for their weights.
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
    return AmDiagGmm.from_moments(np.concatenate([[0], np.cumsum(counts)]), kept_weights, means[keep], variances[keep])


def _moments(model: AmDiagGmm, stats: GmmStats, good: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """New means and floored variances where `good`, the model's own elsewhere."""
    dim = model.dim
    means, variances = model.means, model.variances
    means[good] = stats.sums[good, 1:1 + dim] / stats.occupancies[good, None]
    variances[good] = np.maximum(stats.sums[good, 1 + dim:] / stats.occupancies[good, None] - means[good] ** 2, floor)
    return means, variances


def split_targets(occupancies: np.ndarray, num_gauss: int, power: float, min_count: float) -> np.ndarray:
    """How many of `num_gauss` Gaussians each pdf is to have: one each, the others one by one to the largest occupancy^power per Gaussian.

    A pdf whose next Gaussian would leave fewer than `min_count` frames to each gets no more. int64 (num_pdfs).
    """
    targets = np.ones(len(occupancies), np.int64)
    queue = [(-float(occ) ** power, pdf) for pdf, occ in enumerate(occupancies)]
    heapq.heapify(queue)
    left = num_gauss - len(occupancies)
    while left > 0 and queue:
        _, pdf = heapq.heappop(queue)
        if (targets[pdf] + 1) * min_count >= occupancies[pdf]:
            continue
        targets[pdf] += 1
        left -= 1
        heapq.heappush(queue, (-float(occupancies[pdf]) ** power / targets[pdf], pdf))
    return targets


def mix_up(model: AmDiagGmm, occupancies: np.ndarray, num_gauss: int, options: GmmUpdateOptions, rng: np.random.Generator) -> AmDiagGmm:
    """The model grown towards `num_gauss` Gaussians by splitting the heaviest of each pdf that is below its target."""
    targets = np.maximum(split_targets(occupancies, num_gauss, options.power, options.min_count), model.num_gauss_of)
    if targets.sum() == model.num_gauss:
        return model
    parts = []
    for begin, end, target in zip(model.offsets[:-1], model.offsets[1:], targets):
        parts.append(_split(model.weights[begin:end], model.means_invvars[begin:end], model.inv_vars[begin:end],
                            int(target), options.perturb_factor, rng))
    return AmDiagGmm(np.concatenate([[0], np.cumsum(targets)]), *(np.concatenate(part) for part in zip(*parts)))


def _split(weights, means_invvars, inv_vars, target: int, perturb_factor: float, rng):
    """Halve the heaviest Gaussian until there are `target`; the halves move apart by a random part of the standard deviation."""
    num = len(weights)
    if target <= num:
        return weights, means_invvars, inv_vars
    more = [(0, target - num), (0, 0)]
    weights = np.pad(weights, more[:1])
    means_invvars, inv_vars = np.pad(means_invvars, more), np.pad(inv_vars, more)
    for new in range(num, target):
        old = int(weights[:new].argmax())
        weights[old] = weights[new] = weights[old] / 2
        step = (perturb_factor * rng.standard_normal(inv_vars.shape[1]) * np.sqrt(inv_vars[old])).astype(np.float32)
        inv_vars[new] = inv_vars[old]
        means_invvars[new] = means_invvars[old] + step
        means_invvars[old] -= step
    return weights, means_invvars, inv_vars
