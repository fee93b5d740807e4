r"""The total variability model and its i-vectors (Dehak et al. 2011; Kaldi's ivector-extractor).

A frame x of Gaussian g of the UBM, from the speaker with i-vector v (dimension R), is

    x ~ N(M_g v, S_g),       v ~ N(p e_1, 1),       e_1 = (1, 0, ..., 0)

The mean of Gaussian g over speakers is p times the first column of M_g, so the prior offset p replaces
separate means. With N_g = sum_t gamma_g(t) and F_g = sum_t gamma_g(t) x_t, the i-vector has the posterior
N(L^-1 b, L^-1), where

    L = s + sum_g N_g M_g' S_g^-1 M_g,       b = s p e_1 + sum_g M_g' S_g^-1 F_g
    s = max(1, sum_g N_g / max_count)

All numbers are float64. Outside this module, i-vectors have p subtracted from their first element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

EXTRACTOR_FILE = "final.ie"


@dataclass(frozen=True)
class IvectorExtractor:
    """Parameters of the model. The arrays must not be changed.

    projections   M_g, float64 (num_gauss, D, R)
    precisions    S_g^-1, float64 (num_gauss, D, D)
    prior_offset  p
    """

    projections: np.ndarray
    precisions: np.ndarray
    prior_offset: float

    @property
    def num_gauss(self) -> int:
        """Number of Gaussians, that of the UBM."""
        return len(self.projections)

    @property
    def feat_dim(self) -> int:
        """Number of feature columns, D."""
        return self.projections.shape[1]

    @property
    def dim(self) -> int:
        """Dimension of the i-vectors, R."""
        return self.projections.shape[2]

    @cached_property
    def covariances(self) -> np.ndarray:
        """S_g, float64 (num_gauss, D, D)."""
        return np.linalg.inv(self.precisions)

    @cached_property
    def _weighted(self) -> np.ndarray:
        """S_g^-1 M_g, (num_gauss D, R)."""
        return (self.precisions @ self.projections).reshape(-1, self.dim)

    @cached_property
    def _products(self) -> np.ndarray:
        """M_g' S_g^-1 M_g, (num_gauss, R R)."""
        weighted = self._weighted.reshape(self.projections.shape)
        return (self.projections.transpose(0, 2, 1) @ weighted).reshape(self.num_gauss, -1)

    def terms(self, counts: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(b, L) without the part of the prior, (U, R) and (U, R, R), of statistics N (U, num_gauss) and F
        (U, num_gauss, D)."""
        return sums.reshape(len(sums), -1) @ self._weighted, (counts @ self._products).reshape(
            -1, self.dim, self.dim
        )

    def add_prior(
        self, linear: np.ndarray, quadratic: np.ndarray, scale: np.ndarray | float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """(b, L) of `terms` plus the prior, times s = `scale` (U)."""
        scale = np.broadcast_to(scale, len(linear))
        linear = linear.copy()
        linear[:, 0] += scale * self.prior_offset
        return linear, quadratic + scale[:, None, None] * np.eye(self.dim)

    def posterior(self, counts: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means (U, R), including the offset, and covariances (U, R, R) of the i-vectors, with s = 1."""
        return gaussian(*self.add_prior(*self.terms(counts, sums)))

    def estimate(
        self, linear: np.ndarray, quadratic: np.ndarray, counts: np.ndarray, max_count: float = 0.0
    ) -> np.ndarray:
        """I-vectors (U, R), without offset, of the `terms` of statistics with `counts` = sum_g N_g (U);
        `max_count` 0: s = 1."""
        scale = np.maximum(1.0, counts / max_count) if max_count else 1.0
        linear, quadratic = self.add_prior(linear, quadratic, scale)
        ivectors = np.linalg.solve(quadratic, linear[:, :, None])[:, :, 0]
        ivectors[:, 0] -= self.prior_offset
        return ivectors


def gaussian(linear: np.ndarray, quadratic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L^-1 b (U, R) and L^-1 (U, R, R), for b (U, R) and L (U, R, R)."""
    covariances = np.linalg.inv(quadratic)
    return (covariances @ linear[:, :, None])[:, :, 0], covariances


def write_extractor(path: Path, extractor: IvectorExtractor) -> None:
    """Write Kaldi's `final.ie` (no weights that depend on the i-vector), atomically."""
    with KaldiWriter(path) as writer:
        writer.token("<IvectorExtractor>")
        writer.token("<w>")
        writer.matrix(np.zeros((0, 0)))
        writer.token("<w_vec>")
        writer.vector(np.zeros(extractor.num_gauss))
        writer.token("<M>")
        writer.int32(extractor.num_gauss)
        for matrix in extractor.projections:
            writer.matrix(matrix)
        writer.token("<SigmaInv>")
        for matrix in extractor.precisions:
            writer.symmetric(matrix)
        writer.token("<IvectorOffset>")
        writer.float64(extractor.prior_offset)
        writer.token("</IvectorExtractor>")


def read_extractor(path: Path) -> IvectorExtractor:
    """The extractor in a file of `write_extractor`. Raises UserError with file and byte for other content."""
    reader = KaldiReader(path)
    reader.expect("<IvectorExtractor>")
    reader.expect("<w>")
    if reader.matrix().size:
        raise reader.error(
            "weights that depend on the i-vector (Kaldi's --use-weights=true) are not supported"
        )
    reader.expect("<w_vec>")
    reader.vector()
    reader.expect("<M>")
    before, num_gauss = reader.offset, reader.int32()
    if not 0 < num_gauss <= reader.num_left:
        raise reader.error(
            f"{num_gauss} Gaussians do not fit into the remaining {reader.num_left} bytes; the file is "
            "damaged",
            before,
        )
    projections = [reader.matrix() for _ in range(num_gauss)]
    reader.expect("<SigmaInv>")
    precisions = [reader.symmetric() for _ in range(num_gauss)]
    reader.expect("<IvectorOffset>")
    prior_offset = reader.float32()
    reader.expect("</IvectorExtractor>")
    feat_dim = len(projections[0])
    if {one.shape for one in projections} != {projections[0].shape} or {one.shape for one in precisions} != {
        (feat_dim, feat_dim)
    }:
        raise reader.error(
            "matrices of different Gaussians have different shapes; the file is damaged", before
        )
    return IvectorExtractor(
        np.array(projections, np.float64), np.array(precisions, np.float64), float(prior_offset)
    )
