r"""Maximum likelihood linear transform: the square matrix under which Gaussians with diagonal covariances fit
best.

M. Gales, "Semi-tied covariance matrices for hidden Markov models", IEEE Trans. Speech and Audio Processing
7(3), 1999. Behaves as Kaldi's gmm-acc-mllt and est-mllt, without their random pruning of posteriors.

    G_d = sum_g 1/sigma²_gd sum_t gamma_g(t) (x_t - mu_g)(x_t - mu_g)^T,      beta = sum_t sum_g gamma_g(t)
    M maximises  beta log |det M| - 1/2 sum_d m_d G_d m_d^T

The means of the model become M mu for the new features; the next M-step updates the variances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_update import PdfFrames, pdf_blocks
from pyasr.hmm.transforms.row_updates import maximise_rows, objective

_NUM_ITERS = 200


@dataclass
class MlltStats:
    """`g`, float64 (D, D, D): G_d; `beta`: number of frames. Both can be added over ranks."""

    g: np.ndarray
    beta: float = 0.0

    @classmethod
    def zeros(cls, dim: int) -> MlltStats:
        return cls(np.zeros((dim, dim, dim)))

    def accumulate(self, model: AmDiagGmm, frames: PdfFrames) -> None:
        """Add blocks of frames."""
        dim = model.dim
        means = model.means.astype(np.float32)
        for block in pdf_blocks(model, frames):
            apart = block.feats - means[block.gaussians, None]
            scatter = (apart * block.posteriors[:, :, None]).transpose(0, 2, 1) @ apart
            inv_vars = model.inv_vars[block.gaussians].astype(np.float64)
            self.g += (inv_vars.T @ scatter.reshape(-1, dim * dim).astype(np.float64)).reshape(dim, dim, dim)
            self.beta += len(block.feats)

    def allreduce(self, comm) -> MlltStats:
        """Replace the sums by those over all ranks. Returns the object itself."""
        comm.allreduce(self.g)
        self.beta = comm.reduce_scalar(self.beta)
        return self


def estimate_mllt(stats: MlltStats) -> tuple[np.ndarray, float]:
    """(M float64 (D, D), gain in log-likelihood per frame). Raises UserError if there are too few frames."""
    dim = len(stats.g)
    start, nothing = np.eye(dim), np.zeros((dim, dim))
    try:
        matrix = maximise_rows(stats.beta, nothing, stats.g, start, _NUM_ITERS)
    except np.linalg.LinAlgError:
        raise UserError(
            f"the MLLT statistics of {stats.beta:.0f} frames of speech are singular; train on more data"
        ) from None
    gain = objective(matrix, stats.beta, nothing, stats.g) - objective(start, stats.beta, nothing, stats.g)
    return matrix, gain / stats.beta


def transform_means(model: AmDiagGmm, matrix: np.ndarray) -> AmDiagGmm:
    """The model with means M mu, or A mu + b for an affine matrix (gmm-transform-means)."""
    means = model.means @ matrix[:, : model.dim].T
    if matrix.shape[1] > model.dim:
        means = means + matrix[:, model.dim]
    return AmDiagGmm(
        model.offsets, model.weights, (means * model.inv_vars).astype(np.float32), model.inv_vars
    )
