"""What networks have in common that can be made anew from what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Described(nn.Module):
    """A network with `describe`, and `from_description`, which makes one of the same shape of what that gave."""

    def with_parameters(self, values: Iterable[Tensor]) -> Described:
        """A copy in float32 on the CPU, for evaluation, with these parameters, which are in the order of `parameters()`."""
        network = self.from_description(self.describe())
        for parameter, value in zip(network.parameters(), values):
            parameter.data.copy_(value)
        return network.eval()


def restored(make: Callable[[], nn.Module], parameters: dict[str, Tensor]) -> nn.Module:
    """The network that `make` makes of a file's description, with the file's parameters, for evaluation.

    It is first made without memory: a damaged description may be one of a network far larger than the file. Raises ValueError for that.
    """
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in make().state_dict().items()}
    if shapes != {name: value.shape for name, value in parameters.items()}:
        raise ValueError("the parameters are not those of the network")
    network = make()
    network.load_state_dict(parameters)
    return network.eval()
