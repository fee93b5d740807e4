r"""Feed-forward acoustic model: spliced, normalised features to the posteriors of tied states.

    h_0 = (x - mean) * inverse_std,   h_l = sigma(W_l h_{l-1} + b_l),  l = 1..L,   log p(s | x) = log softmax(W h_L + b)

Initial weights:
* ReLU: W ~ N(0, 2 / in), biases 0 (He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10); output layer 0, so that
  training begins at equal posteriors and without a shock (as in Kaldi's nnet3).
* sigmoid: W ~ N(0, s^2) with s = 3.5 sqrt(2 / (in + out)), first layer times sqrt(1/12), hidden biases uniform in [-4, 0], output biases
  0: what Kaldi's nnet1 recipes start from without pretraining.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from pyasr.base.options import option

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}


@dataclass(frozen=True)
class DnnOptions:
    """The shape of a feed-forward network."""

    hidden_layers: int = option(4, "number of hidden layers", minimum=1)
    hidden_dim: int = option(768, "units of each hidden layer", minimum=1)
    activation: str = option("relu", "nonlinearity of the hidden layers", choices=("relu", "sigmoid"))
    dropout: float = option(0.0, "share of hidden units left out in training", minimum=0.0, maximum=0.9)


class ByteDropout(nn.Module):
    """Dropout that draws one random byte for each unit, an eighth of the cost of `nn.Dropout` on a CPU; shares are multiples of 1/256."""

    def __init__(self, share: float):
        super().__init__()
        self.threshold = round(256 * share)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In training, `x` with random elements 0 and the others scaled up by the inverse share of survivors; otherwise `x` itself."""
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold
        return x * kept.to(x.dtype).mul_(256 / (256 - self.threshold))


class FeedForward(nn.Module):
    """Logits of `num_pdfs` tied states from `input_dim` inputs, which are already normalised."""

    def __init__(self, options: DnnOptions, input_dim: int, num_pdfs: int):
        super().__init__()
        self.num_pdfs = num_pdfs
        dims = [input_dim] + [options.hidden_dim] * options.hidden_layers
        layers: list[nn.Module] = []
        for dim_in, dim_out in zip(dims, dims[1:]):
            layers += [nn.Linear(dim_in, dim_out), ACTIVATIONS[options.activation]()]
            if options.dropout:
                layers.append(ByteDropout(options.dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(dims[-1], num_pdfs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, input_dim) to logits (N, num_pdfs)."""
        return self.layers(x)


@torch.no_grad()
def initialise(model: FeedForward, options: DnnOptions, generator: torch.Generator) -> None:
    """Random initial parameters, the same for the same `generator`."""
    linear = [layer for layer in model.layers if isinstance(layer, nn.Linear)]
    for index, layer in enumerate(linear):
        is_output = layer is linear[-1]
        dim_out, dim_in = layer.weight.shape
        if options.activation == "sigmoid":
            std = 3.5 * math.sqrt(2 / (dim_in + dim_out)) * (math.sqrt(1 / 12) if index == 0 else 1.0)
        else:
            std = 0.0 if is_output else math.sqrt(2 / dim_in)
        layer.weight.normal_(0, std, generator=generator)
        if options.activation == "sigmoid" and not is_output:
            layer.bias.uniform_(-4, 0, generator=generator)
        else:
            layer.bias.zero_()
