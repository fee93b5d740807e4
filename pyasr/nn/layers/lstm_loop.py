r"""The loop over time of LSTM layers, and its derivatives, for a batch of B layers of the same shape;
equations in `pyasr.nn.layers.lstm`.

Tensors of all frames are allocated once, with the shape (B, T, N, D), so that the frames of one layer are
contiguous. In both passes, each frame takes one product for all layers (two with a projection) and the
computation of the cells (`pyasr.tensor.lstm_cells`), which is one kernel on a GPU with Triton. The host never
waits for the GPU, and all shapes follow from the arguments. Both passes can therefore be captured as a CUDA
graph. On a CPU, one kernel computes all frames of small layers (`pyasr.tensor.lstm_small`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.preconditioned_layers import FactorsPreconditioner, own_gradients
from pyasr.tensor import lstm_small
from pyasr.tensor.lstm_cells import cells_for
from pyasr.tensor.products import add_bmm, bmm_into


class LoopedLayer(Protocol):
    """A layer of the loop. `pyasr.nn.layers.lstm.Lstm` describes its attributes."""

    cell_dim: int
    recurrent_dim: int
    output_dim: int
    cell_clip: float
    gradient_clip: float
    recurrent: Linear
    projection: Linear | None
    peepholes: Tensor | None
    preconditioner: FactorsPreconditioner | None


def weights_of(lstm: LoopedLayer) -> tuple[Tensor | None, ...]:
    """The weights that the loop needs: W_r, W_p, b_p, p; None for those that the layer does not have."""
    projection = (None, None) if lstm.projection is None else (lstm.projection.weight, lstm.projection.bias)
    return lstm.recurrent.weight, *projection, lstm.peepholes


class Recurrence(torch.autograd.Function):
    """The loop as a function of autograd.

    Inputs: B layers; r and c before the first frame (B, N, ·); then W_x x_t + b (T, N, 4 H) of each layer;
    then `weights_of` each layer. Outputs: y (T, N, ·) of each layer, c of each layer, and i, f, g, o of each
    layer, which have no derivatives.
    """

    @staticmethod
    def forward(ctx, layers, r, c, *tensors):
        """(1) to (4) for all frames."""
        layer, num = layers[0], len(layers)
        by_recurrent, by_cells, bias, peepholes = (
            _stacked(tensors[num + number :: 4]) for number in range(4)
        )
        a = torch.stack(tensors[:num])
        cells, y = _begun(c, a.shape[1], layer.cell_dim), _begun(r, a.shape[1], layer.output_dim)
        m = y[:, 1:] if by_cells is None else a.new_empty(*a.shape[:3], layer.cell_dim)
        if bias is not None:
            y[:, 1:] = bias[:, None, None]
        if by_cells is None and lstm_small.takes(a, layer.cell_dim, a.shape[2]):
            lstm_small.forward(a, cells, y, by_recurrent, peepholes, layer.cell_clip)
        else:
            _step_by_frame(layer, a, cells, y, m, by_recurrent, by_cells, bias, peepholes)
        ctx.layers = layers
        gates = [part.view_as(part) for part in a]
        ctx.mark_non_differentiable(*gates)
        ctx.save_for_backward(a, cells, m, y, by_recurrent, by_cells, peepholes)
        ctx.set_materialize_grads(False)
        return *(part[1:] for part in y), *(part[1:] for part in cells), *gates

    @staticmethod
    @once_differentiable
    def backward(ctx, *derivatives):
        """Derivatives from the last frame to the first, then the gradients of the weights."""
        a, cells, m, y, by_recurrent, by_cells, peepholes = ctx.saved_tensors
        num, layer = len(ctx.layers), ctx.layers[0]
        dy = _together(derivatives[:num], y[:, 1:])
        dcells = _together(derivatives[num : 2 * num], cells[:, 1:], is_optional=True)
        da = torch.empty_like(a)
        dc = torch.zeros_like(cells[:, 0])
        dr = torch.zeros_like(y[:, 0, :, : layer.recurrent_dim])
        if by_cells is None and lstm_small.takes(a, layer.cell_dim, a.shape[2]):
            limits = {"clip": layer.cell_clip, "limit": layer.gradient_clip}
            lstm_small.backward(dy, dcells, dc, a, cells, da, dr, by_recurrent, peepholes, **limits)
        else:
            feed_back = _FeedBack(layer, by_recurrent, dr, ctx.needs_input_grad[1])
            _step_back_by_frame(
                feed_back, dy, dcells, dc, a, cells, da, by_cells, layer=layer, peepholes=peepholes
            )
        parameters = (
            _gradients(lstm, *parts, cells_) for lstm, *parts, cells_ in zip(ctx.layers, y, m, da, dy, cells)
        )
        return None, dr, dc, *da, *(gradient for of_layer in parameters for gradient in of_layer)


def _step_by_frame(layer, a, cells, y, m, by_recurrent, by_cells, bias, peepholes) -> None:
    """(1) to (4) of all frames, with operations of torch."""
    dim = layer.recurrent_dim
    project, step = bmm_into if bias is None else add_bmm, cells_for(a).step
    frames = zip(
        a.unbind(1),
        m.unbind(1),
        y[..., :dim].unbind(1),
        y[:, 1:].unbind(1),
        cells.unbind(1),
        cells[:, 1:].unbind(1),
    )
    for gates, m_t, before, y_t, cells_before, cells_t in frames:
        add_bmm(gates, before, by_recurrent.mT)
        step(gates, cells_before, cells_t, m_t, peepholes, layer.cell_clip)
        if by_cells is not None:
            project(y_t, m_t, by_cells.mT)


def _step_back_by_frame(feed_back, dy, dcells, dc, a, cells, da, by_cells, *, layer, peepholes) -> None:
    """Derivatives from the last frame to the first, with operations of torch."""
    by_y = None if by_cells is None else torch.empty_like(cells[:, 0], dtype=a.dtype)
    back = cells_for(a).step_back
    dys = dy.unbind(1)
    das = da.unbind(1)
    gates = a.unbind(1)
    frames = cells[:, 1:].unbind(1)
    before = cells.unbind(1)
    for t in reversed(range(len(dys))):
        feed_back.bound(dys[t])
        if dcells is not None:
            dc.add_(dcells[:, t])
        if by_y is not None:
            bmm_into(by_y, dys[t], by_cells)
        dm = dys[t] if by_y is None else by_y
        back(dm, dc, gates[t], before[t], frames[t], das[t], peepholes, layer.cell_clip, layer.gradient_clip)
        feed_back(das[t], dys[t - 1] if t else None)


class _FeedBack:
    """Derivatives with respect to r_t through the next frame, with their limits (5).

    dr           (B, N, recurrent_dim): receives the derivatives with respect to the state before the first
                 frame
    is_to_state  whether these derivatives are needed
    """

    def __init__(self, layer: LoopedLayer, by_recurrent: Tensor, dr: Tensor, is_to_state: bool):
        self._is_to_state = is_to_state
        self._dim = layer.recurrent_dim
        self._limit = layer.gradient_clip
        self._by_recurrent = by_recurrent
        self._dr = dr
        self._is_all_fed_back = layer.projection is not None and layer.output_dim == layer.recurrent_dim
        self._cells = cells_for(dr)

    def bound(self, dy: Tensor) -> None:
        """Bound the derivative with respect to y_t if all of y_t is fed back."""
        if self._limit and self._is_all_fed_back:
            self._cells.bound(dy, self._limit)

    def __call__(self, da: Tensor, dy: Tensor | None) -> None:
        """Add the derivatives caused by `da` to `dy` of the previous frame. If `dy` is None, write them to
        `dr`."""
        is_bounded = self._limit and not self._is_all_fed_back
        if dy is not None and not is_bounded:
            add_bmm(dy[..., : self._dim], da, self._by_recurrent)
            return
        if dy is None and not self._is_to_state:
            return
        bmm_into(self._dr, da, self._by_recurrent)
        if dy is not None:
            self._cells.add_bounded(dy[..., : self._dim], self._dr, self._limit)
        elif is_bounded:
            self._cells.bound(self._dr, self._limit)


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The parts as one tensor (B, ...). A single part is not copied."""
    if parts[0] is None:
        return None
    return parts[0][None] if len(parts) == 1 else torch.stack(parts)


