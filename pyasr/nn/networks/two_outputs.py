"""A network over time with a second output layer in training, whose task regularises the layers below."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyasr.nn.layers.linear import Linear
from pyasr.nn.networks.described import Described
from pyasr.nn.networks.layered import LayeredNetwork


class TwoOutputs(Described):
    """`main` and a second output layer with the same input and the same number of outputs.

    share         factor on the derivatives of the second outputs in the layers below; the second layer itself
                  gets them unscaled
    output_names  names of the modules that are output layers
    """

    output_names = ("second", "main.output")

    def __init__(self, main: LayeredNetwork, share: float):
        super().__init__()
        self.second = Linear(main.output.in_features, main.num_pdfs)
        self.main, self.share, self.num_pdfs = main, share, main.num_pdfs

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, left + T + right, input_dim) to the logits of both, (N, T', num_pdfs) each."""
        hidden = self.main.hidden(x)
        scaled = hidden.detach() + self.share * (hidden - hidden.detach())
        return self.main.output(hidden).transpose(0, 1), self.second(scaled).transpose(0, 1)

    @property
    def affine_layers(self) -> list[nn.Module]:
        """All modules with parameters of their own, in the order of the parameters."""
        return [self.second, *self.main.affine_layers]

    def initialise(self, random: torch.Generator) -> None:
        """Draw initial parameters; both output layers are 0."""
        self.main.initialise(random)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def describe(self) -> dict:
        """Everything except the parameters, in plain values, for `from_description`."""
        return {"kind": "two outputs", "main": self.main.describe(), "share": self.share}

    @staticmethod
    def from_description(description: dict) -> TwoOutputs:
        """A network with arbitrary parameters, of the shape that `describe` returned."""
        return TwoOutputs(LayeredNetwork.from_description(description["main"]), description["share"])
