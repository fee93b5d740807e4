r"""Forward pass, backward pass and natural gradient of a feed-forward network, written explicitly for a GPU.

Each product, and each pass over a matrix, is computed once. Layers of equal shape are preconditioned as a
batch, gradients are written instead of added, and the output layer is padded to a favourable number of rows
(`pyasr.parallel.mixing.flat`). The device never waits for the host, so a CUDA graph can contain the whole
step. The loss is the cross-entropy of one target for each row. With L hidden layers:

    a_0 = x,  a_l = sigma(W_l a_{l-1} + b_l),  z = W_{L+1} a_L + b_{L+1}
    y_{L+1} = dF/dz,  y_l = sigma'(a_l) o (W_{l+1}' y_{l+1})
    dF/d[W_l b_l]  =  Y_l' [A_{l-1} 1]     or, by natural gradient,     g_l Yhat_l' [Ahat_{l-1} onehat]

The written gradients lack the factor g_l, which is part of the factor of the update
(`pyasr.tensor.step_kernels.judge`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pyasr.nn.layers.fast_tanh import Tanh
from pyasr.nn.layers.lagged_natural_gradient import LaggedNaturalGradient
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.tensor.step_kernels import Verdict, cross_entropy_, judge, residual


@dataclass(frozen=True)
class Activation:
    """A nonlinearity.

    forward   sigma, in place
    backward  (y, a_l): replaces y, the derivative by a_l, by the derivative by the argument of sigma
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], object]


ACTIVATIONS = {
    nn.Sigmoid: Activation(torch.sigmoid_, lambda y, a: torch.ops.aten.sigmoid_backward(y, a, grad_input=y)),
    Tanh: Activation(torch.tanh_, lambda y, a: torch.ops.aten.tanh_backward(y, a, grad_input=y)),
    nn.ReLU: Activation(torch.relu_, lambda y, a: torch.ops.aten.threshold_backward(y, a, 0, grad_input=y)),
}


def is_plain(network: nn.Module) -> bool:
    """Whether `network` consists of affine layers with one of these nonlinearities between them."""
    if not isinstance(network, FeedForward) or any(part is not None for part in vars(network.fixed).values()):
        return False
    hidden = list(network.layers)[:-1]
    are_affine = all(isinstance(layer, nn.Linear) for layer in hidden[::2])
    return bool(hidden) and are_affine and all(type(layer) in ACTIVATIONS for layer in hidden[1::2])


@dataclass
class SideGroups:
    """Natural gradient of the inputs and outputs of all layers, grouped by shape.

    first   inputs of the first layer
    inputs  inputs of all other layers
    hidden  derivatives by the outputs of hidden layers
    output  derivatives by the outputs of the output layer
    """

    first: LaggedNaturalGradient
    inputs: LaggedNaturalGradient
    hidden: LaggedNaturalGradient
    output: LaggedNaturalGradient

    def __iter__(self) -> Iterator[LaggedNaturalGradient]:
        return iter((self.first, self.inputs, self.hidden, self.output))


@dataclass
class Sides:
    """Data of the four groups, (B, N, D) each, and the columns of ones of the first two, (B, 1, N)."""

    first: Tensor
    inputs: Tensor
    hidden: Tensor
    output: Tensor
    first_ones: Tensor
    ones: Tensor

    @property
    def data(self) -> tuple[Tensor, ...]:
        """The data without the columns of ones."""
        return self.first, self.inputs, self.hidden, self.output


