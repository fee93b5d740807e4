r"""Layers over time: (T, N, dim_in) to (T', N, dim_out), N sequences of T frames, time first.

A layer needs `left` frames before and `right` frames after the frames of its outputs, and has one output for
every `stride` frames:

    T' = (T - left - right - 1) // stride + 1

with output j at input frame left + j stride. Frames are those of the layer's own input, after any subsampling
by the layers below. Sequences shorter than T frames are followed by arbitrary frames, and so are their
outputs.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.nn.layers.lstm import Lstm, LstmState, by_torch, runs_as_batch, side_by_side


class SequenceLayer(nn.Module):
    """Base of all layers."""

    left = right = 0
    stride = 1
    dim_out: int

    def of_lengths(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The outputs of sequences with these numbers of frames, int64 (N); most layers ignore what follows a
        sequence."""
        return self(x)

    def num_outputs(self, lengths: Tensor) -> Tensor:
        """T' of sequences with these numbers of frames."""
        return (lengths - self.left - self.right - 1) // self.stride + 1

    def go_on(self, x: Tensor, state: LstmState | None, num_frames: int) -> tuple[Tensor, LstmState | None]:
        """The outputs of sequences that continue from `state`, and the state after `num_frames` frames, where
        the next part begins. Most layers have no state."""
        return self(x), None


class Splice(SequenceLayer):
    """Concatenated frames at some offsets (TDNN): output j has x[t + o] for each offset o, in their order."""

    def __init__(self, dim_in: int, offsets: list[int], stride: int = 1):
        super().__init__()
        self.offsets, self.stride = offsets, stride
        self.left = max(0, -min(offsets))
        self.right = max(0, max(offsets))
        self.dim_out = dim_in * len(offsets)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        num = len(x) - self.left - self.right
        parts = [x[self.left + offset : self.left + offset + num : self.stride] for offset in self.offsets]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


class Delay(SequenceLayer):
    """Delays the output of a network without look-ahead: the output for frame t is computed after frame t +
    `frames`."""

    def __init__(self, dim_in: int, frames: int):
        super().__init__()
        self.right, self.dim_out = frames, dim_in

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x[self.right :]


class Crop(SequenceLayer):
    """Removes the first and last frames, which only serve as context of recurrent layers."""

    def __init__(self, dim_in: int, left: int, right: int):
        super().__init__()
        self.left, self.right, self.dim_out = left, right, dim_in

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x[self.left : len(x) - self.right]


