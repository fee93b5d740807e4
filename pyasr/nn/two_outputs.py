"""A network over time with a second output layer, which is there in training alone: its task keeps the layers below from overfitting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyasr.nn.described import Described
from pyasr.nn.layered import LayeredNetwork
from pyasr.nn.linear import Linear


class TwoOutputs(Described):
    """`main` and a second output layer of as many outputs, which sees what main's output layer sees.

    share         factor on the derivatives of what is computed from the second outputs, in the layers below; the second layer has them as
                  they are
    output_names  of the modules that are output layers
    """

    output_names = ("second", "main.output")

    def __init__(self, main: LayeredNetwork, share: float):
        super().__init__()
        self.second = Linear(main.output.in_features, main.num_pdfs)
        self.main, self.share, self.num_pdfs = main, share, main.num_pdfs

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, left + T + right, input_dim) to logits of both, (N, T', num_pdfs) each."""
        hidden = self.main.hidden(x)
        alike = hidden.detach() + self.share * (hidden - hidden.detach())
        return self.main.output(hidden).transpose(0, 1), self.second(alike).transpose(0, 1)

    @property
    def affine_layers(self) -> list[nn.Module]:
        """All modules that have parameters of their own, in the order of these."""
        return [self.second, *self.main.affine_layers]

    def initialise(self, random: torch.Generator) -> None:
        """Random initial parameters; both output layers are 0."""
        self.main.initialise(random)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def describe(self) -> dict:
        """All but the parameters, in plain values, from which `from_description` makes the same network."""
        return {"kind": "two outputs", "main": self.main.describe(), "share": self.share}

    @staticmethod
    def from_description(description: dict) -> TwoOutputs:
        """A network with arbitrary parameters of the shape that `describe` gave."""
        return TwoOutputs(LayeredNetwork.from_description(description["main"]), description["share"])
