"""A learner's step on a GPU as one CUDA graph. The host launches one graph per step and never waits for the
device.

`step_passes` defines what the device computes. The learning rate, the number of the step and the inputs are
values on the device, so every step replays the same graph. A minibatch shape is captured when it occurs for
the second time in a row; at most four shapes are captured. Minibatches of other shapes, such as the last of
an epoch, are computed in the same way without a graph. Natural gradient has the lag that
`pyasr.nn.layers.lagged_natural_gradient` defines. The first minibatches, each of which updates natural
gradient, are computed without capture.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from pyasr.nn.dropout import has_dropout
from pyasr.nn.layers.lagged_natural_gradient import HostInput, LaggedNaturalGradient, Pending
from pyasr.nn.layers.natural_gradient import NUM_FIRST_UPDATES, OnlineNaturalGradient
from pyasr.nn.layers.preconditioned_layers import FactorsPreconditioner
from pyasr.train.sgd.criterion import CrossEntropy
from pyasr.train.sgd.step_passes import CapturableLearner, LayersPasses, PlainPasses, PreparedStep

_MAX_WORKERS, _MAX_SHAPES = 14, 4
Shape = tuple[tuple[int, ...], tuple[int, ...], float]  # of inputs and targets, and `change_scale`


def reasons_not_captured(learner: CapturableLearner) -> str:
    """The reasons why the steps of a learner cannot be captured; empty if they can.

    Only the cross-entropy of frames is captured, because the operations of other criteria may depend on the
    data.
    """
    if type(learner.criterion) is not CrossEntropy:
        return "the criterion is not the cross-entropy of frames"
    layers = learner.natural_gradient.layers.values()
    reasons = {
        "the network has dropout": has_dropout(learner.network),
        "l2 changes with the number of ranks": bool(learner.options.l2),
        "gradients are summed over ranks": learner.gradient_sum is not None,
        "natural gradient is computed within minibatches": learner.options.natural_gradient.natural_gradient
        == "simple",
        "natural gradient of single factors has its own period": any(
            isinstance(layer, FactorsPreconditioner) for layer in layers
        ),
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)


class CapturedStep:
    """Captured steps of one learner, from its current state on.

    pending  the value of `state_dict`, for a learner that resumes from a checkpoint
    """

    def __init__(self, learner: CapturableLearner, pending: list[Pending] | None = None):
        self.learner, self.device = learner, learner.flat.master.device
        self.rate, self.number = (
            torch.zeros((), device=self.device),
            torch.zeros((), dtype=torch.int64, device=self.device),
        )
        self.sides = online_sides(learner)
        kind = PlainPasses if PlainPasses.takes(learner) else LayersPasses
        self.passes = kind(learner, self.rate, self.number, _workers())
        self._host = [self._transfers(group) for group in self.passes.groups]
        self._steps: dict[Shape, PreparedStep] = {}
        self._graphs: dict[Shape, dict[bool, torch.cuda.CUDAGraph]] = {}
        self._num_rows: dict[Shape, list[int]] = {}  # of each group
        self._last: Shape | None = None
        for group, its_own in zip(self.passes.groups, pending or ()):
            group.restore(its_own)

    def _transfers(self, group: LaggedNaturalGradient) -> tuple[Tensor, ...]:
        """Host buffers for S, traces, A and units of a group."""
        pinned = self.device.type == "cuda"
        places = tuple(
            torch.zeros(part.shape, dtype=part.dtype, pin_memory=pinned) for part in _on_device(group)
        )
        places[-1].copy_(group.inverse_units)
        return places

    def state_dict(self) -> list[Pending]:
        """The host's results not yet used by natural gradient. The current state is copied to the sides."""
        for group in self.passes.groups:
            group.write_back()
        return [group.pending() for group in self.passes.groups]

    def end(self) -> None:
        """Stop capturing the steps of the learner."""
        self.learner.flat.grad.zero_()
        for side in self.sides:
            side.lagged = None

    def step(self, x: Tensor, targets: Tensor, rate: float, change_scale: float) -> Tensor:
        """As `Learner.step`."""
        shape = tuple(x.shape), tuple(targets.shape), change_scale
        prepared = self._prepared(shape, x, targets)
        prepared.x.copy_(x)
        prepared.targets.copy_(targets)
        if self._is_to_capture(shape):
            self._graphs[shape] = self._captured(shape)
        self._last = shape
        self.rate.fill_(rate)
        self.number.fill_(self.learner.num_steps)
        updates = bool(self.sides) and self.sides[0].update_is_due()
        if updates:
            self._take_results()
        if shape in self._graphs:
            self._graphs[shape][updates].replay()
        else:
            prepared.run(updates, change_scale)
            self._num_rows[shape] = [group.num_rows for group in self.passes.groups]
        if updates:
            self._start_solving(self._num_rows[shape])
        for side in self.sides:
            side.num_minibatches += 1
        return self.passes.counts.clone()

    def _prepared(self, shape: Shape, x: Tensor, targets: Tensor) -> PreparedStep:
        """The step of this shape. The buffers of other shapes that are not captured are freed."""
        if shape not in self._steps:
            self._steps = {known: self._steps[known] for known in self._graphs}
            self._steps[shape] = self.passes.prepared(x, targets)
        return self._steps[shape]

    def _is_to_capture(self, shape: Shape) -> bool:
        is_again = shape == self._last and shape not in self._graphs
        return is_again and len(self._graphs) < _MAX_SHAPES and self.device.type == "cuda"

    def _captured(self, shape: Shape) -> dict[bool, torch.cuda.CUDAGraph]:
        """A graph of steps without an update of F and, for natural gradient, one with it."""
        self.rate.zero_()
        with self._unchanged():
            return {
                updates: self._graph(shape, updates) for updates in ([False, True] if self.sides else [False])
            }

    def _graph(self, shape: Shape, updates: bool) -> torch.cuda.CUDAGraph:
        prepared, change_scale, stream, graph = (
            self._steps[shape],
            shape[-1],
            torch.cuda.Stream(),
            torch.cuda.CUDAGraph(),
        )
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # warm-up with a learning rate of 0; compiles kernels
                prepared.run(updates, change_scale)
        torch.cuda.current_stream().wait_stream(stream)
        # other threads may wait for the device
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            prepared.run(updates, change_scale)
        return graph

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Restore the state of the learner and of natural gradient at the end."""
        learner, groups = self.learner, self.passes.groups
        kept = [
            learner.flat.master,
            learner.nonfinite_guard.counts,
            *([] if learner.velocity is None else [learner.velocity]),
        ]
        kept += [
            part for group in groups for part in (group.rows, group.w, group.gram, group.traces, group.mix)
        ]
        kept += [group.last for group in groups if group.ones]
        before = [part.clone() for part in kept]
        for group in groups:
            group.mix.copy_(torch.eye(2 * group.rank, device=self.device)[group.rank :])
        yield
        for part, value in zip(kept, before):
            part.copy_(value)
        learner.flat.grad.zero_()
        learner.flat.refresh()

    def _take_results(self) -> None:
        for group, (_, _, mix, inverse_units) in zip(self.passes.groups, self._host):
            if (taken := group.take()) is not None:
                mix.copy_(torch.from_numpy(taken[0]))
                inverse_units.copy_(torch.from_numpy(taken[1]).view_as(inverse_units))
                group.mix.copy_(mix, non_blocking=True)
                group.inverse_units.copy_(inverse_units, non_blocking=True)

    def _start_solving(self, num_rows: list[int]) -> None:
        for group, (gram, traces, *_) in zip(self.passes.groups, self._host):
            gram.copy_(group.gram, non_blocking=True)
            traces.copy_(group.traces, non_blocking=True)
        wait = _event(self.device)
        for group, (gram, traces, _, inverse_units), num in zip(self.passes.groups, self._host, num_rows):
            group.start_solving(
                HostInput(gram.numpy(), traces.numpy(), inverse_units.numpy()[:, 0, 0], num, wait)
            )


def _on_device(group: LaggedNaturalGradient) -> tuple[Tensor, ...]:
    return group.gram, group.traces, group.mix, group.inverse_units


def _event(device: torch.device):
    """A function that waits until the device has finished all work launched so far."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize


@functools.cache
def _workers() -> ThreadPoolExecutor:
    """Threads that compute eigenvectors while the device trains."""
    return ThreadPoolExecutor(max(1, min(_MAX_WORKERS, len(os.sched_getaffinity(0)) - 1)), "natural-gradient")


def online_sides(learner: CapturableLearner) -> list[OnlineNaturalGradient]:
    """The sides of layers that are preconditioned by earlier minibatches. Layers that are preconditioned only
    for their change limits have none."""
    sides = (side for layer in learner.natural_gradient.layers.values() for side in layer.sides)
    return [side for side in sides if isinstance(side, OnlineNaturalGradient)]


def is_past_first_updates(learner: CapturableLearner) -> bool:
    """Whether the first minibatches, each of which updates natural gradient, are over."""
    return all(
        side.num_minibatches > NUM_FIRST_UPDATES and side.factor is not None for side in online_sides(learner)
    )
