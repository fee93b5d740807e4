r"""Long short-term memory with projections, peepholes and clipped cells, and explicit derivatives.

References: H. Sak, A. Senior, F. Beaufays, "Long short-term memory recurrent neural network architectures for
large scale acoustic modeling", Interspeech 2014 (projections, peepholes: Kaldi's LSTMP layers); W. Chan, I.
Lane, arXiv:1504.01482 (clipped cells).

With x_t the inputs, c_t the cells, r_t the recurrent input, and d the delay (1 in most networks; Kaldi's
layers have 1, 2, 3):

    i_t = sigma(W_ix x_t + W_ir r_{t-d} + p_i c_{t-d} + b_i)                                         (1)
    f_t = sigma(W_fx x_t + W_fr r_{t-d} + p_f c_{t-d} + b_f)
    g_t = tanh (W_gx x_t + W_gr r_{t-d} + b_g)
    c_t = clip(f_t c_{t-d} + i_t g_t, -C, C)                                                         (2)
    o_t = sigma(W_ox x_t + W_or r_{t-d} + p_o c_t + b_o)
    m_t = o_t tanh(c_t)                                                                              (3)
    y_t = W_p m_t + b_p,      r_t = the first elements of y_t                                        (4)

The peepholes p are diagonal. They are optional, and so is b_p. Without a projection, y_t = r_t = m_t. With
C = infinity, cells are not clipped. Where (2) clips, its derivative is 0.

One product computes W_x x_t + b of all frames before the loop over time. The backward loop computes the
derivatives with respect to y_t, and to a_t, the arguments of the nonlinearities (i, f, g, o concatenated).
After the loop, products of these over all frames give the gradients of all parameters. Natural gradient can
therefore precondition them as in any affine layer (`pyasr.nn.layers.preconditioned_layers`).

Derivatives can grow from frame to frame when they are propagated back in time. An optional limit G applies to
their vectors with respect to c_t and to r_t, for each frame of each sequence. A vector with a larger norm is
scaled to the norm G:

    dF/dc_t  <-  dF/dc_t min(1, G / |dF/dc_t|),      dF/dr_t  <-  dF/dr_t min(1, G / |dF/dr_t|)      (5)

dF/dc_t is the total derivative, through m_t, o_t and later frames. dF/dr_t is the derivative through later
frames. If y_t = r_t is a projection, dF/dr_t includes the derivative through the layer above. Kaldi's
ClipGradientComponent (norm-based; steps/nnet3/components.py, AddLstmLayer) is in the same places, with one
exception. In layers without a projection, that script clips the derivative through the layer above, which is
not propagated in time. pyasr clips the derivative through later frames, like the later lstm-layer of Kaldi's
xconfig.

A delay of d splits each sequence into d sequences, each with every d-th frame (padded with zeros to a
multiple of d). The loop processes them as a batch.

On a GPU, cuDNN computes the layers that it supports, and their derivatives (`Lstm.is_cudnns`). These layers
have d = 1 and y_t = r_t, but not p, C and b_p, and their gradients are neither preconditioned nor clipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.lstm_loop import Recurrence, weights_of
from pyasr.nn.layers.preconditioned_layers import FactorsPreconditioner, PreconditionedLinear
from pyasr.tensor import lstm_small

# first version whose LSTM supports bfloat16 (github.com/pytorch/pytorch/pull/164411)
_CUDNN_OF_BFLOAT16 = 91300
# Parameters have the layout of pyasr.parallel.mixing.flat, not that of cuDNN, which therefore copies them for
# every minibatch, at a small cost.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")


class LstmState(NamedTuple):
    """State between two parts of N sequences, for the last d frames: r (d, N, recurrent_dim) and c (d, N,
    cell_dim). c is at least float32, because a cell accumulates small numbers over many frames."""

    r: Tensor
    c: Tensor


class Lstm(nn.Module):
    """One direction of one layer: (T, N, input_dim) to (T, N, output_dim), N sequences of T frames.

    cell_dim           H
    recurrent_dim      elements of y_t that are fed back; 0: no projection, all H are fed back
    nonrecurrent_dim   elements of y_t that are not fed back
    cell_clip          C; 0: no clipping
    delay              d
    backward           whether time runs from the last frame to the first
    projection_bias    whether the projection has b_p
    gradient_clip      G; 0: no limit
    natural_peepholes  whether natural gradient applies to p, too
    """

    preconditioner: FactorsPreconditioner | None = None  # of p
    # why cuDNN did not compute the last minibatch; "" if it did; None before the first minibatch
    in_loop: str | None = None

    def __init__(
        self,
        input_dim: int,
        cell_dim: int,
        recurrent_dim: int = 0,
        nonrecurrent_dim: int = 0,
        *,
        peepholes: bool = False,
        cell_clip: float = 0.0,
        delay: int = 1,
        backward: bool = False,
        bias: bool = True,
        projection_bias: bool = False,
        gradient_clip: float = 0.0,
        natural_peepholes: bool = False,
    ):
        super().__init__()
        self.cell_dim, self.recurrent_dim = cell_dim, recurrent_dim or cell_dim
        self.output_dim = recurrent_dim + nonrecurrent_dim or cell_dim
        self.cell_clip = cell_clip
        self.delay = delay
        self.backward = backward
        self.gradient_clip = gradient_clip
        self.input = Linear(input_dim, 4 * cell_dim, bias)
        self.recurrent = Linear(self.recurrent_dim, 4 * cell_dim, bias=False)
        self.projection = Linear(cell_dim, self.output_dim, bias=projection_bias) if recurrent_dim else None
        self.peepholes = nn.Parameter(torch.zeros(3, cell_dim)) if peepholes else None  # p_i, p_f, p_o
        self.natural_peepholes = natural_peepholes
        # called with i, f, g, o (T, N, 4 H) and c (T, N, H) of all frames
        self.watch: Callable[[Tensor, Tensor], None] | None = None

    @property
    def factors_to_precondition(self) -> Tensor | None:
        """Vectors of factors that natural gradient applies to, in addition to matrices."""
        return self.peepholes if self.natural_peepholes else None

    def forward(
        self, x: Tensor, state: LstmState | None = None, end: int | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """The outputs, and the state after `end` frames (None: all) in the direction of time.

        state    state before the first frame; None: zeros
        lengths  int64 (N): frames of each sequence, without padding. None: T
        """
        x = reverse(x, lengths) if self.backward else x
        y, after = (
            by_torch([self], x, state)
            if self.is_cudnns(x, state, end)
            else self.remember(self.input(x), state, end)
        )
        return reverse(y, lengths) if self.backward else y, after

    def is_cudnns(self, x: Tensor, state: LstmState | None = None, end: int | None = None) -> bool:
        """Whether cuDNN supports these arguments of `forward`. The state that cuDNN returns is the one after
        all frames, with cells in the type of x."""
        self.in_loop = self.cudnn_obstacle(x, state, end)
        return not self.in_loop

    def cudnn_obstacle(self, x: Tensor, state: LstmState | None = None, end: int | None = None) -> str:
        """The feature that cuDNN lacks for these arguments of `forward`; empty if it supports them."""
        p, is_carried = self.projection, state is not None or end is not None
        is_projected_as_torchs = (
            p is None or p.bias is None and self.output_dim == self.recurrent_dim < self.cell_dim
        )
        versions = f"version {torch.backends.cudnn.version()} with torch {torch.__version__}"
        lacking = {
            "peepholes": self.peepholes is not None,
            "clipped cells": self.cell_clip,
            "delay of more than one frame": self.delay > 1,
            "projection of this form": not is_projected_as_torchs,
            "gates to be measured": self.watch,
            "clipped derivatives": self.gradient_clip and torch.is_grad_enabled(),
            "natural gradient": any(
                isinstance(layer, PreconditionedLinear) for layer in (self.input, self.recurrent, p)
            ),
            "state within a chunk": is_carried and end not in (None, len(x)),
            f"state in {_name(x)} that is exact enough": is_carried
            and x.dtype not in (torch.float32, torch.float64),
            f"LSTM of {_name(x)} in {versions}": not cudnn_supports(x),
        }
        return next((name for name, is_wanted in lacking.items() if is_wanted), "")

    def remember(
        self, a: Tensor, state: LstmState | None = None, end: int | None = None
    ) -> tuple[Tensor, LstmState]:
        """Outputs and state, computed by the loop from `a`: W_x x_t + b of all frames (T, N, 4 H), in the
        direction of time."""
        state = state or self._initial_state(a)
        ((y, cells),) = _remember([self], [a], [state])
        end = len(a) if end is None else end
        after = LstmState(
            *(
                _last(before, frames, end)
                for before, frames in zip(state, (y[:, :, : self.recurrent_dim], cells))
            )
        )
        return y[: len(a)], after

    def _initial_state(self, a: Tensor) -> LstmState:
        wide, shape = torch.promote_types(a.dtype, torch.float32), (self.delay, a.shape[1])
        return LstmState(
            a.new_zeros(*shape, self.recurrent_dim), a.new_zeros(*shape, self.cell_dim, dtype=wide)
        )

    def is_small(self, x: Tensor) -> bool:
        """Whether one kernel computes all frames of x (T, N, input_dim)."""
        return self.projection is None and lstm_small.takes(x, self.cell_dim, self.delay * x.shape[1])

    def shape(self) -> tuple:
        """The properties in which layers must agree so that the loop can process them as a batch."""
        p = self.projection
        return (
            self.cell_dim,
            self.recurrent_dim,
            self.output_dim,
            self.cell_clip,
            self.delay,
            self.gradient_clip,
            self.peepholes is None,
            p is None,
            p is not None and p.bias is None,
        )


def runs_as_batch(directions: Sequence[Lstm], x: Tensor) -> bool:
    """Whether the loop processes these layers as a batch, for which they must have the same shape. It does so
    on a GPU, which one layer does not fill, and on a CPU for small layers, to save operations of torch."""
    return len({lstm.shape() for lstm in directions}) == 1 and (
        x.device.type != "cpu" or directions[0].is_small(x)
    )


def side_by_side(directions: Sequence[Lstm], x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Concatenated outputs (T, N, dims) of layers of the same shape, which one loop computes; x and lengths
    are those of `Lstm.forward`."""
    parts = [lstm.input(reverse(x, lengths) if lstm.backward else x) for lstm in directions]
    results = _remember(directions, parts, [lstm._initial_state(a) for lstm, a in zip(directions, parts)])
    outputs = (y[: len(x)] for y, _ in results)
    return torch.cat([reverse(y, lengths) if lstm.backward else y for lstm, y in zip(directions, outputs)], 2)


