r"""Periodic parameter averaging over all ranks (allreduce), after every minibatch (gradient), or first so and then so (post-local).

References: H. Su, H. Chen, H. Xu, "Experiments on Parallel Training of Deep Neural Network using Model Averaging", arXiv:1507.01239;
T. Lin, S. Stich, K. Patel, M. Jaggi, "Don't use large mini-batches, use local SGD", arXiv:1808.07217 (post-local).

P ranks start from the same parameters. Each trains on its own shard by SGD; when it has seen `period_frames` frames since the last
mixing, all parameters are averaged (the paper's Section 2):

    theta_r <- theta_r + sum of the rank's own updates           local training of rank r, n_r frames
    theta   <- sum_r n_r theta_r / sum_r n_r                     on every rank

The paper averages with equal weights and stops when the first rank runs out of data, dropping the rest of the others'. With weights n_r,
frames since the last mixing, a rank without data goes on taking part with weight 0 until nobody has any: nothing is dropped, nothing
hangs, and with even shards the two are the same.

After every minibatch this is synchronous SGD, the average of gradients: SGD and momentum are linear in them, and all ranks begin with equal
parameters. Natural gradient and limits on the change act on each rank's own minibatch before the average.
"""

from __future__ import annotations

import numpy as np
import torch

from pyasr.parallel.strategies.base import register
from pyasr.parallel.strategies.periodic import PeriodicStrategy, average


@register("allreduce")
class AllreduceAveraging(PeriodicStrategy):
    """Averages over all ranks."""

    mixes_equal = True

    def mix(self, master: torch.Tensor, shares: np.ndarray, last: bool) -> None:
        """The weighted average."""
        average(self.wire, master, shares)


@register("gradient")
class GradientAveraging(AllreduceAveraging):
    """Averages after every minibatch: synchronous SGD."""

    def period(self) -> int:
        """One minibatch."""
        return 1


@register("post-local")
class PostLocal(AllreduceAveraging):
    """Averages after every minibatch in the first epochs, then periodically."""

    def period(self) -> int:
        """One minibatch at first."""
        return 1 if self.epoch < self.options.post_local_epochs else self.options.period_frames
