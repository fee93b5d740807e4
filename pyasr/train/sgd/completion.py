"""Reports, during a backward pass, which part of the gradient is complete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from pyasr.nn.layers.preconditioned_layers import NaturalGradient


class Completion:
    """Calls `on_complete(begin)` whenever the gradient has become complete from element `begin` of the flat
    buffers to their end. In most networks the gradients of layers become complete from the last layer to the
    first.

    spans             slice of each parameter of `network` in the flat buffers
    natural_gradient  layers of `network` whose gradients do not come from autograd
    """

    def __init__(
        self,
        network: nn.Module,
        spans: list[slice],
        natural_gradient: NaturalGradient,
        on_complete: Callable[[int], None],
    ):
        self._spans, self._on_complete = spans, on_complete
        self.restart()
        for number, (name, parameter) in enumerate(network.named_parameters()):
            layer = natural_gradient.layers.get(name.rpartition(".")[0])
            if layer is None:
                parameter.register_post_accumulate_grad_hook(partial(self._complete, number))
            else:
                layer.when_complete.append(partial(self._complete, number))

    def restart(self) -> None:
        """Begin a backward pass."""
        self._done: set[int] = set()
        self._first = len(self._spans)

    def _complete(self, number: int, parameter: nn.Parameter | None = None) -> None:
        if number in self._done:
            raise RuntimeError(
                f"parameter {number} got a gradient twice in a minibatch, so it is unknown when the "
                "gradient is complete"
            )
        self._done.add(number)
        before = self._first
        while self._first - 1 in self._done:
            self._first -= 1
        if self._first < before:
            self._on_complete(self._spans[self._first].start)