def _remember(
    layers: Sequence[Lstm], parts: Sequence[Tensor], states: Sequence[LstmState]
) -> list[tuple[Tensor, Tensor]]:
    """y and c of each layer, for all frames including the padding for the delay."""
    delay, (num_frames, num_sequences, _) = layers[0].delay, parts[0].shape
    parts = [F.pad(a, (0, 0, 0, 0, 0, -num_frames % delay)) for a in parts]
    shape, parts = parts[0].shape[:2], [a.view(-1, delay * num_sequences, a.shape[2]) for a in parts]
    r, c = (torch.stack([part.flatten(0, 1) for part in of_layers]) for of_layers in zip(*states))
    results = [
        part.view(*shape, -1)
        for part in Recurrence.apply(layers, r, c, *parts, *(w for lstm in layers for w in weights_of(lstm)))
    ]
    ys, cells, gates = (
        results[first : first + len(layers)] for first in range(0, 3 * len(layers), len(layers))
    )
    for lstm, one, two in zip(layers, gates, cells):
        if lstm.watch:
            lstm.watch(one[:num_frames], two[:num_frames])
    return list(zip(ys, cells))


def _name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def cudnn_supports(x: Tensor) -> bool:
    """Whether cuDNN computes LSTM layers of x, by its device and type."""
    return torch.cudnn_is_acceptable(x) and (
        x.dtype != torch.bfloat16 or torch.backends.cudnn.version() >= _CUDNN_OF_BFLOAT16
    )


