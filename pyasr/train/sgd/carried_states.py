"""Cross-entropy of frames for networks that carry their state, in every row, from one minibatch to the next:
truncated backpropagation through time with the state of LSTM layers carried over (R. Williams, J. Peng,
Neural Computation 2, 1990).

A chunk begins with the state after the previous chunk, which is a constant, so its loss is propagated back to
its first frame. At the beginning of an utterance the state is 0. A carried state comes from the parameters
with which it was computed, not from the current ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from pyasr.nn.layers.lstm import LstmState
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.train.minibatches.rows import Rows
from pyasr.train.sgd.criterion import CrossEntropy

States = list[LstmState | None]


class Memory:
    """The states of a network's layers in all rows; None for a layer without a state. There are no states
    before the first minibatch."""

    def __init__(self, states: States | None = None):
        self.states = states

    def of(self, rows: Rows) -> States | None:
        """The states with which the network continues in these rows."""
        if self.states is None:
            return None
        return [_parts(lambda part: _recalled(part, rows), state) for state in self.states]

    def keep(self, rows: Rows, states: States) -> None:
        """Store the states after these rows."""
        states = [_parts(torch.Tensor.detach, state) for state in states]
        known = self.states or [_parts(lambda part: part[:, :0], state) for state in states]
        self.states = [
            _parts(lambda old, new: _replaced(old, new, rows.first), *pair) for pair in zip(known, states)
        ]


def _parts(function: Callable[..., torch.Tensor], *states: Sequence[torch.Tensor] | None) -> LstmState | None:
    """`function` of each tensor of the states of one layer; None for a layer without a state."""
    known = [state for state in states if state is not None]
    return LstmState(*(function(*parts) for parts in zip(*known))) if known else None


def _recalled(part: torch.Tensor, rows: Rows) -> torch.Tensor:
    """The state of `rows`, (d, N, D), from the state of all rows; 0 for unknown rows and where an utterance
    begins."""
    num = len(rows.begins)
    return _exactly(part[:, rows.first : rows.first + num], num).masked_fill(rows.begins[:, None], 0)


def _replaced(old: torch.Tensor, new: torch.Tensor, first: int) -> torch.Tensor:
    """`old` (d, num_rows, D) with the rows from `first` on replaced by `new` (d, N, D)."""
    return torch.cat([_exactly(old[:, :first], first), new, old[:, first + new.shape[1] :]], 1)


def _exactly(part: torch.Tensor, num: int) -> torch.Tensor:
    """`part` (d, N, D), padded with zeros or truncated to (d, num, D)."""
    return F.pad(part, (0, 0, 0, num - part.shape[1]))


class CarriedCrossEntropy(CrossEntropy):
    """The cross-entropy of inputs that are `Rows`. Training and evaluation have separate memories."""

    def __init__(self):
        self.reset_state()

    def logits(self, network: LayeredNetwork, x: Rows) -> torch.Tensor:
        """The outputs for a minibatch that continues the previous one."""
        memory = self.memory if network.training else self._measured
        logits, states = network.go_on(x.x, memory.of(x))
        memory.keep(x, states)
        return logits

    def reset_state(self) -> None:
        """Delete the states of all rows."""
        self.memory, self._measured = Memory(), Memory()

    def state_dict(self) -> dict:
        """The states of rows in training."""
        states = self.memory.states
        return {"memory": None if states is None else [state and list(state) for state in states]}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the states of rows in training."""
        states = state["memory"]
        self.memory = Memory(states and [_parts(lambda part: part.to(device), kept) for kept in states])
