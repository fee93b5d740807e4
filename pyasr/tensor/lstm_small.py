r"""The loop over frames of small LSTMs on a CPU, where the cost of an operation of torch is greater than its
arithmetic: each direction of time is one call of a kernel. Equations in `pyasr.nn.layers.lstm`.

The tensors are those of B layers without projections, in float32:

    a          (B, T, N, 4 H)   W_x x_t + b, then i, f, g, o; da: derivatives by the arguments
    cells, y   (B, 1 + T, N, H) c_t and y_t, from the state before the first frame on; derivatives by them:
                                dcells, dy (B, T, N, H)
    weights    (B, 4 H, H)      W_r
    peepholes  (B, 3, H)        p_i, p_f, p_o, or None; a clip or limit of 0 disables it

The nonlinearities are those of `pyasr.tensor.lstm_kernels`: results differ from torch's by rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyasr.base.compiled.kernels import njit
from pyasr.tensor.lstm_kernels import _bound, _sigma, _tanh, backwards

_MOST_CELLS = 128  # W_r, 256 kB, is still in the cache of a core at the next frame
_MOST_WORK = 1 << 20  # multiplications of a product; larger ones are faster in a library
_BLOCK = 4


def takes(x: Tensor, num_cells: int, num_sequences: int) -> bool:
    """Whether these functions are the faster ones for layers of this size, for data of the device and type of
    `x`."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and num_cells <= _MOST_CELLS
        and num_cells % _BLOCK == 0
        and 4 * num_cells * num_cells * num_sequences <= _MOST_WORK
    )


def forward(
    a: Tensor, cells: Tensor, y: Tensor, weights: Tensor, peepholes: Tensor | None, clip: float
) -> None:
    """(1) to (3) of all frames: `a` becomes i, f, g, o; `cells` and `y` are filled."""
    factors = _factors(a, peepholes)
    for layer in zip(*_arrays(a, cells, y, weights.mT.contiguous(), factors), strict=True):
        _forward(*layer, clip)


def backward(
    dy: Tensor,
    dcells: Tensor | None,
    dc: Tensor,
    a: Tensor,
    cells: Tensor,
    da: Tensor,
    dr: Tensor,
    weights: Tensor,
    peepholes: Tensor | None,
    clip: float,
    limit: float,
) -> None:
    """From the derivatives by y_t through the layer above: fill `da`, add those through later frames to `dy`,
    and change `dc`, `dr` (B, N, H) to the derivatives by the state before the first frame.

    dcells  derivatives by c_t through other frames; None: 0
    dc      zeros
    limit   G of (5)
    """
    dcells = dy.new_empty(len(dy), 0, *dy.shape[2:]) if dcells is None else dcells
    tensors = dy, dcells, dc, a, cells, da, dr, weights, _factors(a, peepholes)
    for layer in zip(*_arrays(*tensors), strict=True):
        _backward(*layer, clip, limit)


def _factors(a: Tensor, peepholes: Tensor | None) -> Tensor:
    """(B, 3, H), or (B, 0, H) without peepholes."""
    return a.new_empty(len(a), 0, a.shape[-1] // 4) if peepholes is None else peepholes


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


@njit(inline="always", error_model="numpy")
def _add_product(total, x, w):
    """total (N, J) += x (N, K) w (K, J), for K a multiple of 4. A pass over two rows of `total` adds four
    rows of w."""
    num_rows, num_columns = total.shape
    for k in range(0, len(w), _BLOCK):
        w0, w1, w2, w3 = w[k], w[k + 1], w[k + 2], w[k + 3]
        for n in range(0, num_rows - 1, 2):
            one, other = total[n], total[n + 1]
            a0, a1, a2, a3 = x[n, k], x[n, k + 1], x[n, k + 2], x[n, k + 3]
            b0, b1, b2, b3 = x[n + 1, k], x[n + 1, k + 1], x[n + 1, k + 2], x[n + 1, k + 3]
            for j in range(num_columns):
                one[j] += a0 * w0[j] + a1 * w1[j] + a2 * w2[j] + a3 * w3[j]
                other[j] += b0 * w0[j] + b1 * w1[j] + b2 * w2[j] + b3 * w3[j]
        if num_rows % 2:
            n = num_rows - 1
            last = total[n]
            a0, a1, a2, a3 = x[n, k], x[n, k + 1], x[n, k + 2], x[n, k + 3]
            for j in range(num_columns):
                last[j] += a0 * w0[j] + a1 * w1[j] + a2 * w2[j] + a3 * w3[j]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _forward(a, cells, y, weights, peepholes, clip):
    """One layer; weights are W_r' (H, 4 H)."""
    num_frames, num_sequences, _ = a.shape
    size, sees_cells, limit = cells.shape[2], len(peepholes) > 0, np.float32(clip)
    for t in range(num_frames):
        _add_product(a[t], y[t], weights)
        for n in range(num_sequences):
            row, before, c, m = a[t, n], cells[t, n], cells[t + 1, n], y[t + 1, n]
            if sees_cells:
                for h in range(size):
                    row[h] += before[h] * peepholes[0, h]
                for h in range(size):
                    row[size + h] += before[h] * peepholes[1, h]
            for h in range(2 * size):
                row[h] = _sigma(row[h])
            for h in range(2 * size, 3 * size):
                row[h] = _tanh(row[h])
            for h in range(size):
                c[h] = row[size + h] * before[h] + row[h] * row[2 * size + h]
            if limit > 0:
                for h in range(size):
                    c[h] = -limit if c[h] < -limit else limit if c[h] > limit else c[h]
            if sees_cells:
                for h in range(size):
                    row[3 * size + h] += c[h] * peepholes[2, h]
            for h in range(3 * size, 4 * size):
                row[h] = _sigma(row[h])
            for h in range(size):
                m[h] = row[3 * size + h] * _tanh(c[h])


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _backward(dy, dcells, dc, a, cells, da, dr, weights, peepholes, clip, gradient_clip):
    """One layer; weights are W_r (4 H, H)."""
    num_sequences, size = dr.shape
    factors = peepholes.reshape((1, len(peepholes), size))
    for t in range(len(a) - 1, -1, -1):
        if len(dcells):
            dc += dcells[t]
        backwards(
            dy[t : t + 1],
            dc.reshape((1, num_sequences, size)),
            a[t : t + 1],
            cells[t : t + 1],
            cells[t + 1 : t + 2],
            da[t : t + 1],
            factors,
            clip,
            gradient_clip,
        )
        dr[:] = 0
        _add_product(dr, da[t], weights)
        if gradient_clip > 0:
            for n in range(num_sequences):
                _bound(dr[n], gradient_clip)
        if t > 0:
            dy[t - 1] += dr
