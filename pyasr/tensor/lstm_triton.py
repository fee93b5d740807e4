r"""The functions of `pyasr.tensor.lstm_cells` for a GPU, each as one Triton kernel that computes in float32.

A program computes the cells of one sequence and direction, so that norms of rows need no second kernel.
Tensors (B, N, D) may be frames of longer ones: rows are contiguous; the strides of rows and directions are
arguments. The host never waits for the GPU, so a loop over frames can be captured as a CUDA graph after a
first run has compiled the kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


def step(a: Tensor, before: Tensor, c: Tensor, m: Tensor, peepholes: Tensor | None, clip: float) -> None:
    """See `lstm_cells`."""
    num_directions, num_sequences, num_cells = c.shape
    factors = c if peepholes is None else peepholes
    _step[(num_directions * num_sequences,)](
        a, before, c, m, factors, num_sequences, num_cells, a.stride(0), before.stride(0), c.stride(0),
        m.stride(0), m.stride(1), clip, peepholes is not None, clip > 0, **_size(num_cells))  # fmt: skip


def step_back(
    dm: Tensor,
    dc: Tensor,
    a: Tensor,
    before: Tensor,
    c: Tensor,
    da: Tensor,
    peepholes: Tensor | None,
    clip: float,
    limit: float,
) -> None:
    """See `lstm_cells`."""
    num_directions, num_sequences, num_cells = c.shape
    factors = c if peepholes is None else peepholes
    _step_back[(num_directions * num_sequences,)](
        dm, dc, a, before, c, da, factors, num_sequences, num_cells, dm.stride(0), dm.stride(1), dc.stride(0),
        a.stride(0), before.stride(0), c.stride(0), da.stride(0), clip, limit,
        peepholes is not None, clip > 0, limit > 0, **_size(num_cells))  # fmt: skip


def bound(x: Tensor, greatest: float) -> None:
    """See `lstm_cells`."""
    _launch_bound(x, x, greatest, False)


def add_bounded(total: Tensor, x: Tensor, greatest: float) -> None:
    """See `lstm_cells`; x does not change."""
    _launch_bound(total, x, greatest, True)


def _launch_bound(total: Tensor, x: Tensor, greatest: float, adds: bool) -> None:
    num_directions, num_sequences, dim = x.shape
    _bound[(num_directions * num_sequences,)](
        total,
        x,
        num_sequences,
        dim,
        total.stride(0),
        total.stride(1),
        x.stride(0),
        x.stride(1),
        greatest,
        adds,
        **_size(dim),
    )


def _size(dim: int) -> dict[str, int]:
    """The smallest power of 2 that holds a row, and its number of warps: four elements per thread, within the
    limits of a program."""
    block = triton.next_power_of_2(dim)
    return {"BLOCK": block, "num_warps": min(max(block // 128, 1), 8)}


@triton.jit
def _sigma(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 * _sigma(2.0 * x) - 1.0


@triton.jit
def _factor(x, greatest):
    """The factor that bounds the norm of x by `greatest`; the square has the range of float64."""
    wide = x.to(tl.float64)
    return (greatest / tl.maximum(tl.sqrt(tl.sum(wide * wide, 0)), greatest)).to(tl.float32)


@triton.jit
def _step(a, before, c, m, peepholes, num_sequences, num_cells, of_a, of_before, of_c, of_m, row_of_m, clip,
          sees_cells: tl.constexpr, is_clipped: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    b, n, h = tl.program_id(0) // num_sequences, tl.program_id(0) % num_sequences, tl.arange(0, BLOCK)
    is_cell = h < num_cells
    row = a + b * of_a + n * 4 * num_cells + h
    i = tl.load(row, is_cell, 0.0).to(tl.float32)
    f = tl.load(row + num_cells, is_cell, 0.0).to(tl.float32)
    g = _tanh(tl.load(row + 2 * num_cells, is_cell, 0.0).to(tl.float32))
    o = tl.load(row + 3 * num_cells, is_cell, 0.0).to(tl.float32)
    cell = tl.load(before + b * of_before + n * num_cells + h, is_cell, 0.0)
    factors = peepholes + 3 * b * num_cells + h
    if sees_cells:
        i += tl.load(factors, is_cell, 0.0).to(tl.float32) * cell
        f += tl.load(factors + num_cells, is_cell, 0.0).to(tl.float32) * cell
    i, f = _sigma(i), _sigma(f)
    new = f * cell + i * g
    if is_clipped:
        new = tl.where(new > clip, clip, tl.where(new < -clip, -clip, new))
    if sees_cells:
        o += tl.load(factors + 2 * num_cells, is_cell, 0.0).to(tl.float32) * new
    o = _sigma(o)
    tl.store(row, i.to(a.dtype.element_ty), is_cell)
    tl.store(row + num_cells, f.to(a.dtype.element_ty), is_cell)
    tl.store(row + 2 * num_cells, g.to(a.dtype.element_ty), is_cell)
    tl.store(row + 3 * num_cells, o.to(a.dtype.element_ty), is_cell)
    tl.store(c + b * of_c + n * num_cells + h, new, is_cell)
    tl.store(m + b * of_m + n * row_of_m + h, (o * _tanh(new)).to(m.dtype.element_ty), is_cell)


@triton.jit
def _step_back(dm, dc, a, before, c, da, peepholes, num_sequences, num_cells, of_dm, row_of_dm, of_dc, of_a,
               of_before, of_c, of_da, clip, limit, sees_cells: tl.constexpr, is_clipped: tl.constexpr,
               is_limited: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    b, n, h = tl.program_id(0) // num_sequences, tl.program_id(0) % num_sequences, tl.arange(0, BLOCK)
    is_cell = h < num_cells
    row = a + b * of_a + n * 4 * num_cells + h
    i = tl.load(row, is_cell, 0.0).to(tl.float32)
    f = tl.load(row + num_cells, is_cell, 0.0).to(tl.float32)
    g = tl.load(row + 2 * num_cells, is_cell, 0.0).to(tl.float32)
    o = tl.load(row + 3 * num_cells, is_cell, 0.0).to(tl.float32)
    cell = tl.load(before + b * of_before + n * num_cells + h, is_cell, 0.0)
    factors = peepholes + 3 * b * num_cells + h
    new = tl.load(c + b * of_c + n * num_cells + h, is_cell, 0.0)
    by_m = tl.load(dm + b * of_dm + n * row_of_dm + h, is_cell, 0.0).to(tl.float32)
    carried = dc + b * of_dc + n * num_cells + h
    tanh_c = _tanh(new)
    do = by_m * tanh_c * o * (1.0 - o)
    by_c = tl.load(carried, is_cell, 0.0) + by_m * o * (1.0 - tanh_c * tanh_c)
    if sees_cells:
        by_c += do * tl.load(factors + 2 * num_cells, is_cell, 0.0).to(tl.float32)
    if is_limited:
        by_c *= _factor(by_c, limit)
    if is_clipped:
        by_c = tl.where(tl.abs(new) >= clip, 0.0, by_c)
    di, df, dg = by_c * g * i * (1.0 - i), by_c * cell * f * (1.0 - f), by_c * i * (1.0 - g * g)
    by_c *= f
    if sees_cells:
        by_c += di * tl.load(factors, is_cell, 0.0).to(tl.float32) + df * tl.load(
            factors + num_cells, is_cell, 0.0
        ).to(tl.float32)
    slopes = da + b * of_da + n * 4 * num_cells + h
    tl.store(slopes, di.to(da.dtype.element_ty), is_cell)
    tl.store(slopes + num_cells, df.to(da.dtype.element_ty), is_cell)
    tl.store(slopes + 2 * num_cells, dg.to(da.dtype.element_ty), is_cell)
    tl.store(slopes + 3 * num_cells, do.to(da.dtype.element_ty), is_cell)
    tl.store(carried, by_c, is_cell)


@triton.jit
def _bound(
    total,
    x,
    num_sequences,
    dim,
    of_total,
    row_of_total,
    of_x,
    row_of_x,
    greatest,
    adds: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, n, d = tl.program_id(0) // num_sequences, tl.program_id(0) % num_sequences, tl.arange(0, BLOCK)
    is_element = d < dim
    row = tl.load(x + b * of_x + n * row_of_x + d, is_element, 0.0).to(tl.float32)
    row *= _factor(row, greatest)
    into = total + b * of_total + n * row_of_total + d
    if adds:
        row += tl.load(into, is_element, 0.0).to(tl.float32)
    tl.store(into, row.to(total.dtype.element_ty), is_element)
