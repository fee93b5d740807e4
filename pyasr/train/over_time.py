"""Options of networks over time that are trained from chunks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pyasr.base.errors import UserError
from pyasr.base.options import option
from pyasr.feats.inputs import InputOptions
from pyasr.nn.layered import LayeredNetwork, read_network
from pyasr.train.chunks import Packing


@dataclass(frozen=True)
class OverTimeOptions:
    """A network of layers over time, and what it learns at once."""

    network: Path | None = option(None, "file of layers (docs/networks.md) instead of --hidden-layers, --activation and so on; layers "
                                        "splice, so --splice-left and --splice-right do not count")  # fmt: skip
    chunk: int = option(20, "with --network: neighbouring frames that are learned at once, beside context", minimum=1)
    carry_state: bool = option(False, "with --network: LSTM layers begin a chunk with the state after the utterance's chunk before, and "
                                      "decode utterances as a whole")  # fmt: skip

    def packing(self, input: InputOptions, dim: int) -> Packing:
        """What stores make of utterances of `dim` columns: chunks for the network, spliced frames, as `input` says, without one."""
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
