"""Options of networks over time that are trained from chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyasr.base.cli.option_uses import never
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions

if TYPE_CHECKING:
    import torch

    from pyasr.nn.networks.layered import LayeredNetwork
    from pyasr.train.minibatches.chunks import Packing

# for `group(InputOptions, only=SPLICED_BY_LAYERS)` of a step that trains networks of layers only
SPLICED_BY_LAYERS = dict.fromkeys(
    ("splice_left", "splice_right"), never("the layers of the network splice their input")
)


@dataclass(frozen=True)
class OverTimeOptions:
    """A network of layers over time, and the chunks that it is trained on."""

    heading = "network"

    network: Path | None = option(
        None,
        "file of layers (docs/networks/networks.md), which also define hidden layers and splicing",
        common=True,
    )
    chunk: int = option(20, "frames of a training chunk, without context", minimum=1)
    carry_state: bool = option(
        False,
        "start each chunk with the LSTM state at the end of the utterance's previous chunk, and "
        "decode whole utterances",
    )

    def packing(self, input: InputOptions, dim: int) -> Packing:
        """How stores pack utterances of `dim` columns: chunks for `network`; without one, frames spliced as
        `input` says."""
        import torch

        from pyasr.nn.networks.layered import LayeredNetwork, read_network
        from pyasr.train.minibatches.chunks import Packing

        if not self.network:
            return Packing(input.splice_left, input.splice_right)
        with torch.device("meta"):
            network = LayeredNetwork(read_network(self.network), dim, 1)
        if self.chunk % network.subsampling:
            found = f"the network has one output per {network.subsampling} frames"
            raise UserError(f"--chunk {self.chunk}: {found}; give a multiple of {network.subsampling}")
        if self.carry_state:
            _check_goes_on(network, self.network)
        return Packing(network.left, network.right, self.chunk, network.subsampling, self.carry_state)


def _check_goes_on(network: LayeredNetwork, path: Path) -> None:
    try:
        network.check_carries_state()
    except UserError as error:
        raise UserError(f"--carry-state with {path}: {error}, or leave --carry-state out") from None


@dataclass(frozen=True)
class Phases:
    """Time shifts of a subsampling network's input. Successive minibatches see the features shifted by
    different numbers of frames, so that each output is trained on all the frames that it stands for. Inputs
    have `before` and `after` frames more than the network needs.
    """

    before: int = 0
    after: int = 0

    @classmethod
    def of(cls, factor: int) -> Phases:
        """The shifts for a network with one output per `factor` frames."""
        return cls(factor // 2, (factor - 1) // 2)

    def cut(self, x: torch.Tensor, turn: int | None = None) -> torch.Tensor:
        """Inputs (N, T, dim) of minibatch number `turn`, cut from (N, before + T + after, dim); None: without
        a shift."""
        room = self.before + self.after
        begin = self.before if turn is None else turn % (room + 1)
        return x[:, begin : x.shape[1] - room + begin]


@dataclass(frozen=True)
class ChunkOptions(OverTimeOptions):
    """A network of layers over time, and the chunks that it is trained on, with time shifts for a subsampling
    network."""

    heading = "network"

    shift_frames: bool = option(
        True,
        "shift the input of successive minibatches, so that a subsampling network is trained on all frames",
    )

    def phases(self, factor: int) -> Phases:
        """Shifts of the minibatches for a network with one output per `factor` frames."""
        return Phases.of(factor) if self.shift_frames else Phases()

    def packing(self, input: InputOptions, dim: int) -> Packing:
        """See `OverTimeOptions.packing`; with additional context for the shifts."""
        packing = super().packing(input, dim)
        room = self.phases(packing.subsampling)
        return replace(packing, left=packing.left + room.before, right=packing.right + room.after)
