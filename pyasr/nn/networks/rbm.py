r"""Restricted Boltzmann machines, and one step of contrastive divergence (CD-1) on a minibatch.

References: G. Hinton, "Training products of experts by minimizing contrastive divergence", Neural Computation
14, 2002; G. Hinton, "A practical guide to training restricted Boltzmann machines", UTML TR 2010-003.
Behaviour and constants are as in Kaldi's rbm-train-cd1-frmshuff.

    v (V,)  visible units      W (H, V)  weights           N  rows of a minibatch
    h (H,)  hidden units       a (V,)    visible biases    s  logistic function
            in {0, 1}          b (H,)    hidden biases

The model is p(v, h) = exp(-E(v, h)) / Z with one of two energies:

    (1)  Bernoulli, v in {0, 1}^V:  E = -h'W v - b'h - a'v            E[v | h] = s(W'h + a)
    (2)  Gaussian,  v in R^V:       E = |v - a|^2 / 2 - h'W v - b'h   E[v | h] = W'h + a,  unit variance
    (3)  p(h_j = 1 | v) = s(w_j'v + b_j)
    (4)  -log sum_h exp(-E) = F(v) = {-a'v  or  |v - a|^2 / 2} - sum_j log(1 + exp(w_j'v + b_j))

CD-1 for the rows V of a minibatch:

    H+ = p(h | V)      Hs ~ Bernoulli(H+)      V- = E[v | Hs]      H- = p(h | V-)
    (5)  dW = H+'V - H-'V- - N c W,   db = sum of rows (H+ - H-),   da = sum of rows (V - V-)
         c: L2 penalty

Positive statistics use probabilities; only the reconstruction uses a sample; V- and H- are not sampled.

Hazard: a Gaussian machine has no bound on V-. If the deviation of a minibatch's reconstruction is more than
twice that of the data, W has become too large, and every further step increases it: `explosion` returns the
factor by which to shrink W and b. This is meaningful for many frames only: two or three frames of silence
vary less than the samples of any sound machine, and would shrink it to nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from pyasr.tensor.products import add_mm, affine
from pyasr.tensor.random_bits import sample_bernoulli

MAX_RATIO = 2.0  # maximum ratio of the standard deviations of reconstruction and data
MIN_ROWS = 16  # minimum number of rows for a comparison of standard deviations
MIN_ACTIVATION = 1e-4  # mean activations are clipped to [1e-4, 1 - 1e-4] before the logit


class Reconstruction(NamedTuple):
    """Result of CD-1 for N rows: `data` and `reconstruction` (N, V), and the probabilities `hidden` and
    `rehidden` (N, H) given each."""

    data: torch.Tensor
    hidden: torch.Tensor
    reconstruction: torch.Tensor
    rehidden: torch.Tensor


class Rbm(nn.Module):
    """A machine of `visible_dim` Gaussian or Bernoulli and `hidden_dim` Bernoulli units; parameters in the
    order W, b, a."""

    def __init__(self, visible_dim: int, hidden_dim: int, gaussian: bool):
        super().__init__()
        self.gaussian = gaussian
        self.weight = nn.Parameter(torch.zeros(hidden_dim, visible_dim), requires_grad=False)
        self.hidden_bias = nn.Parameter(torch.zeros(hidden_dim), requires_grad=False)
        self.visible_bias = nn.Parameter(torch.zeros(visible_dim), requires_grad=False)

    def initialise(
        self, stddev: float, generator: torch.Generator, mean_activation: torch.Tensor | None = None
    ) -> None:
        """Draw weights from N(0, stddev^2); hidden biases 0; visible biases 0, or the logits of
        `mean_activation` if it is given."""
        self.weight.normal_(0, stddev, generator=generator)
        self.hidden_bias.zero_()
        self.visible_bias.zero_()
        if mean_activation is not None:
            self.visible_bias.copy_(torch.logit(mean_activation, eps=MIN_ACTIVATION))

    def hidden(self, v: torch.Tensor) -> torch.Tensor:
        """Probabilities of the hidden units (3): (N, V) to (N, H)."""
        return affine(v, self.weight, self.hidden_bias).sigmoid_()

    def visible(self, h: torch.Tensor) -> torch.Tensor:
        """Expectation of the visible units (1, 2): (N, H) to (N, V)."""
        v = affine(h, self.weight.T, self.visible_bias)
        return v if self.gaussian else v.sigmoid_()

    def free_energy(self, v: torch.Tensor) -> torch.Tensor:
        """F(v) of each row (4), (N,)."""
        own = 0.5 * (v - self.visible_bias).square().sum(1) if self.gaussian else -v @ self.visible_bias
        return own - F.softplus(F.linear(v, self.weight, self.hidden_bias)).sum(1)

    def reconstruct(self, v: torch.Tensor, generator: torch.Generator | None = None) -> Reconstruction:
        """One step of Gibbs sampling from the rows `v` (N, V), with hidden units drawn by `generator`."""
        hidden = self.hidden(v)
        reconstruction = self.visible(sample_bernoulli(hidden, generator))
        return Reconstruction(v, hidden, reconstruction, self.hidden(reconstruction))


def descend(rbm: Rbm, of: Reconstruction, l2: float) -> None:
    """Write the negative of (5) to the `.grad` of `rbm`, as for gradient descent.

    Positive and negative statistics are one product of 2 N rows: their difference is rounded once, which
    matters in bfloat16.
    """
    rows, columns = torch.cat([of.hidden, -of.rehidden]), torch.cat([of.data, of.reconstruction])
    torch.mul(rbm.weight, l2 * len(of.data), out=rbm.weight.grad)
    add_mm(rbm.weight.grad, rows.T, columns, -1)
    rbm.hidden_bias.grad.copy_(-_column_sums(rows))
    rbm.visible_bias.grad.copy_(_column_sums(of.reconstruction) - _column_sums(of.data))


def explosion(of: Reconstruction, least_rows: int = MIN_ROWS) -> torch.Tensor:
    """Factor by which to shrink a Gaussian machine, on the device: 1 unless the reconstruction varies too
    much.

    Compares the sums over columns of the standard deviations in the minibatch. The factor is 1 if the
    minibatch has fewer than `least_rows` rows, or if all of its rows are equal.
    """
    if len(of.data) < least_rows:
        return torch.ones((), device=of.data.device)
    data, reconstruction = _deviation(of.data), _deviation(of.reconstruction)
    return torch.where(
        (data > 0) & (reconstruction > MAX_RATIO * data), data / reconstruction, torch.ones_like(data)
    )


def _column_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0, dtype=torch.float32)


def _deviation(x: torch.Tensor) -> torch.Tensor:
    """Sum of standard deviations from sums of squares, much faster than `torch.std` on a CPU; exactly 0 for
    equal rows, as the first row is subtracted from all."""
    x = x.float()
    x = x - x[0]
    return ((x * x).mean(0) - x.mean(0).square()).clamp_(min=0).sqrt().sum()


def squared_error(of: Reconstruction) -> torch.Tensor:
    """Squared error of the reconstruction per visible unit, summed over rows."""
    difference = of.reconstruction.float() - of.data
    return torch.dot(difference.flatten(), difference.flatten()) / difference.shape[1]
