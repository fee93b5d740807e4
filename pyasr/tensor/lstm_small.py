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

_MAX_CELLS = 128  # W_r, 256 kB, is still in the cache of a core at the next frame
_MAX_WORK = 1 << 20  # multiplications of a product; larger ones are faster in a library
_BLOCK = 4


def takes(x: Tensor, num_cells: int, num_sequences: int) -> bool:
    """Whether these functions are the faster ones for layers of this size, for data of the device and type of
    `x`."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and num_cells <= _MAX_CELLS
        and num_cells % _BLOCK == 0
        and 4 * num_cells * num_cells * num_sequences <= _MAX_WORK
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
    *,
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
    # the kernel for a frame expects layers as the first dimension of all its arguments
    dc, factors = dc[:, None], _factors(a, peepholes)[:, None]
    tensors = dr, dc, dy, dcells, a, cells, da, weights, factors
    for by_r, by_c, *layer in zip(*_arrays(*tensors), strict=True):
        _backward((by_r, by_c), *layer, (clip, limit))


def _factors(a: Tensor, peepholes: Tensor | None) -> Tensor:
    """(B, 3, H), or (B, 0, H) without peepholes."""
    return a.new_empty(len(a), 0, a.shape[-1] // 4) if peepholes is None else peepholes


def _arrays(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


@njit(error_model="numpy", fastmath={"contract"})
def _add_product(total, x, w):
    """total (N, J) += x (N, K) w (K, J), for K a multiple of 4: a pass over a row of `total` adds four rows
    of w."""
    num_rows, num_columns = total.shape
    for k in range(0, w.shape[0], _BLOCK):
        w0, w1, w2, w3 = w[k], w[k + 1], w[k + 2], w[k + 3]
        for n in range(num_rows):
            row, x0, x1, x2, x3 = total[n], x[n, k], x[n, k + 1], x[n, k + 2], x[n, k + 3]
            for j in range(num_columns):
                row[j] += x0 * w0[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j]


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
                    row[size + h] += before[h] * peepholes[1, h]
            _to_sigma(row[: 2 * size])
            _to_tanh(row[2 * size : 3 * size])
            for h in range(size):
                c[h] = row[size + h] * before[h] + row[h] * row[2 * size + h]
            if limit > 0:
                for h in range(size):
                    c[h] = -limit if c[h] < -limit else limit if c[h] > limit else c[h]
            if sees_cells:
                for h in range(size):
                    row[3 * size + h] += c[h] * peepholes[2, h]
            _to_sigma(row[3 * size :])
            for h in range(size):
                m[h] = c[h]
            _to_tanh(m)
            for h in range(size):
                m[h] *= row[3 * size + h]


@njit(error_model="numpy", fastmath={"contract"})
def _add(total, x):
    """total += x, for matrices of the same shape."""
    for n in range(x.shape[0]):
        for h in range(x.shape[1]):
            total[n, h] += x[n, h]


@njit(error_model="numpy", fastmath={"contract"})
def _to_sigma(x):
    """Replace the elements of a vector by their sigmoids."""
    for h in range(len(x)):
        x[h] = _sigma(x[h])


@njit(error_model="numpy", fastmath={"contract"})
def _to_tanh(x):
    """Replace the elements of a vector by their hyperbolic tangents."""
    for h in range(len(x)):
        x[h] = _tanh(x[h])


@njit(error_model="numpy")
def _clear(x):
    """Set a matrix to 0."""
    for n in range(x.shape[0]):
        for h in range(x.shape[1]):
            x[n, h] = 0


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _backward(by_state, dy, dcells, a, cells, da, weights, peepholes, limits):
    """One layer; by_state are dr and dc, limits C and G, weights W_r (4 H, H); dc and peepholes have the
    dimension B = 1."""
    dr, dc = by_state
    clip, gradient_clip = limits
    for t in range(len(a) - 1, -1, -1):
        now, following = slice(t, t + 1), slice(t + 1, t + 2)
        if len(dcells):
            _add(dc[0], dcells[t])
        backwards(dy[now], dc, a[now], cells[now], cells[following], da[now], peepholes, clip, gradient_clip)
        _clear(dr)
        _add_product(dr, da[t], weights)
        if gradient_clip > 0:
            for n in range(len(dr)):
                _bound(dr[n], gradient_clip)
        if t > 0:
            _add(dy[t - 1], dr)
