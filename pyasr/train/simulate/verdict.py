r"""Verdict on a trained network from its held-out loss, in comparison to guessing from the frequencies of the
pdfs.

    U = ln N                           cross-entropy of guessing all N pdfs with equal probability
    H = -1/T sum_t ln p(s_t)           of guessing by the priors: p(s) from training frames, with one frame
                                       added to each pdf; t held-out

    verdict                 loss L
    learns                  L < 0.98 H
    stuck at the priors     0.98 H <= L <= 1.02 U
    worse than guessing     L > 1.02 U
    not a number            not finite, or the training ended because values were not finite

H estimates the entropy of the priors. In W. Zhang, X. Cui, et al. (IBM), arXiv:2112.01433 and earlier,
"diverges" means a final loss of 10.37, ln of 32000 pdfs: every verdict but the first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pyasr.train.targets.pdf_targets import Targets

LEARNS, STUCK, WORSE, NOT_A_NUMBER = "learns", "stuck at the priors", "worse than guessing", "not a number"
_TOLERANCE = 0.02


class Guessing(NamedTuple):
    """Cross-entropies of guessing the held-out frames (nats per frame): H and U."""

    priors: float
    uniform: float


def guessing(targets: Targets) -> Guessing | None:
    """H and U; None if nothing is held out."""
    held = [
        np.bincount(targets.pdfs_of(key), minlength=targets.num_pdfs)
        for key in targets.shard(0, 1, heldout=True)
    ]
    heldout = sum(held, np.zeros(targets.num_pdfs, np.int64))
    if not heldout.any():
        return None
    smoothed = targets.counts() - heldout + 1.0
    return Guessing(
        float(-heldout @ np.log(smoothed / smoothed.sum()) / heldout.sum()), math.log(targets.num_pdfs)
    )


def verdict(loss: float, than: Guessing) -> str:
    """Verdict on a network with this held-out loss (nats per frame)."""
    if not math.isfinite(loss):
        return NOT_A_NUMBER
    if loss < (1 - _TOLERANCE) * than.priors:
        return LEARNS
    return STUCK if loss <= (1 + _TOLERANCE) * than.uniform else WORSE
