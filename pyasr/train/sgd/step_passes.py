"""The device work of a captured step (`captured_step`): for a plain feed-forward network, and with autograd
for any other network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pyasr.nn.layers.lagged_natural_gradient import LaggedNaturalGradient
from pyasr.nn.layers.natural_gradient import OnlineNaturalGradient
from pyasr.nn.layers.preconditioned_layers import LayerPreconditioner, NaturalGradient
from pyasr.nn.networks.feed_forward_pass import FeedForwardPass, SideGroups, is_plain
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.tensor.squares import Number
from pyasr.tensor.step_kernels import Verdict, descend
from pyasr.train.sgd.components import Component
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.sgd.nonfinite_guard import NonfiniteGuard
from pyasr.train.training_options import LearnerOptions


class CapturableLearner(Protocol):
    """Parts of a `pyasr.train.sgd.learner.Learner` that a captured step uses; that class describes them."""

    network: nn.Module
    options: LearnerOptions
    criterion: Criterion
    natural_gradient: NaturalGradient
    flat: FlatParameters
    components: list[Component]
    limits: Tensor | None
    velocity: Tensor | None
    nonfinite_guard: NonfiniteGuard
    gradient_sum: GradientSum | None
    num_steps: int

    def learn(
        self, x: Tensor, targets: Tensor, rate: Number, number: int | Tensor, change_scale: float
    ) -> Tensor:
        """One step of SGD without a graph."""


class PreparedStep(NamedTuple):
    """A step for minibatches of one shape.

    x, targets  buffers to fill before a step
    run         runs the step; its arguments are whether natural gradient is updated, and `change_scale` of
                `Learner.step`
    """

    x: Tensor
    targets: Tensor
    run: Callable[[bool, float], None]


class PlainPasses:
    """A step with `pyasr.nn.networks.feed_forward_pass`, whose update has no momentum, l2 or limits.

    groups  sides of layers whose natural gradient is computed together
    counts  result of the last step, as `Learner.step` returns it
    """

    def __init__(self, learner: CapturableLearner, rate: Tensor, number: Tensor, workers: ThreadPoolExecutor):
        self.learner, self.rate, self.number, flat = learner, rate, number, learner.flat
        # a plain network has no other layers
        layers = [
            layer
            for layer in learner.natural_gradient.layers.values()
            if isinstance(layer, LayerPreconditioner)
        ]
        weights = flat.padded(flat.work)[::2]

        def group(sides: list, ones: bool, width: int) -> LaggedNaturalGradient:
            return LaggedNaturalGradient(sides, ones, width, flat.work.dtype, workers)

        inputs, outputs, self._groups = (
            [layer.input for layer in layers],
            [layer.output for layer in layers],
            None,
        )
        if layers:
            self._groups = SideGroups(
                group(inputs[:1], True, weights[0].shape[1]),
                group(inputs[1:], True, weights[-1].shape[1]),
                group(outputs[:-1], False, len(weights[0])),
                group(outputs[-1:], False, len(weights[-1])),
            )
        self.groups = list(self._groups or ())
        device = flat.master.device
        self._verdict = Verdict(
            [torch.zeros_like(group.traces) for group in self.groups],
            torch.zeros(len(learner.components), device=device),
            torch.zeros(3, dtype=torch.float64, device=device),
            learner.nonfinite_guard.counts,
        )
        self.counts = self._verdict.counts

    @staticmethod
    def takes(learner: CapturableLearner) -> bool:
        """Whether this class supports a learner."""
        options, natural = learner.options, learner.options.natural_gradient
        limits = (
            options.max_change
            or natural.max_change_per_sample
            or natural.max_gradient_per_sample
            or learner.limits is not None
        )
        return is_plain(learner.network) and learner.velocity is None and not limits

    def prepared(self, x: Tensor, targets: Tensor) -> PreparedStep:
        """A step for minibatches of this shape."""
        flat = self.learner.flat
        passes = FeedForwardPass(
            self.learner.network, len(x), flat.padded(flat.work), flat.padded(flat.grad), self._groups
        )
        return PreparedStep(passes.x, passes.targets, partial(self._run, passes))

    def _run(self, passes: FeedForwardPass, updates: bool, change_scale: float) -> None:
        passes.gradients(self._verdict, self.rate, self.number, updates)
        flat = self.learner.flat
        for component, factor in zip(self.learner.components, self._verdict.factors):
            for span, relative in component.parts:
                descend(flat.master[span], flat.grad[span], flat.work[span], factor, relative)


class LayersPasses:
    """The learner's own step. Each side of a layer has its own natural gradient."""

    def __init__(self, learner: CapturableLearner, rate: Tensor, number: Tensor, workers: ThreadPoolExecutor):
        self.learner, self.rate, self.number = learner, rate, number
        self.counts = torch.zeros(3, dtype=torch.float64, device=rate.device)
        self.groups = [
            self._group(side, ones, workers)
            for layer in learner.natural_gradient.layers.values()
            if isinstance(layer, LayerPreconditioner)
            for side, ones in zip(layer.sides, (layer.has_bias, False))
            if isinstance(side, OnlineNaturalGradient)
        ]

    def _group(self, side, ones: bool, workers: ThreadPoolExecutor) -> LaggedNaturalGradient:
        lagged = LaggedNaturalGradient(
            [side], ones, side.factor.shape[1] - ones, self.learner.flat.work.dtype, workers
        )
        side.lagged = lagged.precondition
        return lagged

    def prepared(self, x: Tensor, targets: Tensor) -> PreparedStep:
        """A step for minibatches of this shape."""
        x, targets = torch.empty_like(x), torch.empty_like(targets)
        return PreparedStep(x, targets, partial(self._run, x, targets))

    def _run(self, x: Tensor, targets: Tensor, updates: bool, change_scale: float) -> None:
        for group in self.groups:
            group.updates = updates
            if updates:
                group.begin()
        counts = self.learner.learn(x, targets, self.rate, self.number, change_scale)
        self.counts.copy_(counts)
