"""Small networks with random parameters for tests of export."""

import numpy as np
import torch

from pyasr.nn.networks.acoustic import AcousticModel, log_priors
from pyasr.nn.networks.feed_forward import FixedParts

FIXED = FixedParts(
    torch.randn(12, 13, generator=torch.Generator().manual_seed(1)),
    torch.tensor([0.5, 2.0, 1.0, 0.7]),
    torch.tensor([2, 0, 2]),
)


def with_random_parameters(network, scale=0.4):
    generator = torch.Generator().manual_seed(7)
    for parameter in network.parameters():
        parameter.data.normal_(0, scale, generator=generator)
    return network.eval()


def model_of(network, dim, num_pdfs=4, factor=1.0):
    counts = np.arange(1, num_pdfs + 1)
    return AcousticModel(
        network, torch.linspace(-1, 1, dim), torch.linspace(0.5, 1.5, dim), log_priors(counts), factor
    )