def by_torch(
    directions: Sequence[Lstm], x: Tensor, state: LstmState | None = None
) -> tuple[Tensor, LstmState]:
    """Outputs of layers that `Lstm.is_cudnns` accepts, and the state of each direction after all frames,
    computed by torch's LSTM.

    directions  one layer, which processes the frames in the order of x, or a forward and a backward layer of
                the same shape, whose outputs are concatenated
    """
    first, num_directions = directions[0], len(directions)
    before = state or [
        x.new_zeros(num_directions, x.shape[1], dim) for dim in (first.recurrent_dim, first.cell_dim)
    ]
    before = [part.to(x.dtype).contiguous() for part in before]
    weights = [weight for lstm in directions for weight in _torchs_weights(lstm)]
    has_biases, is_learning = first.input.bias is not None, torch.is_grad_enabled()
    y, r, c = torch.lstm(x, before, weights, has_biases, 1, 0.0, is_learning, num_directions == 2, False)
    return y, LstmState(r, c.to(torch.promote_types(c.dtype, torch.float32)))


def _torchs_weights(lstm: Lstm) -> list[Tensor]:
    """The weights in torch's layout, which has two biases; the second one is 0."""
    biases = [] if lstm.input.bias is None else [lstm.input.bias, torch.zeros_like(lstm.input.bias)]
    return [
        lstm.input.weight,
        lstm.recurrent.weight,
        *biases,
        *([] if lstm.projection is None else [lstm.projection.weight]),
    ]


def reverse(x: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Reverse sequences (T, N, D) in time; frames after the end of a shorter sequence stay in place."""
    if lengths is None:
        return x.flip(0)
    num_frames, num_sequences, _ = x.shape
    frames = torch.arange(num_frames, device=x.device)[:, None]
    sequences = torch.arange(num_sequences, device=x.device)
    source = torch.where(frames < lengths, lengths - 1 - frames, frames)
    return x.flatten(0, 1).index_select(0, (source * num_sequences + sequences).flatten()).view_as(x)


def _last(before: Tensor, frames: Tensor, end: int) -> Tensor:
    """The last d frames of a sequence that consists of `before` (d, N, D) and the first `end` of `frames`
    (T, N, D)."""
    return torch.cat([before[end:], frames[max(end - len(before), 0) : end]])
