"""Scores of a network for incremental input: equal to those of the whole utterance, each as soon as its
context is available.

* A feed-forward network scores single frames.
* A network over time gets chunks with context. Without recurrent layers, chunks may have any length. With
  recurrent layers they are the chunks of training, so that the state starts at the same frames as for a whole
  utterance, and the output is delayed by a chunk.
* A network trained on whole utterances, forward in time, continues from its state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pyasr.base.errors import UserError
from pyasr.nn.layers.lstm import LstmState
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.layered import LayeredNetwork, last_begin

_BLOCK_FRAMES = 24  # frames per call of a network whose chunks may have any length


def check_scores_online(model: AcousticModel) -> None:
    """Raise UserError for a network that needs the end of an utterance to score its beginning."""
    network = model.network
    if isinstance(network, LayeredNetwork) and network.is_recurrent and not network.chunk:
        try:
            network.check_carries_state()
        except UserError as error:
            raise UserError(
                f"its network was trained on whole utterances, and {error}, or train in chunks (--chunk)"
            ) from None


class OnlineLogPosteriors:
    """A function of successive parts of an utterance's input. Raises UserError as `check_scores_online`."""

    def __init__(self, model: AcousticModel):
        check_scores_online(model)
        self._model, network = model, model.network
        if not isinstance(network, LayeredNetwork):
            self._network = lambda x, last: network.log_posteriors(x)
        elif not network.is_recurrent:
            self._network = _InChunks(network, -(-_BLOCK_FRAMES // network.subsampling) * network.subsampling)
        else:
            self._network = _InChunks(network, network.chunk) if network.chunk else _GoingOn(network)

    def __call__(self, features: np.ndarray, last: bool = False) -> np.ndarray:
        """New rows of log p(s | x), float32 (T', num_pdfs); with `last`, all remaining rows."""
        model = self._model
        with torch.inference_mode():
            rows = (
                np.ascontiguousarray(features)
                if len(features)
                else np.zeros((0, len(model.mean)), np.float32)
            )
            return self._network((torch.from_numpy(rows) - model.mean) * model.inverse_std, last).numpy()


class _Frames:
    """Buffer of frames by their positions in the utterance; before its beginning and after its end, the first
    and last are repeated."""

    def __init__(self, dim: int):
        self._kept, self._first, self.num = torch.zeros(0, dim), 0, 0

    def add(self, x: Tensor) -> None:
        self._kept = torch.cat([self._kept, x])
        self.num += len(x)

    def window(self, begin: int, end: int) -> Tensor:
        """Frames begin ... end - 1 as one sequence, (1, end - begin, dim)."""
        return self._kept[torch.arange(begin, end).clamp(0, self.num - 1) - self._first][None]

    def forget(self, before: int) -> None:
        """Drop the frames before this position."""
        if before > self._first:
            self._kept, self._first = self._kept[before - self._first :], before


class _InParts:
    """Base of both kinds: parts of `size` frames, one at each multiple of it."""

    def __init__(self, network: LayeredNetwork, size: int):
        self.network, self.size, self.begin, self.frames = network, size, 0, _Frames(network.input_dim)

    def __call__(self, x: Tensor, last: bool) -> Tensor:
        self.frames.add(x)
        found = [torch.zeros(0, self.network.num_pdfs)]
        while self.begin + self.size + self.network.right <= self.frames.num or (
            last and self.begin < self.frames.num
        ):
            found.append(
                torch.log_softmax(self.part()[0], 1)[
                    : -(-(self.frames.num - self.begin) // self.network.subsampling)
                ]
            )
            self.begin += self.size
            self.frames.forget(self.begin - self.size - self.network.left)
        return torch.cat(found)

    def window(self, begin: int) -> Tensor:
        """The part from `begin` on, with its context."""
        return self.frames.window(begin - self.network.left, begin + self.size + self.network.right)

    part: Callable[[], Tensor]


class _InChunks(_InParts):
    """Independent chunks; the last one ends with the utterance (up to `subsampling`), as in
    `LayeredNetwork.log_posteriors`."""

    def part(self) -> Tensor:
        """Logits of the frames from `begin` on, (1, num, num_pdfs)."""
        step = self.network.subsampling
        begin = min(self.begin, last_begin(self.frames.num, self.size, step))
        return self.network(self.window(begin))[:, (self.begin - begin) // step :]


class _GoingOn(_InParts):
    """Parts that continue from the state after the previous part."""

    def __init__(self, network: LayeredNetwork):
        super().__init__(network, -(-_BLOCK_FRAMES // network.subsampling) * network.subsampling)
        self._states: list[LstmState | None] | None = None

    def part(self) -> Tensor:
        """Logits of the frames from `begin` on, (1, num, num_pdfs)."""
        logits, self._states = self.network.go_on(self.window(self.begin), self._states)
        return logits
