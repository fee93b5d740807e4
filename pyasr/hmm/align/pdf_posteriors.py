"""Posteriors of pdfs for the frames of an utterance, from an alignment or from a lattice
(`pyasr.decode.lattices.lattice_posteriors`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.hmm.model.transitions import TransitionModel


@dataclass(frozen=True)
class PdfPosteriors:
    """Triples of a frame (int32, ascending), one of its pdfs (int32) and its weight (float32), in three
    arrays of equal length."""

    frames: np.ndarray
    pdfs: np.ndarray
    weights: np.ndarray

    @property
    def num_frames(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum(dtype=np.float64))


class SilenceWeighting:
    """Weights of transition-ids: `weight` for those of `phones`, 1 for the others (weight-silence-post)."""

    def __init__(self, trans: TransitionModel, phones: list[int], weight: float):
        self.trans = trans
        self.weights = np.where(np.isin(trans.tid2phone, phones), np.float32(weight), np.float32(1))

    def of_tids(
        self, frames: np.ndarray, tids: np.ndarray, posteriors: np.ndarray | None = None
    ) -> PdfPosteriors:
        """Triples for `tids` at `frames`, with `posteriors` (None: 1) times the weights; triples of weight 0
        are dropped."""
        weights = self.weights[tids] if posteriors is None else self.weights[tids] * posteriors
        kept = np.flatnonzero(weights > 0)
        return PdfPosteriors(
            np.asarray(frames, np.int32)[kept],
            self.trans.tid2pdf[tids[kept]],
            weights[kept].astype(np.float32),
        )

    def of_alignment(self, tids: np.ndarray) -> PdfPosteriors:
        """Triples of an alignment (T)."""
        return self.of_tids(np.arange(len(tids)), tids)

    def pdfs_of_alignment(self, tids: np.ndarray) -> np.ndarray:
        """The pdf of each frame; -1 if its weight or its transition-id is 0 (no alignment)."""
        return np.where((tids > 0) & (self.weights[tids] > 0), self.trans.tid2pdf[tids], -1)
