r"""Feature-space maximum likelihood linear regression (constrained MLLR): an affine transform of a speaker's
features.

M. Gales, "Maximum likelihood linear transformations for HMM-based speech recognition", Computer Speech and
Language 12(2), 1998. Behaves as Kaldi's gmm-est-fmllr. W = [A b] acts on  xi_t = [x_t 1];  gamma_g(t) are the
posteriors of Gaussians times weights:

    beta = sum gamma_g(t),   k_d = sum gamma_g(t) mu_gd/sigma²_gd xi_t
    G_d = sum gamma_g(t) / sigma²_gd xi_t xi_t^T
    W maximises  beta log |det A| + sum_d ( w_d . k_d - 1/2 w_d G_d w_d^T )
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.option_uses import if_is, unless_is
from pyasr.base.cli.options import option
from pyasr.hmm.align.pdf_posteriors import PdfPosteriors
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.transforms.fmllr_kernels import expected_parameters, products
from pyasr.hmm.transforms.row_updates import maximise_rows, objective
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays

_FRAMES_PER_BLOCK = 512


@dataclass(frozen=True)
class FmllrOptions:
    """Estimation of speakers' transforms. Defaults are Kaldi's."""

    heading = "transforms and adaptation"

    fmllr_update_type: str = option(
        "full",
        "estimated parameters of the transform A x + b; full: A and b; diag: a diagonal A and b; "
        "offset: b; none: no transform",
        choices=("full", "diag", "offset", "none"),
    )
    fmllr_min_count: float = option(
        500.0,
        "minimum weighted frames of a speaker; with fewer, the transform stays unchanged",
        minimum=0.0,
        only=unless_is("fmllr-update-type", "none"),
    )
    fmllr_num_iters: int = option(
        40,
        "number of passes over the rows of A and b",
        minimum=1,
        only=if_is("fmllr-update-type", "full"),
        rare=True,
    )


@dataclass
class FmllrStats:
    """Sums over frames, float64, which can be added over utterances and ranks.

    k (D, D + 1): rows k_d;  g (D, P), P = (D + 1)(D + 2) / 2: lower triangles of the G_d, row by row
    """

    k: np.ndarray
    g: np.ndarray
    beta: float = 0.0

    @classmethod
    def zeros(cls, dim: int) -> FmllrStats:
        return cls(np.zeros((dim, dim + 1)), np.zeros((dim, (dim + 1) * (dim + 2) // 2)))

    @property
    def dim(self) -> int:
        return len(self.k)

    @property
    def quadratic(self) -> np.ndarray:
        """The G_d, float64 (D, D + 1, D + 1)."""
        size = self.dim + 1
        rows, columns = np.tril_indices(size)
        full = np.empty((self.dim, size, size))
        full[:, rows, columns] = full[:, columns, rows] = self.g
        return full

    def accumulate(
        self, model: AmDiagGmm, feats: np.ndarray, posteriors: PdfPosteriors, aligner: AmDiagGmm | None = None
    ) -> None:
        """Add the frames of an utterance (T, D).

        aligner  model for the posteriors of Gaussians, with as many Gaussians per pdf as `model`; None:
                 `model` (gmm-post-to-gpost)
        """
        feats = model.checked(np.asarray(feats, np.float32))
        aligner = model if aligner is None else aligner
        for begin in range(0, len(feats), _FRAMES_PER_BLOCK):
            block = feats[begin : begin + _FRAMES_PER_BLOCK]
            first, last = np.searchsorted(posteriors.frames, (begin, begin + len(block)))
            if first == last:
                continue
            means, inv_vars = expected_parameters(
                block,
                posteriors.frames[first:last] - begin,
                posteriors.pdfs[first:last],
                posteriors.weights[first:last],
                aligner.exponent_matrix,
                aligner.offsets,
                model.means_invvars,
                model.inv_vars,
            )
            extended = np.hstack([block, np.ones((len(block), 1), np.float32)])
            self.k += means.T @ extended
            self.g += inv_vars.T @ products(extended)
        self.beta += posteriors.num_frames

    def add(self, other: FmllrStats) -> FmllrStats:
        """Add the sums of other frames. Returns the object itself."""
        self.k += other.k
        self.g += other.g
        self.beta += other.beta
        return self

    def allreduce(self, comm) -> FmllrStats:
        """Replace the sums by those over all ranks. Returns the object itself."""
        comm.allreduce(self.k)
        comm.allreduce(self.g)
        self.beta = comm.reduce_scalar(self.beta)
        return self


def save_stats(path: Path, stats: dict[str, FmllrStats]) -> None:
    """Write the statistics of speakers, atomically."""
    arrays = {
        f"{name}.{i}": np.asarray(value)
        for i, one in enumerate(stats.values())
        for name, value in vars(one).items()
    }
    save_arrays(path, speakers=np.array(list(stats), str), **arrays)


def load_stats(paths: Iterable[Path], speakers: set[str]) -> dict[str, FmllrStats]:
    """Sums over several files of `save_stats`, of `speakers` only."""
    total: dict[str, FmllrStats] = {}
    for path in paths:
        content = load_arrays(path)
        for i, speaker in enumerate(content["speakers"].tolist()):
            if speaker in speakers:
                one = FmllrStats(content[f"k.{i}"], content[f"g.{i}"], float(content[f"beta.{i}"]))
                total[speaker] = one.add(total[speaker]) if speaker in total else one
    return total


def identity(dim: int) -> np.ndarray:
    """[1 0], float64 (dim, dim + 1)."""
    return np.eye(dim, dim + 1)


def estimate_fmllr(
    stats: FmllrStats, options: FmllrOptions = FmllrOptions()
) -> tuple[np.ndarray | None, float]:
    """(W float64 (D, D + 1), gain in log-likelihood, summed over frames); (None, 0) if the data are too few
    for a gain."""
    update = {"full": _full, "diag": _diagonal, "offset": _offset}.get(options.fmllr_update_type)
    if update is None or not stats.beta > options.fmllr_min_count:
        return None, 0.0
    start, quadratic = identity(stats.dim), stats.quadratic
    try:
        transform = update(stats.beta, stats.k, quadratic, start, options.fmllr_num_iters)
    except np.linalg.LinAlgError:
        return None, 0.0
    gain = objective(transform, stats.beta, stats.k, quadratic) - objective(
        start, stats.beta, stats.k, quadratic
    )
    return (transform, gain) if np.isfinite(transform).all() and gain > 0 else (None, 0.0)


_full = maximise_rows


def _diagonal(beta: float, k: np.ndarray, g: np.ndarray, start: np.ndarray, num_iters: int) -> np.ndarray:
    r"""A = diag(s): with the best offset for each scale, Q is  beta log s + s v - 1/2 s² u  per dimension."""
    d = np.arange(len(k))
    g_sb, g_bb, k_b = g[d, d, -1], g[d, -1, -1], k[:, -1]
    u, v = g[d, d, d] - g_sb**2 / g_bb, k[d, d] - g_sb * k_b / g_bb
    scale = (v + np.sqrt(v * v + 4 * beta * u)) / (2 * u)
    return np.hstack([np.diag(scale), ((k_b - scale * g_sb) / g_bb)[:, None]])


def _offset(beta: float, k: np.ndarray, g: np.ndarray, start: np.ndarray, num_iters: int) -> np.ndarray:
    """A is the identity."""
    d = np.arange(len(k))
    return np.hstack([np.eye(len(k)), ((k[:, -1] - g[d, d, -1]) / g[d, -1, -1])[:, None]])
