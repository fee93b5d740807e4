r"""What became of a network, judged by its loss on held-out frames: whether it knows more of them than how frequent the pdfs are.

    U = ln N                           cross-entropy of guessing all N pdfs equally
    H = -1/T sum_t ln p(s_t)           of guessing by the priors: p(s) from training frames, with one frame added to each pdf; t held-out

    verdict                 loss L
    learns                  L < 0.98 H
    stuck at the priors     0.98 H <= L <= 1.02 U
    worse than guessing     L > 1.02 U
    not a number            not finite, or the training has ended because its numbers were not

H estimates the entropy of the priors. "Diverges" in W. Zhang, X. Cui, et al. (IBM), arXiv:2112.01433 and before, means a loss of 10.37 in
the end, ln of 32000 pdfs: all but the first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pyasr.train.targets.pdf_targets import Targets

LEARNS, STUCK, WORSE, NOT_A_NUMBER = "learns", "stuck at the priors", "worse than guessing", "not a number"
_TOLERANCE = 0.02


class Guessing(NamedTuple):
    """Cross-entropies of the held-out frames (nats a frame): H and U."""

    priors: float
    uniform: float


def guessing(targets: Targets) -> Guessing | None:
    """H and U; None where nothing is held out."""
    held = [np.bincount(targets.pdfs_of(key), minlength=targets.num_pdfs) for key in targets.shard(0, 1, heldout=True)]
    heldout = sum(held, np.zeros(targets.num_pdfs, np.int64))
    if not heldout.any():
        return None
    smoothed = targets.counts() - heldout + 1.0
    return Guessing(float(-heldout @ np.log(smoothed / smoothed.sum()) / heldout.sum()), math.log(targets.num_pdfs))


def verdict(loss: float, than: Guessing) -> str:
    """On a network that has this loss (nats a frame) on the held-out frames."""
    if not math.isfinite(loss):
        return NOT_A_NUMBER
    if loss < (1 - _TOLERANCE) * than.priors:
        return LEARNS
    return STUCK if loss <= (1 + _TOLERANCE) * than.uniform else WORSE
