r"""Connectionist temporal classification: the probability of a sequence of labels, summed over its
alignments.

A. Graves et al., "Connectionist temporal classification", ICML 2006. With y_t(k) the softmax of the logits at
output frame t, 0 the blank, and B the map that joins equal neighbours and then drops blanks, the loss of
labels l over T frames is

    F = -ln sum_{pi : B(pi) = l} prod_t y_t(pi_t)                               (eq. 3, 8)

Each label needs a frame, and equal neighbours a blank between them: an utterance of fewer than |l| + #{i :
l_i = l_{i-1}} frames has no alignment, and its loss is infinite. Such utterances are excluded from the sum
and named in the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from pyasr.base.errors import UserError

BLANK = 0


@dataclass(frozen=True)
class CtcSupervision:
    """The targets of N utterances of a minibatch.

    labels       int64 (sum of num_labels): labels 1 ... K - 1 of all utterances, concatenated
    num_labels   int64 (N)
    num_frames   int64 (N): number of the network's output frames of each utterance
    names        utterance names, for messages
    """

    labels: np.ndarray
    num_labels: np.ndarray
    num_frames: np.ndarray
    names: tuple[str, ...]

    @staticmethod
    def of(
        labels: Sequence[np.ndarray], num_frames: Sequence[int] | np.ndarray, names: Sequence[str]
    ) -> CtcSupervision:
        """Construct it from an array of labels for each utterance."""
        flat = (
            np.concatenate([np.asarray(one, np.int64) for one in labels])
            if len(labels)
            else np.zeros(0, np.int64)
        )
        lengths = np.array([len(one) for one in labels], np.int64)
        return CtcSupervision(flat, lengths, np.asarray(num_frames, np.int64), tuple(names))

    @property
    def owners(self) -> np.ndarray:
        """The utterance index, 0 ... N - 1, of each label."""
        return np.repeat(np.arange(len(self.names)), self.num_labels)

    @property
    def min_frames(self) -> np.ndarray:
        """Minimum number of frames of each utterance, int64 (N): at least one."""
        owners = self.owners
        repeats = (self.labels[1:] == self.labels[:-1]) & (owners[1:] == owners[:-1])
        return np.maximum(self.num_labels + np.bincount(owners[1:][repeats], minlength=len(self.names)), 1)

    @property
    def reachable(self) -> np.ndarray:
        """Whether each utterance is long enough for its labels, bool (N)."""
        return self.num_frames >= self.min_frames

    def select(self, keep: np.ndarray) -> CtcSupervision:
        """The utterances for which the bool array `keep` (N) is true."""
        names = tuple(name for name, kept in zip(self.names, keep) if kept)
        return CtcSupervision(
            self.labels[keep[self.owners]], self.num_labels[keep], self.num_frames[keep], names
        )

    def too_short(self) -> list[str]:
        """A sentence for each utterance that is too short for any alignment."""
        rows = zip(self.names, self.num_frames, self.num_labels, self.min_frames)
        return [
            f"{name}: {frames} output frame(s) for {labels} unit(s), which need {needed}"
            for (name, frames, labels, needed), fits in zip(rows, self.reachable)
            if not fits
        ]

    def check(self, max_frames: int, num_outputs: int) -> None:
        """Raise UserError, naming an utterance, for labels that a network with `num_outputs` outputs does not
        have, and missing frames."""
        wrong = np.flatnonzero((self.labels <= BLANK) | (self.labels >= num_outputs))
        if len(wrong):
            found = (
                f"unit {self.labels[wrong[0]]} is not in 1 to {num_outputs - 1}, the network's outputs "
                "without the blank"
            )
            raise UserError(
                f"{self.names[self.owners[wrong[0]]]}: {found}; train with the units of the network"
            )
        beyond = np.flatnonzero(self.num_frames > max_frames)
        if len(beyond):
            name, frames = self.names[beyond[0]], self.num_frames[beyond[0]]
            raise UserError(
                f"{name}: expected {frames} output frames, but the network has {max_frames}; check its "
                "subsampling"
            )


@dataclass(frozen=True)
class CtcCounts:
    """The terms of a loss; `skipped` names the utterances that are too short for their labels."""

    num_sequences: int
    num_frames: int
    num_labels: int
    skipped: tuple[str, ...] = ()


def ctc_loss(logits: torch.Tensor, supervision: CtcSupervision) -> tuple[torch.Tensor, CtcCounts]:
    """(sum of F over the utterances, its terms).

    logits  (N, T, K), any float type; the loss is computed in float32, or in float64 if the logits are
            float64

    Frames beyond the end of an utterance are ignored. Raises UserError as `CtcSupervision.check` does.
    """
    supervision.check(logits.shape[1], logits.shape[2])
    reachable = supervision.reachable
    if not reachable.all():
        logits = logits[torch.from_numpy(np.flatnonzero(reachable)).to(logits.device)]
    kept = supervision.select(reachable)
    skipped = tuple(name for name, fits in zip(supervision.names, reachable) if not fits)
    counts = CtcCounts(len(kept.names), int(kept.num_frames.sum()), len(kept.labels), skipped)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    if not kept.names:
        return wide.sum(), counts  # zero, with a gradient of zero
    log_probs = F.log_softmax(wide, 2).transpose(0, 1)
    lengths = torch.from_numpy(kept.num_frames), torch.from_numpy(kept.num_labels)
    return F.ctc_loss(
        log_probs, torch.from_numpy(kept.labels).to(logits.device), *lengths, blank=BLANK, reduction="sum"
    ), counts
