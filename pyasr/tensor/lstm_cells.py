r"""The cells of one frame of an LSTM and their derivatives, for B directions of N sequences as a batch;
equations in `pyasr.nn.layers.lstm`.

    a       (B, N, 4 H)  arguments of the nonlinearities, then i, f, g, o; da: derivatives by the arguments
    before  (B, N, H)    c_{t-d}
    c       (B, N, H)    c_t; dc: derivatives
    m       (B, N, H)    m_t; dm: derivatives
    peepholes  (B, 3, H) p_i, p_f, p_o, or None; a clip or limit of 0 disables it

`a`, `m` and their derivatives have the type of the data, cells at least float32, and all computations are in
the type of the cells. The functions write to tensors of the caller. `cells_for` returns the module for a
device: this one, or `pyasr.tensor.lstm_triton`, where each function is one kernel.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

import torch
from torch import Tensor

from pyasr.tensor import lstm_kernels

_FUSED_TYPES = torch.float32, torch.bfloat16, torch.float16


def cells_for(a: Tensor) -> ModuleType:
    """The module that computes on the device of `a` and in its type. Triton accepts plain tensors only, not
    subclasses."""
    is_fused = type(a) is Tensor and a.is_cuda and a.dtype in _FUSED_TYPES and has_triton()
    return importlib.import_module("pyasr.tensor." + ("lstm_triton" if is_fused else "lstm_cells"))


@functools.cache
def has_triton() -> bool:
    """Whether there is a GPU, and Triton, which is part of torch for CUDA, to compile for it."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def step(a: Tensor, before: Tensor, c: Tensor, m: Tensor, peepholes: Tensor | None, clip: float) -> None:
    """(1) to (3): `a` becomes i, f, g, o; `c` and `m` are filled."""
    gates = a.to(c.dtype)
    i, f, g, o = gates.chunk(4, -1)
    if peepholes is not None:
        i.addcmul_(before, peepholes[:, :1])
        f.addcmul_(before, peepholes[:, 1:2])
    gates[..., : 2 * i.shape[-1]].sigmoid_()
    g.tanh_()
    torch.mul(f, before, out=c).addcmul_(i, g)
    if clip:
        c.clamp_(-clip, clip)
    if peepholes is not None:
        o.addcmul_(c, peepholes[:, 2:])
    m.copy_(torch.tanh(c).mul_(o.sigmoid_()))
    if gates is not a:
        a.copy_(gates)


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
    """From the derivatives by m_t, and by c_t through later frames: fill `da`, and change `dc` to the
    derivative by c_{t-d}.

    limit  G of (5), for the derivative by c_t
    """
    gates, slopes = a.to(c.dtype), da if da.dtype == c.dtype else torch.empty_like(da, dtype=c.dtype)
    if gates.dtype == torch.float32 and gates.device.type == "cpu":
        _step_back_on_cpu(dm, dc, gates, before, c, slopes, peepholes, clip, limit)
    else:
        _step_back(dm, dc, gates, before, c, slopes, peepholes, clip, limit)
    if slopes is not da:
        da.copy_(slopes)


def _step_back_on_cpu(dm, dc, a, before, c, da, peepholes, clip, limit) -> None:
    factors = c.new_empty(len(c), 0, c.shape[-1]) if peepholes is None else peepholes.to(c.dtype)
    arrays = (x.numpy() for x in (dm.to(c.dtype), dc, a, before, c, da, factors))
    lstm_kernels.backwards(*arrays, clip, limit)


def _step_back(dm, dc, a, before, c, da, peepholes, clip, limit) -> None:
    i, f, g, o = a.chunk(4, -1)
    tanh_c = torch.tanh(c)
    di, df, dg, do = da.chunk(4, -1)
    torch.mul(dm, tanh_c, out=do).mul_(o * (1 - o))
    dc.addcmul_(dm * o, 1 - tanh_c * tanh_c)
    if peepholes is not None:
        dc.addcmul_(do, peepholes[:, 2:])
    if limit:
        bound(dc, limit)
    if clip:
        dc.masked_fill_(c.abs() >= clip, 0)
    torch.mul(dc, g, out=di).mul_(i * (1 - i))
    torch.mul(dc, before, out=df).mul_(f * (1 - f))
    torch.mul(dc, i, out=dg).mul_(1 - g * g)
    dc.mul_(f)
    if peepholes is not None:
        dc.addcmul_(di, peepholes[:, :1]).addcmul_(df, peepholes[:, 1:2])


def bound(x: Tensor, greatest: float) -> None:
    """(5): scale rows with a norm above `greatest` to this norm."""
    norms = torch.linalg.vector_norm(
        x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32)
    )
    x.mul_((greatest / norms).clamp_(max=1.0))


def add_bounded(total: Tensor, x: Tensor, greatest: float) -> None:
    """total += x, with the rows of x bounded as in `bound`."""
    bound(x, greatest)
    total.add_(x)
