"""Base of networks that can be reconstructed from their description."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Described(nn.Module):
    """A network with `describe` and `from_description`, which constructs a network of the same shape from the
    description."""

    def with_parameters(self, values: Iterable[Tensor]) -> Described:
        """A float32 copy on the CPU, for evaluation, with these parameters in the order of `parameters()`."""
        network = self.from_description(self.describe())
        for parameter, value in zip(network.parameters(), values):
            parameter.data.copy_(value)
        return network.eval()


def restored(make: Callable[[], nn.Module], parameters: dict[str, Tensor]) -> nn.Module:
    """The network that `make` constructs from a file's description, with the file's parameters, for
    evaluation.

    `make` is first called without memory: a damaged description may be that of a network much larger than the
    file. Raises ValueError in that case.
    """
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in make().state_dict().items()}
    if shapes != {name: value.shape for name, value in parameters.items()}:
        raise ValueError("parameters that do not match the network")
    network = make()
    network.load_state_dict(parameters)
    return network.eval()
