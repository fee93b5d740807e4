"""The functions of `step_kernels` as Triton kernels."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 2048  # flat parameters per program
_ROWS, _COLUMNS = 64, 128  # tile of a matrix per program
_CLASSES = 2048  # logits that a program processes at a time
_JUDGED_BLOCK = 4096  # numbers that `judge` processes at a time


@triton.jit
def _cross_entropy(z, targets, losses, correct, num_classes, width: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(targets + row)
    z += row.to(tl.int64) * width
    greatest, total, own, best = -float("inf"), 0.0, 0.0, 0
    for begin in range(0, width, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        logits = tl.load(z + columns, mask=columns < num_classes, other=-float("inf")).to(tl.float32)
        here = tl.max(logits, 0)
        best = tl.where(here > greatest, begin + tl.argmax(logits, 0), best)
        higher = tl.maximum(greatest, here)
        total = total * tl.exp(greatest - higher) + tl.sum(tl.exp(logits - higher), 0)
        greatest = higher
        own += tl.sum(tl.where(columns == target, logits, 0.0), 0)
    known = target >= 0
    tl.store(losses + row, tl.where(known, tl.log(total) + greatest - own, 0.0))
    tl.store(correct + row, tl.where(known & (best == target), 1.0, 0.0))
    for begin in range(0, width, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        logits = tl.load(z + columns, mask=columns < num_classes, other=-float("inf")).to(tl.float32)
        derivatives = tl.exp(logits - greatest) / total - tl.where(columns == target, 1.0, 0.0)
        derivatives = tl.where(known & (columns < num_classes), derivatives, 0.0)
        tl.store(z + columns, derivatives.to(z.dtype.element_ty), mask=columns < width)


@triton.jit
def _residual(
    x,
    ht,
    w,
    xhat,
    parts,
    num_rows,
    dim,
    rank,
    num_parts,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANK: tl.constexpr,
):
    tile, block, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = block * ROWS + tl.arange(0, ROWS)
    columns = tile * COLUMNS + tl.arange(0, COLUMNS)
    ranks = tl.arange(0, RANK)
    places = batch.to(tl.int64) * num_rows * dim + rows[:, None].to(tl.int64) * dim + columns[None, :]
    inside = (rows[:, None] < num_rows) & (columns[None, :] < dim)
    h = tl.load(
        ht + batch * rank * num_rows + ranks[None, :] * num_rows + rows[:, None],
        mask=(ranks[None, :] < rank) & (rows[:, None] < num_rows),
        other=0.0,
    )
    v = tl.load(
        w + batch * rank * dim + ranks[:, None] * dim + columns[None, :],
        mask=(ranks[:, None] < rank) & (columns[None, :] < dim),
        other=0.0,
    )
    own = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    left = (own - tl.dot(h, v, input_precision="ieee")).to(xhat.dtype.element_ty)
    tl.store(xhat + places, left, mask=inside)
    left = left.to(tl.float32)
    sums = parts + batch * num_parts + block * tl.num_programs(0) + tile
    tl.store(sums, tl.sum(tl.sum(own * own, 1), 0))
    tl.store(sums + tl.num_programs(2) * num_parts, tl.sum(tl.sum(left * left, 1), 0))


@triton.jit
def _sum(x, size: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, size, BLOCK):
        places = begin + tl.arange(0, BLOCK)
        total += tl.load(x + places, mask=places < size, other=0.0).to(tl.float32)
    return tl.sum(total, 0)


@triton.jit
def _squares(
    parts,
    num_parts: tl.constexpr,
    side,
    num: tl.constexpr,
    column,
    num_rows,
    trace,
    ONES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """g^2 of a side."""
    before = _sum(parts + side * num_parts, num_parts, BLOCK)
    after = _sum(parts + (num + side) * num_parts, num_parts, BLOCK)
    if ONES:
        rows = tl.arange(0, ROWS)
        hat = tl.load(column + side * num_rows + rows, mask=rows < num_rows, other=0.0).to(tl.float32)
        before, after = before + num_rows, after + tl.sum(hat * hat, 0)
    tl.store(trace + side, before)
    return tl.where(before == 0, 1.0, before / after)


@triton.jit
def _judge_layers(num_rows, first, num_first: tl.constexpr, inputs, num_inputs: tl.constexpr, hidden,
                  num_hidden: tl.constexpr, output, num_output: tl.constexpr, first_ones, ones, trace_first,
                  trace_inputs, trace_hidden, trace_output, grad, places, width: tl.constexpr,
                  num_outputs: tl.constexpr, rate, factors, finite, NATURAL: tl.constexpr,
                  LAYERS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    layer, square = tl.program_id(0), 1.0
    grad += tl.load(places + layer)
    if layer == LAYERS - 1:
        own = _sum(grad, num_outputs, BLOCK)
    else:
        own = _sum(grad, width, BLOCK)
    if NATURAL:
        if layer == 0:
            square *= _squares(first, num_first, 0, 1, first_ones, num_rows, trace_first, True, ROWS, BLOCK)
        else:
            square *= _squares(
                inputs, num_inputs, layer - 1, LAYERS - 1, ones, num_rows, trace_inputs, True, ROWS, BLOCK
            )
        if layer == LAYERS - 1:
            square *= _squares(output, num_output, 0, 1, ones, num_rows, trace_output, False, ROWS, BLOCK)
        else:
            square *= _squares(
                hidden, num_hidden, layer, LAYERS - 1, ones, num_rows, trace_hidden, False, ROWS, BLOCK
            )
    is_finite = (tl.abs(own) < float("inf")) & (square > 0) & (square < float("inf"))
    tl.store(factors + layer, -tl.load(rate) * tl.sqrt(square))
    tl.store(finite + layer, is_finite.to(tl.int32))


@triton.jit
def _judge(
    losses,
    correct,
    num_rows,
    number,
    factors,
    finite,
    counts,
    nonfinite_counts,
    LAYERS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
):
    layers = tl.arange(0, SIZE)
    inside = layers < LAYERS
    is_finite = tl.load(finite + layers, mask=inside, other=1)
    all_finite = tl.min(is_finite, 0)
    kept = tl.load(factors + layers, mask=inside, other=0.0)
    skipped = tl.load(nonfinite_counts + layers, mask=inside, other=0)
    tl.store(factors + layers, tl.where(all_finite != 0, kept, 0.0), mask=inside)
    tl.store(nonfinite_counts + layers, skipped + 1 - is_finite, mask=inside)
    if all_finite == 0:
        tl.store(nonfinite_counts + LAYERS, tl.load(nonfinite_counts + LAYERS) + 1)
        tl.store(nonfinite_counts + LAYERS + 1, tl.load(number))
    rows = tl.arange(0, ROWS)
    loss = tl.sum(tl.load(losses + rows, mask=rows < num_rows, other=0.0).to(tl.float64), 0)
    right = tl.sum(tl.load(correct + rows, mask=rows < num_rows, other=0.0).to(tl.float64), 0)
    is_number = tl.abs(loss) < float("inf")
    tl.store(counts, tl.where(is_number, loss, 0.0))
    tl.store(counts + 1, tl.where(is_number, right, 0.0))
    tl.store(counts + 2, tl.where(is_number, num_rows, 0).to(tl.float64))


@triton.jit
def _descend(master, grad, work, factor, relative, size, HAS_WORK: tl.constexpr, ELEMENTS: tl.constexpr):
    places = tl.program_id(0) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = places < size
    rate = tl.load(factor) * relative
    values = tl.load(master + places, mask=inside, eviction_policy="evict_first")
    values += rate * tl.load(grad + places, mask=inside, eviction_policy="evict_first").to(tl.float32)
    if rate != 0:
        tl.store(master + places, values, mask=inside, eviction_policy="evict_first")
        if HAS_WORK:
            tl.store(work + places, values.to(work.dtype.element_ty), mask=inside)


def cross_entropy_(z: Tensor, targets: Tensor, num_classes: int, losses: Tensor, correct: Tensor) -> None:
    """See `step_kernels`."""
    _cross_entropy[(len(z),)](
        z, targets, losses, correct, num_classes, z.shape[1], BLOCK=_CLASSES, num_warps=8
    )


def residual(x: Tensor, ht: Tensor, w: Tensor, xhat: Tensor) -> Tensor:
    """See `step_kernels`."""
    num, num_rows, dim = x.shape
    grid = triton.cdiv(dim, _COLUMNS), triton.cdiv(num_rows, _ROWS), num
    parts = torch.empty(2, num, grid[0] * grid[1], device=x.device)
    _residual[grid](
        x,
        ht,
        w,
        xhat,
        parts,
        num_rows,
        dim,
        w.shape[1],
        grid[0] * grid[1],
        ROWS=_ROWS,
        COLUMNS=_COLUMNS,
        RANK=max(16, triton.next_power_of_2(w.shape[1])),
        num_warps=8,
    )
    return parts


@functools.cache
def _places(addresses: tuple[int, ...], itemsize: int, device: torch.device) -> Tensor:
    """Offsets of tensors relative to the first one, in elements."""
    return torch.tensor([(address - addresses[0]) // itemsize for address in addresses], device=device)


def judge(
    verdict,
    losses: Tensor,
    correct: Tensor,
    squares: list[Tensor],
    columns: list[Tensor],
    biases: list[Tensor],
    rate: Tensor,
    number: Tensor,
) -> None:
    """See `step_kernels`."""
    grad = biases[0]
    places = _places(tuple(bias.data_ptr() for bias in biases), grad.itemsize, grad.device)
    parts = squares or [losses] * 4
    traces = verdict.traces or [losses] * 4
    finite = torch.empty(len(biases), dtype=torch.int32, device=grad.device)
    rows = triton.next_power_of_2(len(losses))
    _judge_layers[(len(biases),)](
        len(losses),
        *(item for part in parts for item in (part, part.shape[-1])),
        *columns,
        *traces,
        grad,
        places,
        len(grad),
        len(biases[-1]),
        rate,
        verdict.factors,
        finite,
        NATURAL=bool(squares),
        LAYERS=len(biases),
        ROWS=rows,
        BLOCK=_JUDGED_BLOCK,
        num_warps=8,
    )
    _judge[(1,)](
        losses,
        correct,
        len(losses),
        number,
        verdict.factors,
        finite,
        verdict.counts,
        verdict.nonfinite_counts,
        LAYERS=len(biases),
        SIZE=triton.next_power_of_2(len(biases)),
        ROWS=rows,
    )


def descend(master: Tensor, grad: Tensor, work: Tensor, factor: Tensor, relative: float = 1.0) -> None:
    """See `step_kernels`."""
    size = len(master)
    _descend[(triton.cdiv(size, _ELEMENTS),)](
        master,
        grad,
        work,
        factor,
        relative,
        size,
        HAS_WORK=work.data_ptr() != master.data_ptr(),
        ELEMENTS=_ELEMENTS,
        num_warps=4,
    )
