"""Parts of a training step that read a matrix once: in plain torch, and on a GPU by the equivalent kernels of
`step_triton`.

All write into given tensors and never wait for the device, so they can be part of a CUDA graph. They have no
derivatives.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor


@functools.cache
def _triton() -> ModuleType | None:
    """The kernels for GPUs; None without Triton, which is part of torch for CUDA."""
    try:
        from pyasr.tensor import step_triton
    except ImportError:
        return None
    return step_triton


def has_kernels(x: Tensor) -> bool:
    """Whether each of these functions is one or two kernels on the device of `x`."""
    return _kernels(x) is not None


def _kernels(x: Tensor) -> ModuleType | None:
    """The kernels for `x`. Triton accepts plain tensors only, not subclasses."""
    is_taken = type(x) is Tensor and x.device.type == "cuda" and x.dtype in (torch.bfloat16, torch.float32)
    return _triton() if is_taken else None


def cross_entropy_(z: Tensor, targets: Tensor, num_classes: int, losses: Tensor, correct: Tensor) -> None:
    """Replace logits (N, width) by the derivatives of the summed loss. Columns from `num_classes` on are
    padding: they become 0.

    targets  int64 (N,); a frame with a negative target has no loss and zero derivatives
    losses   filled, float32 or float64 (N,): -log p of the target
    correct  filled, of the same type: 1 if the largest logit is the target's
    """
    if kernels := _kernels(z):
        kernels.cross_entropy_(z, targets, num_classes, losses, correct)
        return
    known = targets >= 0
    wide = z[:, :num_classes].to(losses.dtype)
    logs, places = torch.log_softmax(wide, 1), targets.clamp(min=0)[:, None]
    losses.copy_(torch.where(known, -logs.gather(1, places)[:, 0], 0))
    correct.copy_((wide.argmax(1) == targets) & known)
    derivatives = logs.exp_().scatter_add_(1, places, torch.full_like(places, -1, dtype=logs.dtype))
    z[:, :num_classes] = derivatives.mul_(known[:, None])
    z[:, num_classes:] = 0


def residual(x: Tensor, ht: Tensor, w: Tensor, xhat: Tensor) -> Tensor:
    """Xhat = X - H W for batches. Returns partial sums of the squares of X and of Xhat, float32 or float64
    (2, B, parts).

    x     (B, N, D)
    ht    H' (B, R, N)
    w     (B, R, D)
    xhat  filled (B, N, D)
    """
    if kernels := _kernels(x):
        return kernels.residual(x, ht, w, xhat)
    torch.baddbmm(x, ht.mT, w, alpha=-1, out=xhat)
    dtype = torch.promote_types(x.dtype, torch.float32)
    return torch.stack([torch.linalg.vector_norm(rows, dim=2, dtype=dtype).square_() for rows in (x, xhat)])


@dataclass(frozen=True)
class Verdict:
    """The results of a step, on the device.

    traces            tr(X X') of the sides of each group, float32 or float64
    factors           factor on the gradient of each component, of the same type (components,); 0 if the
                      minibatch is skipped
    counts            float64 (3,): loss, correct frames, frames; zeros if one is not finite
    nonfinite_counts  int64 (components + 2,), see `pyasr.train.sgd.nonfinite_guard`
    """

    traces: list[Tensor]
    factors: Tensor
    counts: Tensor
    nonfinite_counts: Tensor


def judge(
    verdict: Verdict,
    losses: Tensor,
    correct: Tensor,
    squares: list[Tensor],
    columns: list[Tensor],
    biases: list[Tensor],
    rate: Tensor,
    number: Tensor,
) -> None:
    """Fill a verdict. The factor of a component is -a g. Natural gradient has g = g_in g_out,
    g^2 = tr(X X') / tr(Xhat Xhat') of a side.

    The minibatch is skipped unless these traces and the gradients of all biases are finite. By the
    Cauchy-Schwarz inequality, no element of a gradient then exceeds the root of the product of two finite
    traces.

    losses, correct  loss and correctness of each row
    squares          results of `residual` for four groups of sides: inputs of the first component, inputs of
                     the others, derivatives by the outputs of all components but the last, and of the last;
                     empty without natural gradient
    columns          the preconditioned columns of ones of the first two groups, (B, 1, N)
    biases           gradients of the biases
    rate, number     a, and the number of the step
    """
    if kernels := _kernels(biases[0]):
        kernels.judge(verdict, losses, correct, squares, columns, biases, rate, number)
        return
    scales, finite = 1.0, torch.stack([bias.sum() for bias in biases]).isfinite()
    if squares:
        sums = [_with_ones(parts.sum(2), column) for parts, column in zip(squares, [*columns, None, None])]
        for trace, (before, _) in zip(verdict.traces, sums):
            trace.copy_(before)
        ratios = [torch.where(before == 0, 1.0, (before / after).sqrt()) for before, after in sums]
        scales = torch.cat(ratios[:2]) * torch.cat(ratios[2:])
        finite &= scales.isfinite() & (scales > 0)
    sums = torch.stack(
        [
            losses.sum(dtype=torch.float64),
            correct.sum(dtype=torch.float64),
            torch.full_like(rate, len(losses)).double(),
        ]
    )
    verdict.counts.copy_(torch.where(sums.isfinite().all(), sums, 0.0))
    verdict.factors.copy_(torch.where(finite.all(), -rate * scales, 0.0))
    verdict.nonfinite_counts[:-1] += torch.cat([~finite, ~finite.all()[None]])
    verdict.nonfinite_counts[-1] = torch.where(finite.all(), verdict.nonfinite_counts[-1], number)


def _with_ones(sums: Tensor, column: Tensor | None) -> Tensor:
    """Squares (2, B) of X and Xhat, including the column of ones before and after preconditioning."""
    if column is None:
        return sums
    after = torch.linalg.vector_norm(column, dim=(1, 2), dtype=sums.dtype).square()
    return sums + torch.stack([torch.full_like(after, column.shape[2]), after])


def descend(master: Tensor, grad: Tensor, work: Tensor, factor: Tensor, relative: float = 1.0) -> None:
    """master += relative factor grad, unless factor is 0; work is set to master in its type. All tensors are
    flat; factor is a scalar."""
    if kernels := _kernels(grad):
        kernels.descend(master, grad, work, factor, relative)
        return
    moved = torch.addcmul(master, grad.to(master.dtype), (factor * relative).to(master.dtype))
    master.copy_(torch.where(factor == 0, master, moved))
    if work.data_ptr() != master.data_ptr():
        work.copy_(master)
