"""An affine layer that uses the products of `pyasr.tensor.products`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pyasr.tensor.products import affine, mm


class _PlainAffine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return affine(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, y):
        x, weight = ctx.saved_tensors
        x, rows = x.flatten(0, -2), y.flatten(0, -2)
        by_input = mm(rows, weight).view(*y.shape[:-1], -1) if ctx.needs_input_grad[0] else None
        by_weight = mm(rows.T, x) if ctx.needs_input_grad[1] else None
        return by_input, by_weight, rows.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None


class Linear(nn.Linear):
    """An `nn.Linear` that is faster in float32 on some processors."""

    def forward(self, x: Tensor) -> Tensor:
        """As in `nn.Linear`."""
        if x.dtype != torch.float32 or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        if x.dim() == 1:
            return self.forward(x[None])[0]
        return _PlainAffine.apply(x, self.weight, self.bias)
