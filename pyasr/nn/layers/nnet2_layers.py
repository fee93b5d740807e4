r"""Layers of Kaldi's nnet2 recipes (its PnormComponent, NormalizeComponent and SumGroupComponent), with
explicit derivatives.

p-norm (Zhang, Trmal, Povey, Khudanpur, "Improving deep neural network acoustic models using generalized
maxout networks", ICASSP 2014) with p = 2, of M groups of G inputs each; group j consists of the inputs j, j +
M, j + 2 M, ...

    y_j = (sum_{i in j} x_i^2)^(1/2),            dF/dx_i = dF/dy_j x_i / y_j,  0 where y_j = 0

Kaldi's groups are consecutive inputs. Both are the same network with permuted rows of the preceding weights.
With a distance of M between inputs, additions are on long vectors, on a CPU two to three times as fast, in
the backward pass of bfloat16 nine times.

Normalisation of a vector of D elements to root mean square 1

    f = max(2^-66, x.x / D)^(-1/2),   y = f x
    dF/dx = f (dF/dy - y (y . dF/dy) / D),  without the second term at the floor

Sum of outputs by groups, for a softmax with several outputs per class: with logits z and the outputs o of
class s

    u_s = log sum_{o in s} exp(z_o),   so that  softmax(u)_s = sum_{o in s} softmax(z)_o
    dF/dz_o = exp(z_o - u_s) dF/du_s

computed from the differences to the class's first output, so that no sum is zero and a class with one output
has almost no cost.
"""

from __future__ import annotations

import torch
from torch import nn

FLOOR = 2.0**-66
MAX_LOG_RATIO = 80.0  # maximum log ratio of two outputs of a class: keeps their sum within float32


def _widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in a type that is precise enough for sums: at least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class _PNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group_size):
        y = _groups(x, group_size).square().sum(1).sqrt_()
        ctx.group_size = group_size
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        ratio = (grad / y).masked_fill_(y == 0, 0)
        return (_groups(x, ctx.group_size) * ratio.unsqueeze(1)).view_as(x), None


def _groups(x: torch.Tensor, size: int) -> torch.Tensor:
    """(N, size * M) as (N, size, M), including N = 0."""
    return x.view(len(x), size, x.shape[1] // size)


class PNorm(nn.Module):
    """Euclidean norms of groups: (N, group_size * M) to (N, M)."""

    def __init__(self, group_size: int):
        super().__init__()
        self.group_size = group_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Element j of a row is the norm of the row's elements j, j + M, ..."""
        return _PNormFunction.apply(x, self.group_size)


class _NormalizeFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        power = _widened(x).square().mean(1, keepdim=True)
        factor = power.clamp(min=FLOOR).rsqrt()
        y = x * factor.to(x.dtype)
        ctx.save_for_backward(y, factor, power)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, factor, power = ctx.saved_tensors
        along = (_widened(y) * grad).mean(1, keepdim=True).masked_fill_(power <= FLOOR, 0)
        return (_widened(grad) - y * along).mul_(factor).to(grad.dtype)


class Normalize(nn.Module):
    """Scales every row to root mean square 1: (N, D) to (N, D)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` with each row multiplied by one factor."""
        return _NormalizeFunction.apply(x)


class _SumGroupFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, extras):
        first, copies = z[:, : z.shape[1] - len(extras)], z[:, z.shape[1] - len(extras) :]
        ratios = (copies - first.index_select(1, extras)).clamp_(max=MAX_LOG_RATIO).exp_()
        sums = torch.ones_like(first).index_add_(1, extras, ratios)
        ctx.save_for_backward(ratios, sums, extras)
        return first + sums.log()

    @staticmethod
    def backward(ctx, grad):
        ratios, sums, extras = ctx.saved_tensors
        share = grad / sums
        return torch.cat([share, ratios * share.index_select(1, extras)], 1), None


class SumGroup(nn.Module):
    """Logits of outputs to logits of their classes: (N, num_classes + len(extras)) to (N, num_classes).

    extras  classes of the outputs from num_classes on, int64; output c < num_classes belongs to class c
    """

    def __init__(self, extras: torch.Tensor):
        super().__init__()
        self.register_buffer("extras", extras, persistent=False)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Log of the sum of exponentials over each class's outputs; at least float32."""
        return _SumGroupFunction.apply(_widened(z), self.extras)
