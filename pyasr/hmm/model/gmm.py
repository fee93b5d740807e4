r"""Diagonal Gaussian mixtures, one for each pdf of an acoustic model, stored in flat arrays.

Notation: Gaussian g of pdf p has weight w_g, mean mu_g and variances sigma²_g (dimension D); i counts
dimensions.

    log p(x | p) = log sum_{g in p} exp( c_g + sum_i x_i mu_gi / sigma²_gi - 1/2 sum_i x_i² / sigma²_gi )
    c_g = log w_g - 1/2 sum_i ( log 2 pi sigma²_gi + mu_gi² / sigma²_gi )

The exponents of all Gaussians and frames are thus one matrix product of [c, mu/sigma², -1/(2 sigma²)] with
[1, x, x²]. Parameters are stored as in Kaldi's files (weights, mu/sigma², 1/sigma², float32): writing and
reading a model changes no bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm_kernels import augment, log_sum_exp, select

_FRAMES_PER_BLOCK = 256


@dataclass(frozen=True)
class AmDiagGmm:
    """The mixtures of an acoustic model; the Gaussians of pdf p are `offsets[p]:offsets[p + 1]`. The arrays
    must not be changed.

    offsets        int64 (num_pdfs + 1)
    weights        float32 (num_gauss)
    means_invvars  float32 (num_gauss, dim), mean divided by variance
    inv_vars       float32 (num_gauss, dim)
    """

    offsets: np.ndarray
    weights: np.ndarray
    means_invvars: np.ndarray
    inv_vars: np.ndarray

    @classmethod
    def from_moments(cls, offsets, weights, means, variances) -> AmDiagGmm:
        """A model from weights (num_gauss), means and variances (num_gauss, dim); computed in float64."""
        inv_vars = 1.0 / np.asarray(variances, np.float64)
        return cls(
            np.asarray(offsets, np.int64),
            np.asarray(weights, np.float32),
            (np.asarray(means, np.float64) * inv_vars).astype(np.float32),
            inv_vars.astype(np.float32),
        )

    @property
    def num_pdfs(self) -> int:
        """Number of mixtures, one per tied state."""
        return len(self.offsets) - 1

    @property
    def num_gauss(self) -> int:
        """Total number of Gaussians."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """Number of feature columns."""
        return self.inv_vars.shape[1]

    @property
    def num_gauss_of(self) -> np.ndarray:
        """Number of Gaussians of each pdf, int64 (num_pdfs)."""
        return np.diff(self.offsets)

    @property
    def means(self) -> np.ndarray:
        """mu, float64 (num_gauss, dim)."""
        return self.means_invvars.astype(np.float64) / self.inv_vars

    @property
    def variances(self) -> np.ndarray:
        """sigma², float64 (num_gauss, dim)."""
        return 1.0 / self.inv_vars.astype(np.float64)

    @cached_property
    def gconsts(self) -> np.ndarray:
        """c_g, float32 (num_gauss); a weight of 0 gives -inf."""
        inv_vars, scaled = self.inv_vars.astype(np.float64), self.means_invvars.astype(np.float64)
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights.astype(np.float64))
        rest = self.dim * np.log(2 * np.pi) - np.log(inv_vars).sum(1) + (scaled * scaled / inv_vars).sum(1)
        return (log_weights - 0.5 * rest).astype(np.float32)

    @cached_property
    def exponent_matrix(self) -> np.ndarray:
        """[c, mu/sigma², -1/(2 sigma²)], float32 (num_gauss, 1 + 2 dim); its product with `augment(feats).T`
        gives the exponents."""
        return np.ascontiguousarray(
            np.hstack([self.gconsts[:, None], self.means_invvars, np.float32(-0.5) * self.inv_vars])
        )

    def log_likelihoods(self, feats: np.ndarray) -> np.ndarray:
        """log p(x_t | p) of frames and pdfs, float32 (num_frames, num_pdfs), for feats (num_frames, dim)."""
        return np.ascontiguousarray(self.log_likelihoods_by_pdf(feats).T)

    def log_likelihoods_by_pdf(self, feats: np.ndarray, pdfs: np.ndarray | None = None) -> np.ndarray:
        """log p(x_t | p) of `pdfs` (all if None), float32 (len(pdfs), num_frames)."""
        matrix, offsets = (self.exponent_matrix, self.offsets) if pdfs is None else self.selected(pdfs)
        feats = self.checked(feats)
        result = np.empty((len(offsets) - 1, len(feats)), np.float32)
        for begin in range(0, len(feats), _FRAMES_PER_BLOCK):
            block = slice(begin, begin + _FRAMES_PER_BLOCK)
            log_sum_exp(matrix @ augment(feats[block]).T, offsets, result[:, block])
        return result

    def selected(self, pdfs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `exponent_matrix` that belong to `pdfs`, in their order, and the offsets of each in
        these rows."""
        return select(self.exponent_matrix, self.offsets, pdfs)

    def checked(self, feats: np.ndarray) -> np.ndarray:
        """`feats`. Raises UserError if they do not have the model's dimension."""
        if feats.ndim != 2 or feats.shape[1] != self.dim:
            raise UserError(
                f"features of dimension {feats.shape[-1]}, but the GMM was trained on dimension {self.dim}; "
                "use the feature options of its directory (input.json, or Kaldi's cmvn_opts, delta_opts, "
                "splice_opts)"
            )
        return feats

    def boosted(self, pdfs: np.ndarray, factor: float) -> AmDiagGmm:
        """The model with the likelihoods of `pdfs` multiplied by `factor` (gmm-boost-silence)."""
        scale = np.ones(self.num_pdfs)
        scale[pdfs] = factor
        weights = (self.weights * np.repeat(scale, self.num_gauss_of)).astype(np.float32)
        return AmDiagGmm(self.offsets, weights, self.means_invvars, self.inv_vars)

    @classmethod
    def read(cls, reader) -> AmDiagGmm:
        """The model at the position of a `KaldiReader` (<DIMENSION> ... </DiagGMM>). Raises UserError, with
        file and byte, for others."""
        _expect(reader, "<DIMENSION>")
        dim = reader.int32()
        reader.expect("<NUMPDFS>")
        before, num_pdfs = reader.offset, reader.int32()
        if not 0 < num_pdfs <= reader.num_left:
            raise reader.error(
                f"{num_pdfs} pdfs do not fit into the remaining {reader.num_left} bytes; the model is "
                "damaged",
                before,
            )
        parts = [_read_mixture(reader, dim) for _ in range(num_pdfs)]
        offsets = np.concatenate([[0], np.cumsum([len(weights) for weights, _, _ in parts])])
        return cls(offsets, *(np.ascontiguousarray(np.concatenate(part)) for part in zip(*parts)))

    def write(self, writer) -> None:
        """Write in Kaldi's format to a `KaldiWriter`."""
        writer.token("<DIMENSION>")
        writer.int32(self.dim)
        writer.token("<NUMPDFS>")
        writer.int32(self.num_pdfs)
        writer.newline()
        for begin, end in zip(self.offsets[:-1], self.offsets[1:]):
            self._write_mixture(writer, slice(begin, end))

    def _write_mixture(self, writer, gaussians: slice) -> None:
        writer.token("<DiagGMM>")
        writer.newline()
        for token, array in (
            ("<GCONSTS>", self.gconsts),
            ("<WEIGHTS>", self.weights),
            ("<MEANS_INVVARS>", self.means_invvars),
            ("<INV_VARS>", self.inv_vars),
        ):
            writer.token(token)
            (writer.vector if array.ndim == 1 else writer.matrix)(array[gaussians])
        writer.token("</DiagGMM>")
        writer.newline()

    @classmethod
    def read_single(cls, reader) -> AmDiagGmm:
        """The single mixture of a file such as Kaldi's `final.dubm` (<DiagGMM> ... </DiagGMM>), as a model
        with one pdf."""
        weights, means_invvars, inv_vars = _read_mixture(reader)
        return cls(np.array([0, len(weights)]), weights, means_invvars, inv_vars)

    def write_single(self, writer) -> None:
        """Write a model with one pdf in the format of `read_single`."""
        self._write_mixture(writer, slice(None))


