r"""Periodic parameter averaging over all ranks.

Reference: H. Su, H. Chen, H. Xu, "Experiments on Parallel Training of Deep Neural Network using Model
Averaging", arXiv:1507.01239.

P ranks start from the same parameters. Each trains on its own shard by SGD; when it has seen `period_frames`
frames since the last mixing, all parameters are averaged (the paper's Section 2):

    theta_r <- theta_r + sum of the rank's own updates           local training of rank r, n_r frames
    theta   <- sum_r n_r theta_r / sum_r n_r                     on every rank

The paper averages with equal weights and stops when the first rank runs out of data, which drops the
remaining data of the others. With the weights n_r, the number of frames since the last mixing, a rank without
data continues to take part with weight 0 until all ranks are out of data: no data are dropped, no rank
blocks, and with even shards both methods are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyasr.parallel.mixing.periodic import PeriodicStrategy, average
from pyasr.parallel.mixing.register import register
from pyasr.parallel.mixing.scheme_options import AveragingOptions

if TYPE_CHECKING:
    import torch


@register("allreduce", options=AveragingOptions)
class AllreduceAveraging(PeriodicStrategy):
    """Averages over all ranks."""

    mixes_equal = True

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """The weighted average."""
        average(self.codec, master, shares)
