r"""Feed-forward acoustic model: spliced, normalised features to the posteriors of tied states.

    h_0 = (x - mean) * inverse_std,   h_l = sigma(W_l h_{l-1} + b_l),  l = 1..L
    log p(s | x) = log softmax(W h_L + b)

sigma acts on single units or on groups of them (p-norm); it may be followed by a normalisation of h_l to root
mean square 1.

Fixed parts (`FixedParts`), as in Kaldi's nnet2 recipes: an affine transform of h_0; a factor on each logit
before the softmax; several outputs for one tied state, whose posteriors are added.

`pyasr.nn.layers.hidden_layers` has the initial weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from pyasr.nn.dropout import ByteDropout
from pyasr.nn.layers.hidden_layers import initialise_hidden, initialise_output, nonlinearity
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.nnet2_layers import Normalize, SumGroup
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.described import Described


@dataclass(frozen=True)
class FixedParts:
    """Parts of a network that are not trained; each is optional.

    transform     affine transform of the input, float32 (input_dim, input_dim + 1); the last column is added
    prior_scales  factors on the logits of the pdfs' outputs, float32 (num_pdfs,)
    extras        pdfs of the additional outputs num_pdfs, num_pdfs + 1, ..., int64; each previous output
                  belongs to one pdf
    """

    transform: torch.Tensor | None = None
    prior_scales: torch.Tensor | None = None
    extras: torch.Tensor | None = None


class FeedForward(Described):
    """Logits of `num_pdfs` tied states from `input_dim` normalised inputs.

    `layers` are the trained layers; the last one is the output layer.
    """

    def __init__(self, options: DnnOptions, input_dim: int, num_pdfs: int, fixed: FixedParts = FixedParts()):
        super().__init__()
        self.options, self.input_dim, self.num_pdfs, self.fixed = options, input_dim, num_pdfs, fixed
        num_outputs = num_pdfs + (0 if fixed.extras is None else len(fixed.extras))
        layers, width = [], input_dim
        for _ in range(options.hidden_layers):
            layers += _hidden_layer(options, width)
            width = options.hidden_dim
        self.layers = nn.Sequential(*layers, Linear(width, num_outputs))
        self.register_buffer("transform", fixed.transform, persistent=False)
        self.register_buffer("output_scales", _output_scales(fixed), persistent=False)
        self.sum_group = None if fixed.extras is None else SumGroup(fixed.extras)

    @property
    def affine_layers(self) -> list[nn.Linear]:
        """The trained layers, from the input to the output."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, input_dim) to logits (N, num_pdfs)."""
        return self.output(self.layers(self.input(x)))

    def log_posteriors(self, x: torch.Tensor) -> torch.Tensor:
        """log p(s | x), (T, num_pdfs), of all spliced frames (T, input_dim) of an utterance."""
        return torch.log_softmax(self(x), 1)

    def input(self, x: torch.Tensor) -> torch.Tensor:
        """The first layer's input, from (N, input_dim)."""
        if self.transform is None:
            return x
        transform = self.transform.to(x.dtype)
        return F.linear(x, transform[:, :-1], transform[:, -1])

    def output(self, z: torch.Tensor) -> torch.Tensor:
        """Logits (N, num_pdfs) from the output layer's elements (N, num_outputs)."""
        if self.output_scales is not None:
            z = z * self.output_scales
        return z if self.sum_group is None else self.sum_group(z)

    def describe(self) -> dict:
        """Everything except the parameters, in plain values and tensors, for `from_description`."""
        fixed = {name: None if value is None else value.cpu() for name, value in vars(self.fixed).items()}
        return {
            "options": dataclasses.asdict(self.options),
            "input_dim": self.input_dim,
            "num_pdfs": self.num_pdfs,
            "fixed": fixed,
        }

    @staticmethod
    def from_description(description: dict) -> FeedForward:
        """A network with arbitrary parameters, of the shape that `describe` returned."""
        options, fixed = DnnOptions(**description["options"]), FixedParts(**description["fixed"])
        return FeedForward(options, description["input_dim"], description["num_pdfs"], fixed)


def _hidden_layer(options: DnnOptions, dim_in: int) -> list[nn.Module]:
    layers = [Linear(dim_in, options.affine_dim), nonlinearity(options)]
    if options.normalize or options.activation == "pnorm":
        layers.append(Normalize())
    return layers + ([ByteDropout(options.dropout)] if options.dropout else [])


def _output_scales(fixed: FixedParts) -> torch.Tensor | None:
    """The factor on each output."""
    scales, extras = fixed.prior_scales, fixed.extras
    return scales if scales is None or extras is None else torch.cat([scales, scales[extras]])


def initialise(model: FeedForward, options: DnnOptions, generator: torch.Generator) -> None:
    """Draw random initial parameters, the same for the same `generator`."""
    *hidden, output = model.affine_layers
    for layer in hidden:
        initialise_hidden(layer, options, layer is hidden[0], generator)
    initialise_output(output, options, generator)
