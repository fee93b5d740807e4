r"""Matrices that are kept semi-orthogonal while they are trained.

D. Povey, G. Cheng, Y. Wang, K. Li, H. Xu, M. Yarmohammadi, S. Khudanpur, "Semi-orthogonal low-rank matrix factorization for deep neural
networks", Interspeech 2018, section 2; Kaldi's `orthonormal-constraint=-1.0`. A matrix M that has no more rows than columns (of another
one the transpose) is drawn to M M' = a^2 I by steps down the gradient of tr(Q Q'):

    P = M M',     Q = P - a^2 I,     M <- M - (4 nu / a^2) Q M

With nu = 1/8 they converge quadratically. The scale floats: a^2 = tr(P P') / tr(P) makes a step orthogonal to M, so that it is left to
the training how long M is. Far from the goal such steps might lead away from it; Kaldi makes them smaller, by what is 1 at the goal:

    r = n tr(P P') / tr(P)^2,  n rows,        nu = 1/8;  1/16 where r > 1.02;  1/32 where r > 1.1

A learner takes a step after every fourth minibatch. (Kaldi does for each matrix after a minibatch with probability 1/4. A rule without
random numbers keeps learners the same whose gradients are added, and one that goes on from a checkpoint in the same bits.)

An average of semi-orthogonal matrices is none. After ranks have been averaged the next steps make it one. A final model that is an average
of ranks or models stays as it is, as in Kaldi: the constraint serves learning, and what was chosen and measured is that average.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyasr.tensor.products import mm

PERIOD = 4  # minibatches from one step to the next
_LEAST = 1e-30


def keep_semi_orthogonal(layer: nn.Linear) -> nn.Linear:
    """The same layer, of which `semi_orthogonal_weights` tells."""
    layer.is_semi_orthogonal = True
    return layer


def semi_orthogonal_weights(network: nn.Module) -> list[int]:
    """The places, in the order of `network.parameters()`, of the matrices that are to be kept so."""
    kept = {id(layer.weight) for layer in network.modules() if getattr(layer, "is_semi_orthogonal", False)}
    return [place for place, parameter in enumerate(network.parameters()) if id(parameter) in kept]


@torch.no_grad()
def draw_semi_orthogonal(m: Tensor, random: torch.Generator) -> None:
    """A random matrix, semi-orthogonal with a = 1: rows as long as those of normal numbers of deviation 1 / sqrt(columns)."""
    nn.init.orthogonal_(m, generator=random)


@torch.no_grad()
def approach_semi_orthogonal(m: Tensor) -> None:
    """One step as above, in place, of a float32 or float64 matrix."""
    m = m if len(m) <= m.shape[1] else m.T
    p = mm(m, m.T)
    trace, square = p.trace().clamp(min=_LEAST), p.square().sum()
    r, scale = len(m) * square / trace.square(), (square / trace).clamp(min=_LEAST)  # a^2
    four_nu = torch.where(r > 1.02, torch.where(r > 1.1, 1 / 8, 1 / 4), 1 / 2).to(p)
    p.diagonal().sub_(scale)
    m.sub_(mm(p.mul_(four_nu / scale), m))
