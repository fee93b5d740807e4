"""Nonlinearity and initial weights of a hidden layer, and initial weights of an output layer.

Initial weights:
* ReLU: W ~ N(0, 2 / in), biases 0 (He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015, equation 10).
* p-norm and tanh: W ~ N(0, 1 / out), with out the elements of W h (p-norm: before grouping), biases ~
  N(0, 0.5^2), as in Kaldi's nnet2.
* sigmoid: W ~ N(0, s^2) with s = 3.5 sqrt(2 / (in + out)), first layer times sqrt(1/12), hidden biases
  uniform in [-4, 0], output biases 0, as in Kaldi's nnet1 recipes without pretraining.
* the output layer is 0 except in sigmoid networks, so that training starts with equal posteriors.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from pyasr.nn.layers.fast_tanh import Tanh
from pyasr.nn.layers.nnet2_layers import PNorm
from pyasr.nn.network_options import DnnOptions


def nonlinearity(options: DnnOptions) -> nn.Module:
    """The nonlinearity of a hidden layer: (N, affine_dim) to (N, hidden_dim)."""
    kinds = {
        "relu": nn.ReLU,
        "sigmoid": nn.Sigmoid,
        "tanh": Tanh,
        "pnorm": lambda: PNorm(options.pnorm_group),
    }
    return kinds[options.activation]()


@torch.no_grad()
def initialise_hidden(
    layer: nn.Linear, options: DnnOptions, is_first: bool, generator: torch.Generator
) -> None:
    """Draw random initial parameters of one hidden layer."""
    dim_out, dim_in = layer.weight.shape
    if options.activation == "sigmoid":
        layer.weight.normal_(
            0, _nnet1_std(layer) * (math.sqrt(1 / 12) if is_first else 1.0), generator=generator
        )
        layer.bias.uniform_(-4, 0, generator=generator)
    elif options.activation == "relu":
        layer.weight.normal_(0, math.sqrt(2 / dim_in), generator=generator)
        layer.bias.zero_()
    else:
        layer.weight.normal_(0, math.sqrt(1 / dim_out), generator=generator)
        layer.bias.normal_(0, 0.5, generator=generator)


@torch.no_grad()
def initialise_output(layer: nn.Linear, options: DnnOptions, generator: torch.Generator) -> None:
    """Set the initial parameters of the output layer."""
    layer.weight.zero_()
    layer.bias.zero_()
    if options.activation == "sigmoid":
        layer.weight.normal_(0, _nnet1_std(layer), generator=generator)


def _nnet1_std(layer: nn.Linear) -> float:
    return 3.5 * math.sqrt(2 / sum(layer.weight.shape))
