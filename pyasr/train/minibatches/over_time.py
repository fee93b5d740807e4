"""Options of networks over time that are trained from chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions

if TYPE_CHECKING:
    import torch

    from pyasr.nn.networks.layered import LayeredNetwork
    from pyasr.train.minibatches.chunks import Packing


@dataclass(frozen=True)
class OverTimeOptions:
    """A network of layers over time, and what it learns at once."""

    network: Path | None = option(None, "file of layers (docs/networks.md) instead of --hidden-layers, --activation and so on; layers "
                                        "splice, so --splice-left and --splice-right do not count")  # fmt: skip
    chunk: int = option(20, "neighbouring frames that are learned at once, beside context", minimum=1)
    carry_state: bool = option(False, "with --network: LSTM layers begin a chunk with the state after the utterance's chunk before, and "
                                      "decode utterances as a whole")  # fmt: skip

    def packing(self, input: InputOptions, dim: int) -> Packing:
        """What stores make of utterances of `dim` columns: chunks for the network, spliced frames, as `input` says, without one."""
        import torch

        from pyasr.nn.networks.layered import LayeredNetwork, read_network
        from pyasr.train.minibatches.chunks import Packing

        if not self.network:
            return Packing(input.splice_left, input.splice_right)
        with torch.device("meta"):
            network = LayeredNetwork(read_network(self.network), dim, 1)
        if self.chunk % network.subsampling:
            raise UserError(f"--chunk {self.chunk}: the network answers on every {network.subsampling}. frame; give a multiple of that")
        if self.carry_state:
            _check_goes_on(network, self.network)
        return Packing(network.left, network.right, self.chunk, network.subsampling, self.carry_state)


def _check_goes_on(network: LayeredNetwork, path: Path) -> None:
    try:
        network.check_goes_on()
    except UserError as error:
        raise UserError(f"--carry-state with {path}: {error}, or leave --carry-state out") from None


@dataclass(frozen=True)
class Phases:
    """Minibatches take turns at how many frames earlier or later than usual they see the features, so that an output learns all of those it
    may belong to. Inputs have `before` and `after` frames more than the network asks for."""

    before: int = 0
    after: int = 0

    @classmethod
    def of(cls, factor: int) -> Phases:
        """For outputs that belong to one of so many frames."""
        return cls(factor // 2, (factor - 1) // 2)

    def cut(self, x: torch.Tensor, turn: int | None = None) -> torch.Tensor:
        """Inputs (N, before + T + after, dim) as the minibatch of a number sees them, (N, T, dim); None: as usual."""
        room = self.before + self.after
        begin = self.before if turn is None else turn % (room + 1)
        return x[:, begin : x.shape[1] - room + begin]


@dataclass(frozen=True)
class ChunkOptions(OverTimeOptions):
    """A network of layers over time, and what it learns at once; where it leaves out frames, it sees all of them in turn."""

    shift_frames: bool = option(True, "minibatches take turns at which of the frames that the network leaves out it answers on")

    def phases(self, factor: int) -> Phases:
        """By which minibatches differ, for a network that answers on one of `factor` frames."""
        return Phases.of(factor) if self.shift_frames else Phases()

    def packing(self, input: InputOptions, dim: int) -> Packing:
        """As for other trainings, with the frames that minibatches may see earlier or later."""
        packing = super().packing(input, dim)
        room = self.phases(packing.subsampling)
        return replace(packing, left=packing.left + room.before, right=packing.right + room.after)
