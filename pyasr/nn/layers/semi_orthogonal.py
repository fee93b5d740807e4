r"""Matrices that are kept semi-orthogonal in training.

D. Povey, G. Cheng, Y. Wang, K. Li, H. Xu, M. Yarmohammadi, S. Khudanpur, "Semi-orthogonal low-rank matrix
factorization for deep neural networks", Interspeech 2018, section 2; Kaldi's `orthonormal-constraint=-1.0`. A
matrix M with at most as many rows as columns (else its transpose) is moved towards M M' = a^2 I by steps
along the negative gradient of tr(Q Q'):

    P = M M',     Q = P - a^2 I,     M <- M - (4 nu / a^2) Q M

With nu = 1/8 they converge quadratically. The scale floats: a^2 = tr(P P') / tr(P) makes a step orthogonal to
M, so that only training determines the norm of M. Far from the goal such steps might diverge; Kaldi reduces
them by a ratio that is 1 at the goal:

    r = n tr(P P') / tr(P)^2,  n rows,        nu = 1/8;  1/16 if r > 1.02;  1/32 if r > 1.1

A learner makes a step after every fourth minibatch. (Kaldi does so for each matrix after a minibatch with
probability 1/4. A rule without random numbers keeps learners equal whose gradients are added, and makes a
resumed training bit-identical.)

An average of semi-orthogonal matrices is not semi-orthogonal. After ranks have been averaged, the next steps
restore the constraint. A final model that is an average of ranks or models stays as it is, as in Kaldi: the
constraint serves training, and the average is the model that was selected and evaluated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyasr.tensor.products import mm

PERIOD = 4  # minibatches between two steps
_MIN_TRACE = 1e-30


def keep_semi_orthogonal(layer: nn.Linear) -> nn.Linear:
    """Mark a layer for `semi_orthogonal_weights` and return it."""
    layer.is_semi_orthogonal = True
    return layer


def semi_orthogonal_weights(network: nn.Module) -> list[int]:
    """Indices, in `network.parameters()`, of the matrices to keep semi-orthogonal."""
    kept = {id(layer.weight) for layer in network.modules() if getattr(layer, "is_semi_orthogonal", False)}
    return [place for place, parameter in enumerate(network.parameters()) if id(parameter) in kept]


@torch.no_grad()
def draw_semi_orthogonal(m: Tensor, random: torch.Generator) -> None:
    """Draw a random matrix, semi-orthogonal with a = 1: its rows have the norm of normal random numbers of
    deviation 1 / sqrt(columns)."""
    nn.init.orthogonal_(m, generator=random)


@torch.no_grad()
def approach_semi_orthogonal(m: Tensor) -> None:
    """Make one step as above, in place, on a float32 or float64 matrix."""
    m = m if len(m) <= m.shape[1] else m.T
    p = mm(m, m.T)
    trace, square = p.trace().clamp(min=_MIN_TRACE), p.square().sum()
    r, scale = len(m) * square / trace.square(), (square / trace).clamp(min=_MIN_TRACE)  # a^2
    four_nu = torch.where(r > 1.02, torch.where(r > 1.1, 1 / 8, 1 / 4), 1 / 2).to(p)
    p.diagonal().sub_(scale)
    m.sub_(mm(p.mul_(four_nu / scale), m))
