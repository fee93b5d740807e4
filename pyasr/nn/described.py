"""What networks have in common that can be made anew from what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class Described(nn.Module):
    """A network with `describe`, and `from_description`, which makes one of the same shape of what that gave."""

    def with_parameters(self, values: Iterable[Tensor]) -> Described:
        """A copy in float32 on the CPU, for evaluation, with these parameters, which are in the order of `parameters()`."""
        network = self.from_description(self.describe())
        for parameter, value in zip(network.parameters(), values):
            parameter.data.copy_(value)
        return network.eval()
