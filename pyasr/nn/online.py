"""Scores of a network for input that comes bit by bit: those of the whole utterance, each as soon as its context is there.

* A feed-forward network scores frame by frame.
* A network over time is given chunks with context. Without recurrent layers the chunks may be of any length; with them they are those in
  which the network learned, so that memory begins where it does for a whole utterance, and answers come a chunk late.
* One that learned whole utterances, forwards in time, goes on from its state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pyasr.base.errors import UserError
from pyasr.nn.acoustic import AcousticModel
from pyasr.nn.layered import LayeredNetwork, last_begin

_BLOCK_FRAMES = 24  # that a network is given at once whose chunks may be of any length


def check_scores_online(model: AcousticModel) -> None:
    """Raise UserError for a network that needs the end of an utterance for its beginning."""
    network = model.network
    if isinstance(network, LayeredNetwork) and network.is_recurrent and not network.chunk:
        try:
            network.check_goes_on()
        except UserError as error:
            raise UserError(f"its network learned whole utterances, and {error}, or train in chunks (--chunk)") from None


class OnlineLogPosteriors:
    """A function of parts of an utterance's input. Raises UserError as `check_scores_online`."""

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
        """log p(s | x) that are known now, float32 (T', num_pdfs); after the `last` features all that are missing."""
        model = self._model
        with torch.inference_mode():
            rows = np.ascontiguousarray(features) if len(features) else np.zeros((0, len(model.mean)), np.float32)
            return self._network((torch.from_numpy(rows) - model.mean) * model.inverse_std, last).numpy()


class _Frames:
    """Frames that have come, by their places in the utterance; beyond its ends the first and the last are repeated."""

    def __init__(self, dim: int):
        self._kept, self._first, self.num = torch.zeros(0, dim), 0, 0

    def add(self, x: Tensor) -> None:
        self._kept = torch.cat([self._kept, x])
        self.num += len(x)

    def window(self, begin: int, end: int) -> Tensor:
        """Frames begin ... end - 1 as one sequence, (1, end - begin, dim)."""
        return self._kept[torch.arange(begin, end).clamp(0, self.num - 1) - self._first][None]

    def forget(self, before: int) -> None:
        """Frames before this place are needed no more."""
        if before > self._first:
            self._kept, self._first = self._kept[before - self._first :], before


class _InParts:
    """What the two ways have in common: parts of `size` frames, of which one begins at each multiple of it."""

    def __init__(self, network: LayeredNetwork, size: int):
        self.network, self.size, self.begin, self.frames = network, size, 0, _Frames(network.input_dim)

    def __call__(self, x: Tensor, last: bool) -> Tensor:
        self.frames.add(x)
        found = [torch.zeros(0, self.network.num_pdfs)]
        while self.begin + self.size + self.network.right <= self.frames.num or (last and self.begin < self.frames.num):
            found.append(torch.log_softmax(self.part()[0], 1)[: -(-(self.frames.num - self.begin) // self.network.subsampling)])
            self.begin += self.size
            self.frames.forget(self.begin - self.size - self.network.left)
        return torch.cat(found)

    def window(self, begin: int) -> Tensor:
        """The part that begins there, with its context."""
        return self.frames.window(begin - self.network.left, begin + self.size + self.network.right)

    part: Callable[[], Tensor]


class _InChunks(_InParts):
    """Chunks by themselves; the last one ends with the utterance, to within `subsampling`, as `LayeredNetwork.log_posteriors` has it."""

    def part(self) -> Tensor:
        """Logits of the frames from `begin` on, (1, num, num_pdfs)."""
        step = self.network.subsampling
        begin = min(self.begin, last_begin(self.frames.num, self.size, step))
        return self.network(self.window(begin))[:, (self.begin - begin) // step :]


class _GoingOn(_InParts):
    """Parts that begin with the state after the one before."""

    def __init__(self, network: LayeredNetwork):
        super().__init__(network, -(-_BLOCK_FRAMES // network.subsampling) * network.subsampling)
        self._states = None

    def part(self) -> Tensor:
        """Logits of the frames from `begin` on, (1, num, num_pdfs)."""
        logits, self._states = self.network.go_on(self.window(self.begin), self._states)
        return logits