def _begun(state: Tensor, num_frames: int, dim: int) -> Tensor:
    """Memory for frames (B, 1 + T, N, dim); the first frame is `state` (B, N, ·)."""
    frames = state.new_empty(len(state), 1 + num_frames, state.shape[1], dim)
    frames[:, 0, :, : state.shape[2]] = state
    return frames


def _together(parts: Sequence[Tensor | None], like: Tensor, is_optional: bool = False) -> Tensor | None:
    """The derivatives of all layers as one tensor (B, T, N, ·), which has the shape of `like`. A part that is
    None counts as 0. If all parts are None and `is_optional` is true, the result is None."""
    if is_optional and all(part is None for part in parts):
        return None
    total = like.new_empty(like.shape)
    for one, part in zip(total, parts, strict=True):
        one.zero_() if part is None else one.copy_(part)
    return total


def _gradients(
    lstm: LoopedLayer, y: Tensor, m: Tensor, da: Tensor, dy: Tensor, cells: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of the weights that `weights_of` returns; None for each that a preconditioner has
    already written."""
    before = y[:-1, :, : lstm.recurrent_dim]
    recurrent, _ = own_gradients(lstm.recurrent, before.flatten(0, 1), da.flatten(0, 1))
    projection = (
        (None, None)
        if lstm.projection is None
        else own_gradients(lstm.projection, m.flatten(0, 1), dy.flatten(0, 1))
    )
    return recurrent, *projection, None if lstm.peepholes is None else _peephole_gradient(lstm, da, cells)


def _peephole_gradient(layer: LoopedLayer, da: Tensor, cells: Tensor) -> Tensor | None:
    """The gradient of p_i, p_f, p_o (3, H); None if a preconditioner has written it."""
    di, df, _, do = da.chunk(4, 2)
    of_frames = (by_a * seen for by_a, seen in ((di, cells[:-1]), (df, cells[:-1]), (do, cells[1:])))
    if layer.preconditioner is None:
        return torch.stack([part.sum((0, 1)) for part in of_frames])
    layer.preconditioner.accumulate((part.flatten(0, 1) for part in of_frames), layer.peepholes)
    return None