class FeedForwardPass:
    """Gradients of minibatches of `num_rows` rows.

    parameters, gradients  weight and bias of one layer after the other. The output layer may have more rows
                           than classes: the gradients of these rows are zero, and their parameters have no
                           effect if they are finite.
    groups                 None: plain gradients
    x, targets             (num_rows, input_dim), int64 (num_rows,): fill them before calling `gradients`
    """

    def __init__(
        self,
        network: FeedForward,
        num_rows: int,
        parameters: list[Tensor],
        gradients: list[Tensor],
        groups: SideGroups | None,
    ):
        self.weights, self.biases = parameters[::2], parameters[1::2]
        self.by_weights, self.by_biases = gradients[::2], gradients[1::2]
        self.num_classes, self.groups = network.affine_layers[-1].out_features, groups
        self.activation = ACTIVATIONS[type(network.layers[1])]
        num_hidden = len(self.weights) - 1
        (width, input_dim) = self.weights[0].shape
        make = self.weights[0].new_zeros
        self.x, self.targets = make(num_rows, input_dim), make(num_rows, dtype=torch.int64)
        self.a, self.y = make(num_hidden, num_rows, width), make(num_hidden, num_rows, width)
        self.z = make(num_rows, len(self.weights[-1]))
        wide = torch.promote_types(self.x.dtype, torch.float32)
        self.losses, self.correct = make(num_rows, dtype=wide), make(num_rows, dtype=wide)
        self._ones = make(num_hidden + 1, 1, num_rows).fill_(1)
        self._stream = torch.cuda.Stream() if self.x.device.type == "cuda" else None

    def gradients(self, verdict: Verdict, rate: Tensor, number: Tensor, updates: bool) -> None:
        """Write the gradients of `x` and `targets` and the verdict on them.

        rate, number  learning rate and number of the step, on the device
        updates       whether natural gradient takes its next W and prepares the one after it
        """
        groups = list(self.groups) if updates and self.groups is not None else []
        with self._concurrently(updates):
            for group in groups:
                group.begin()
        self._forward()
        cross_entropy_(self.z, self.targets, self.num_classes, self.losses, self.correct)
        self._backward()
        self._wait(updates)
        sides = Sides(self.x[None], self.a, self.y, self.z[None], self._ones[:1], self._ones[1:])
        hats, squares, projections = self._preconditioned(sides)
        with self._concurrently(updates):
            for group, x, ht in zip(groups, sides.data, projections):
                group.update_gram(x, ht)
        self._write(hats)
        if self.groups is None:
            self._mark_infinite_inputs()
        judge(
            verdict,
            self.losses,
            self.correct,
            squares,
            [hats.first_ones, hats.ones],
            self.by_biases,
            rate,
            number,
        )
        self._wait(updates)
        for group, trace in zip(groups, verdict.traces):
            group.traces.copy_(trace)

    def _mark_infinite_inputs(self) -> None:
        """Make the gradient of the first biases not finite if the input is not finite. An infinite input
        saturates units. Their derivatives are 0, which leaves this gradient finite, but the gradient of the
        weights is 0 times infinity."""
        self.by_biases[0].add_(0 * self.x.sum())

    def _concurrently(self, forks: bool) -> contextlib.AbstractContextManager:
        """If `forks`, a GPU runs the block concurrently with what follows, until `_wait`."""
        if not forks or self._stream is None:
            return contextlib.nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def _wait(self, forks: bool) -> None:
        if forks and self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)

    def _forward(self) -> None:
        below = self.x
        for weight, bias, a in zip(self.weights, self.biases, self.a):
            torch.addmm(bias, below, weight.T, out=a)
            below = self.activation.forward(a)
        torch.addmm(self.biases[-1], below, self.weights[-1].T, out=self.z)

    def _backward(self) -> None:
        above = self.z
        for weight, y, a in zip(self.weights[:0:-1], [*self.y][::-1], [*self.a][::-1]):
            torch.mm(above, weight, out=y)
            self.activation.backward(y, a)
            above = y

    def _preconditioned(self, sides: Sides) -> tuple[Sides, list[Tensor], list[Tensor]]:
        """(Xhat of all sides, squares of each group as `judge` expects them, H' of each group); the lists are
        empty for plain gradients."""
        if self.groups is None:
            return sides, [], []
        projections = [group.projections(x) for group, x in zip(self.groups, sides.data)]
        hats = [torch.empty_like(x) for x in sides.data]
        squares = [
            residual(x, ht, group.w, hat)
            for group, x, ht, hat in zip(self.groups, sides.data, projections, hats)
        ]
        ones = []
        for group, column, ht in zip(self.groups, (sides.first_ones, sides.ones), projections):
            assert group.last is not None  # inputs have a column of ones
            ones.append(torch.baddbmm(column, group.last.mT, ht, alpha=-1))
        return Sides(*hats, *ones), squares, projections

    def _write(self, sides: Sides) -> None:
        """Write the gradients of the first layer, of the other hidden layers, and of the output layer."""
        for column, x, y, layers in (
            (sides.first_ones, sides.first, sides.hidden[:1], slice(1)),
            (sides.ones[:-1], sides.inputs[:-1], sides.hidden[1:], slice(1, -1)),
            (sides.ones[-1:], sides.inputs[-1:], sides.output, slice(-1, None)),
        ):
            _products(y.mT, x, self.by_weights[layers])
            _products(column, y, [bias[None] for bias in self.by_biases[layers]])


def _products(a: Tensor, b: Tensor, totals: list[Tensor]) -> None:
    """Write a batch of products to these tensors, in one call if at equal distances in one buffer."""
    distances = {after.data_ptr() - before.data_ptr() for before, after in zip(totals, totals[1:])}
    if len(distances) == 1 and len({total.untyped_storage().data_ptr() for total in totals}) == 1:
        distance = distances.pop() // totals[0].itemsize
        torch.bmm(
            a, b, out=totals[0].as_strided((len(totals), *totals[0].shape), (distance, *totals[0].stride()))
        )
        return
    for total, *pair in zip(totals, a, b):
        torch.mm(*pair, out=total)