class Convolution(SequenceLayer):
    """Convolution over time and frequency, and max pooling over bands: a frame of C channels of B bands,
    channel by channel, becomes one of `filters` channels.

    time, bands  size of a filter; frames to both sides are context, the number of bands decreases
    pool, step   adjacent bands of a max-pooling group, and the distance between two groups
    """

    def __init__(self, dim_in: int, channels: int, filters: int, time: int, bands: int, pool: int, step: int):
        super().__init__()
        self.dim_in, self.channels, self.pool, self.step = dim_in, channels, pool, step
        self.convolution = nn.Conv2d(channels, filters, (time, bands))
        self.left = self.right = time // 2
        self.dim_out = filters * pooled_bands(dim_in // channels - bands + 1, pool, step)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        num_frames, num_sequences, dim = x.shape
        images = x.view(num_frames, num_sequences, self.channels, dim // self.channels).permute(1, 2, 0, 3)
        y = F.relu(self.convolution(images))
        y = F.max_pool2d(y, (1, self.pool), (1, self.step)) if max(self.pool, self.step) > 1 else y
        return y.permute(2, 0, 1, 3).flatten(2)


def pooled_bands(bands: int, pool: int, step: int) -> int:
    """Number of bands after pooling; 0 or less if there are too few bands."""
    return (bands - pool) // step + 1


class Recurrent(SequenceLayer):
    """One LSTM layer, or one for each direction of time, with the same input and concatenated outputs;
    optional dropout is applied to the outputs, but not to the state."""

    def __init__(self, directions: list[Lstm], dropout: nn.Module | None = None):
        super().__init__()
        self.directions, self.dropout = nn.ModuleList(directions), dropout or nn.Identity()
        self.dim_out = sum(lstm.output_dim for lstm in directions)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.of_lengths(x, None)

    def of_lengths(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """The outputs of sequences with these numbers of frames; None: all have T frames."""
        if lengths is None and self._is_cudnns(x):
            return self.dropout(by_torch(self.directions, x)[0])
        if not any(lstm.is_cudnns(x) for lstm in self.directions) and runs_as_batch(self.directions, x):
            return self.dropout(side_by_side(self.directions, x, lengths))
        outputs = [lstm(x, lengths=lengths)[0] for lstm in self.directions]
        return self.dropout(outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2))

    def _is_cudnns(self, x: Tensor) -> bool:
        """Whether cuDNN computes both directions together."""
        return [lstm.backward for lstm in self.directions] == [False, True] and all(
            lstm.is_cudnns(x) for lstm in self.directions
        )

    @property
    def reads_backwards(self) -> bool:
        """Whether a direction starts at the last frame, so that the layer cannot continue from a state."""
        return any(lstm.backward for lstm in self.directions)

    def go_on(self, x: Tensor, state: LstmState | None, num_frames: int) -> tuple[Tensor, LstmState | None]:
        """See the base class; for a single, forward direction."""
        (lstm,) = self.directions
        outputs, state = lstm(x, state, num_frames)
        return self.dropout(outputs), state


class WindowRecurrent(SequenceLayer):
    """For every frame, a window of frames around it, an LSTM over it in each direction, and the final output
    of each (W. Chan, I. Lane, arXiv:1504.01482: the context vector of a TC-DNN-BLSTM-DNN, whose first DNN is
    the same for all frames of a window)."""

    def __init__(self, directions: list[Lstm], left: int, right: int, dropout: nn.Module | None = None):
        super().__init__()
        self.directions = nn.ModuleList(directions)
        self.left = left
        self.right = right
        self.dropout = dropout or nn.Identity()
        self.dim_out = sum(lstm.output_dim for lstm in directions)
        for lstm in directions:
            lstm.in_loop = "windows around frames"

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.dropout(torch.cat([self._end(lstm, x) for lstm in self.directions], 2))

    def _end(self, lstm: Lstm, x: Tensor) -> Tensor:
        """Output of an LSTM at the end of each window (T', N, dim); windows share products with frames."""
        a, num = lstm.input(x), len(x) - self.left - self.right
        parts = [a[first : first + num] for first in range(self.left + 1 + self.right)]
        y, _ = lstm.remember(torch.stack(parts[::-1] if lstm.backward else parts).flatten(1, 2))
        return y[-1].view(num, x.shape[1], -1)


def lstm_paths(network: nn.Module) -> list[str]:
    """How the LSTM layers computed the last minibatch on a GPU, for the log; empty if there are none."""
    paths = Counter(
        lstm.in_loop for lstm in network.modules() if isinstance(lstm, Lstm) and lstm.in_loop is not None
    )
    return [
        f"LSTM layers computed by the loop over frames: {number}; cuDNN has no {lacking}"
        if lacking
        else f"LSTM layers computed by cuDNN: {number}"
        for lacking, number in paths.items()
    ]


@torch.no_grad()
def initialise_lstm(lstm: Lstm, width: float, forget_bias: float, generator: torch.Generator) -> None:
    """Draw weights uniform in [-width, width]; 0: 1 / sqrt(cells). Biases are 0 except the forget gate's."""
    width = width or 1 / math.sqrt(lstm.cell_dim)
    for parameter in lstm.parameters():
        if parameter.dim() > 1:
            parameter.uniform_(-width, width, generator=generator)
    if lstm.input.bias is not None:
        lstm.input.bias.zero_()
        lstm.input.bias[lstm.cell_dim : 2 * lstm.cell_dim] = forget_bias
    if lstm.projection is not None and lstm.projection.bias is not None:
        lstm.projection.bias.zero_()


@torch.no_grad()
def initialise_as_kaldi(lstm: Lstm, generator: torch.Generator) -> None:
    """Draw parameters as steps/nnet3/components.py and the defaults of Kaldi's components: weights N(0, 1 /
    inputs), with one affine map of x_t and r_{t-d} per gate; all biases and peepholes N(0, 1)."""
    of_gates = (lstm.input.in_features + lstm.recurrent.in_features) ** -0.5
    for layer, stddev in (
        (lstm.input, of_gates),
        (lstm.recurrent, of_gates),
        (lstm.projection, lstm.cell_dim**-0.5),
    ):
        if layer is not None:
            layer.weight.normal_(0, stddev, generator=generator)
            if layer.bias is not None:
                layer.bias.normal_(0, 1, generator=generator)
    if lstm.peepholes is not None:
        lstm.peepholes.normal_(0, 1, generator=generator)