OTHER_MODELS = {
    "<FullGMM>": "Gaussians with full covariances",
    "<FullGMMBegin>": "Gaussians with full covariances",
    "<SGMM>": "a subspace GMM",
    "<Nnet>": "a network of Kaldi's nnet1 or nnet2",
    "<Nnet3>": "a network of Kaldi's nnet3",
}


def _expect(reader, *tokens: str) -> str:
    """As `reader.expect`, with errors that name Kaldi's other types of acoustic models."""
    if not reader.at_end():
        before, word = reader.offset, reader.peek_token()
        if word in OTHER_MODELS:
            raise reader.error(
                f"{OTHER_MODELS[word]} ({word}); only diagonal Gaussian mixtures can be read", before
            )
    return reader.expect(*tokens)


def _read_mixture(reader, dim: int | None = None):
    """(weights, means_invvars, inv_vars) of one <DiagGMM> of dimension `dim` (None: any). Its gconsts are
    skipped, not used."""
    before = reader.offset
    _expect(reader, "<DiagGMM>", "<DiagGMMBegin>")
    if reader.expect("<GCONSTS>", "<WEIGHTS>") == "<GCONSTS>":
        reader.vector()
        reader.expect("<WEIGHTS>")
    weights = reader.vector()
    reader.expect("<MEANS_INVVARS>")
    means_invvars = reader.matrix()
    reader.expect("<INV_VARS>")
    inv_vars = reader.matrix()
    reader.expect("</DiagGMM>", "<DiagGMMEnd>")
    if not means_invvars.shape == inv_vars.shape == (len(weights), dim or inv_vars.shape[1]):
        raise reader.error(
            f"a mixture of {len(weights)} weights has means of shape {means_invvars.shape}; the model is "
            "damaged",
            before,
        )
    if not (
        np.isfinite(means_invvars).all()
        and np.isfinite(weights).all()
        and (inv_vars > 0).all()
        and np.isfinite(inv_vars).all()
    ):
        raise reader.error(
            "a mixture has a variance that is not positive, or a value that is not finite; the model is "
            "damaged",
            before,
        )
    return weights.astype(np.float32), means_invvars.astype(np.float32), inv_vars.astype(np.float32)
