r"""Natural gradient in any network: affine and convolutional layers compute their gradients from
preconditioned data.

    natural_gradient = precondition(network, NaturalGradientOptions(natural_gradient="online"))
    loss(network(x)).backward()  # parameters' .grad are the preconditioned gradients

The loss must be a sum over frames. `precondition` finds layers by type (`nn.Linear`, `nn.Conv1d`, `nn.Conv2d`
with one group), and layers that have `factors_to_precondition` and pass the derivatives by them to their
`preconditioner`. It changes the gradients of their parameters only: outputs and derivatives by inputs are the
same, also within `torch.autocast`. It logs the names of layers with matrices that it does not support. With X
the inputs of a layer for all frames of a minibatch, with a 1 appended if there is a bias, and Y the
derivatives by its outputs (see `pyasr.nn.layers.natural_gradient`),

    dF/d[W b]  =  Y' X       becomes       g Yhat' Xhat
    g = g_in g_out min(1, m N / (a g_in g_out sum_n |xhat_n| |yhat_n|))

The minimum is nnet2's limit on the change by a minibatch of N frames, which bounds the norm of the update a g
Yhat' Xhat by m N (`--max-change-per-sample` m; the learning rate a is set as `rate`).
`--max-gradient-per-sample` is the same with a = 1. A convolution is an affine layer of the patches of its
input (im2col), one row for each position; padding that `unfold` does not support is applied before. With
autocast, X and Y have its type; float16 data, whose range is too small for their products, are preconditioned
in float32.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.nn.layers.linear import Linear
from pyasr.nn.layers.natural_gradient import OnlineNaturalGradient, precondition_within_minibatch
from pyasr.nn.network_options import NaturalGradientOptions
from pyasr.tensor.products import add_mm, affine, mm
from pyasr.tensor.squares import Number

FACTORS_RANK, FACTORS_UPDATE_PERIOD = 8, 10  # of Kaldi's NaturalGradientPerElementScaleComponent
_MAX_FLOAT32 = torch.finfo(torch.float32).max


class Unchanged:
    """The side of a layer without preconditioning."""

    def __call__(self, x: Tensor, ones: bool) -> tuple[Tensor, Tensor | None, Number]:
        return x, x.new_ones(len(x)) if ones else None, 1.0

    def skip_warm_up(self) -> int:
        return 1

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        pass


class Simple(Unchanged):
    """The side of a layer preconditioned within the minibatch."""

    def __init__(self, alpha: float):
        self.alpha = alpha

    def __call__(self, x: Tensor, ones: bool) -> tuple[Tensor, Tensor | None, Number]:
        if not ones:
            xhat, scale = precondition_within_minibatch(x, self.alpha)
            return xhat, None, scale
        xhat, scale = precondition_within_minibatch(torch.cat([x, x.new_ones(len(x), 1)], 1), self.alpha)
        return xhat[:, :-1], xhat[:, -1], scale


class Online(OnlineNaturalGradient):
    """The side of a layer preconditioned by earlier minibatches."""

    def __call__(self, x: Tensor, ones: bool) -> tuple[Tensor, Tensor | None, Number]:
        if ones:
            return self.precondition_with_ones(x)
        xhat, scale = self.precondition(x)
        return xhat, None, scale


def make_side(options: NaturalGradientOptions, dim: int, rank: int) -> Unchanged | Online:
    """The preconditioner of one side, with `dim` columns, not counting an appended one."""
    if options.natural_gradient == "none":
        return Unchanged()
    if options.natural_gradient == "simple":
        return Simple(options.ng_alpha)
    rank = min(rank, max((dim + 1) // 2, 1))
    return Online(
        rank,
        options.ng_alpha,
        options.ng_num_samples_history,
        options.ng_update_period,
        options.ng_num_minibatches_history,
    )


class LayerPreconditioner:
    """Both sides of one layer, and the gradient of its parameters.

    when_complete  functions to call when the gradient has been added
    """

    def __init__(self, options: NaturalGradientOptions, dim_in: int, dim_out: int, has_bias: bool = True):
        self.has_bias = has_bias
        self.when_complete: list[Callable[[], None]] = []
        self.input = make_side(options, dim_in, options.ng_rank_in)
        self.output = make_side(options, dim_out, options.ng_rank_out)
        self.sides = self.input, self.output
        self.max_change_per_sample = options.max_change_per_sample
        self.max_gradient_per_sample = options.max_gradient_per_sample
        self.relative_rate, self.rate = 1.0, 0.0

    def accumulate(self, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        """Add the gradient from inputs (N, dim_in) and output derivatives (N, dim_out) to `.grad` of the
        parameters."""
        xhat, ones, scale_in = self.input(_wide(x), bias is not None)
        yhat, _, scale_out = self.output(_wide(y), False)
        yhat, factor = _fold(yhat, self._limited(scale_in * scale_out, xhat, ones, yhat))
        _add_product(_gradient(weight), yhat.T, xhat, factor)
        if bias is not None:
            assert ones is not None  # asked for above
            _add_product(_gradient(bias), ones[None], yhat, factor)
        for tell in self.when_complete:
            tell()

    def _limited(self, scale: Number, xhat: Tensor, ones: Tensor | None, yhat: Tensor) -> Number:
        """The scale of the gradient, reduced to the limits per sample."""
        if self.max_change_per_sample:
            scale = _at_most(
                self.max_change_per_sample * len(xhat) / (self.rate * _sum_of_norms(xhat, ones, yhat)), scale
            )
        if self.max_gradient_per_sample:
            scale = _at_most(
                self.max_gradient_per_sample * len(xhat) / _sum_of_norms(xhat, ones, yhat), scale
            )
        return scale

    def state_dict(self) -> dict:
        """The states of both sides."""
        return {"input": self.input.state_dict(), "output": self.output.state_dict()}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the result of `state_dict` on `device`."""
        self.input.load_state_dict(state["input"], device)
        self.output.load_state_dict(state["output"], device)


class FactorsPreconditioner:
    """The gradient of factors on single elements, such as the peepholes of an LSTM, from the derivatives by
    them in all frames.

    Each row of factors has its own low-rank preconditioner, as in Kaldi's
    NaturalGradientPerElementScaleComponent; its gradient is g sum_n xhat_n. Limits per sample do not apply.
    """

    def __init__(self, options: NaturalGradientOptions, num_rows: int, dim: int):
        options = dataclasses.replace(options, ng_update_period=FACTORS_UPDATE_PERIOD)
        self.when_complete: list[Callable[[], None]] = []
        self.sides = [make_side(options, dim, FACTORS_RANK) for _ in range(num_rows)]
        self.relative_rate, self.rate = 1.0, 0.0

    def accumulate(self, derivatives: Iterable[Tensor], factors: Tensor) -> None:
        """Add the gradient to `factors.grad`, from derivatives of all frames (N, D), one for each row of
        `factors`."""
        for gradient, side, x in zip(_gradient(factors), self.sides, derivatives, strict=True):
            xhat, _, scale = side(_wide(x), False)
            gradient.add_(xhat.sum(0) * scale)
        for tell in self.when_complete:
            tell()

    def state_dict(self) -> dict:
        """The states of all rows."""
        return {number: side.state_dict() for number, side in enumerate(self.sides)}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the result of `state_dict` on `device`."""
        for number, side in enumerate(self.sides):
            side.load_state_dict(state[number], device)


def _at_most(limit: Tensor, scale: Number) -> Number:
    return limit.clamp(max=scale) if limit.device.type != "cpu" else min(scale, float(limit))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.float16 else x


def _add_product(total: Tensor, a: Tensor, b: Tensor, factor: float) -> None:
    """total += factor a b; a and b may have another type than total."""
    if total.dtype == a.dtype:
        add_mm(total, a, b, factor)
    else:
        total.add_(mm(a, b), alpha=factor)


def _sum_of_norms(x: Tensor, ones: Tensor | None, y: Tensor) -> Tensor:
    """sum_n |x_n| |y_n|, float64."""
    norms = torch.linalg.vector_norm(x, dim=1).double()
    if ones is not None:
        norms = torch.hypot(norms, ones.double())
    return (norms * torch.linalg.vector_norm(y, dim=1)).sum()


def _fold(y: Tensor, scale: Number) -> tuple[Tensor, float]:
    """(y', number) with scale y = number y': products apply a number at no cost. A number above float32
    becomes infinite, as on other devices."""
    if isinstance(scale, Tensor):
        return y * scale.to(y.dtype), 1.0
    return y, scale if scale <= _MAX_FLOAT32 else math.inf


def _gradient(parameter: Tensor) -> Tensor:
    """The gradient of a matrix, convolution (as a matrix) or bias (as a row), for accumulation by
    products."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad.view(len(parameter) if parameter.dim() > 1 else 1, -1)


def own_gradients(layer: nn.Linear, x: Tensor, y: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """For custom backward passes: gradients of a layer's weight and bias, from its inputs (N, dim_in) and
    derivatives by its outputs (N, dim_out). None for a missing bias, and for both if `precondition` has
    changed the layer; they have then been added to `.grad`."""
    if isinstance(layer, PreconditionedLinear):
        layer.preconditioner.accumulate(x, y, layer.weight, layer.bias)
        return None, None
    return mm(y.T, x), None if layer.bias is None else y.sum(0)


class _PreconditionedAffine(torch.autograd.Function):
    """An affine map whose layer's preconditioner computes the gradients of the parameters."""

    @staticmethod
    def forward(ctx, x, weight, bias, layer):
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return affine(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, y):
        """Derivatives with respect to the input; those of the weights go to the preconditioner."""
        x, weight = ctx.saved_tensors
        with torch.autocast(y.device.type, enabled=False):
            if ctx.needs_input_grad[1]:
                ctx.layer.preconditioner.accumulate(
                    x.flatten(0, -2), y.flatten(0, -2), ctx.layer.weight, ctx.layer.bias
                )
            return (
                mm(y.flatten(0, -2), weight).view(*y.shape[:-1], -1) if ctx.needs_input_grad[0] else None,
                None,
                None,
                None,
            )


class _Convolution(torch.autograd.Function):
    """A convolution of (N, channels, height, width) whose layer's preconditioner computes the gradients of
    the parameters."""

    @staticmethod
    def forward(ctx, x, weight, bias, geometry, layer):
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.layer = geometry, layer
        return F.conv2d(x, weight, bias, *geometry)

    @staticmethod
    @once_differentiable
    def backward(ctx, y):
        """The derivative by the input; the gradients of the parameters are added to `.grad`."""
        x, weight = ctx.saved_tensors
        stride, padding, dilation = ctx.geometry
        with torch.autocast(y.device.type, enabled=False):
            if ctx.needs_input_grad[1]:
                # (N, channels * kernel, positions)
                patches = F.unfold(x, weight.shape[2:], dilation, padding, stride)
                ctx.layer.preconditioner.accumulate(
                    _as_rows(patches), _as_rows(y.flatten(2)), ctx.layer.weight, ctx.layer.bias
                )
            by_input = conv2d_input(x.shape, weight, y, *ctx.geometry) if ctx.needs_input_grad[0] else None
        return by_input, None, None, None, None


def _as_rows(x: Tensor) -> Tensor:
    """(N, D, positions) to (N positions, D)."""
    return x.transpose(1, 2).flatten(0, 1)


def _in_type_of_autocast(
    x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Operands as the plain layer would use them: in autocast's type if that is on, unless x is float64."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(x.device.type)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


class PreconditionedLinear(nn.Linear):
    """An `nn.Linear` with natural gradient, see `precondition`."""

    preconditioner: LayerPreconditioner

    def forward(self, x: Tensor) -> Tensor:
        """As in `nn.Linear`."""
        if x.dim() == 1:
            return self.forward(x[None])[0]
        return _PreconditionedAffine.apply(*_in_type_of_autocast(x, self.weight, self.bias), self)


class PreconditionedConv2d(nn.Conv2d):
    """An `nn.Conv2d` with natural gradient."""

    preconditioner: LayerPreconditioner

    def forward(self, x: Tensor) -> Tensor:
        """As in `nn.Conv2d`."""
        if x.dim() == 3:
            return self.forward(x[None])[0]
        x, padding = _padded(self, x)
        return _Convolution.apply(
            *_in_type_of_autocast(x, self.weight, self.bias), (self.stride, padding, self.dilation), self
        )


class PreconditionedConv1d(nn.Conv1d):
    """An `nn.Conv1d` with natural gradient: a two-dimensional convolution of height 1."""

    preconditioner: LayerPreconditioner

    def forward(self, x: Tensor) -> Tensor:
        """As in `nn.Conv1d`."""
        if x.dim() == 2:
            return self.forward(x[None])[0]
        x, padding = _padded(self, x)
        x, weight, bias = _in_type_of_autocast(x, self.weight, self.bias)
        geometry = (1, *self.stride), (0, *padding), (1, *self.dilation)
        return _Convolution.apply(x[:, :, None], weight[:, :, None], bias, geometry, self)[:, :, 0]


def _padded(layer: nn.Conv1d | nn.Conv2d, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """(the layer's input, remaining zero padding on both sides of each dimension)."""
    if layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        return x, layer.padding
    amounts = [amount for sides in reversed(_sides(layer)) for amount in sides]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(x, amounts, mode), (0,) * len(layer.kernel_size)


def _sides(layer: nn.Conv1d | nn.Conv2d) -> list[tuple[int, int]]:
    """Padding before and after each dimension."""
    if layer.padding == "valid":
        return [(0, 0) for _ in layer.kernel_size]
    if layer.padding == "same":
        totals = [dilation * (kernel - 1) for dilation, kernel in zip(layer.dilation, layer.kernel_size)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(amount, amount) for amount in layer.padding]


_CLASSES = {
    nn.Linear: PreconditionedLinear,
    Linear: PreconditionedLinear,
    nn.Conv1d: PreconditionedConv1d,
    nn.Conv2d: PreconditionedConv2d,
}


class NaturalGradient:
    """The preconditioners of a network's layers, by name. Their state belongs to one rank."""

    def __init__(self, layers: dict[str, LayerPreconditioner | FactorsPreconditioner]):
        self.layers = layers

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of summed gradients, for `--max-change-per-sample`."""
        for layer in self.layers.values():
            layer.rate = rate * layer.relative_rate

    def set_relative_rates(self, rates: dict[str, float]) -> None:
        """Set factors on the learning rate by names of layers; the default is 1."""
        for name, layer in self.layers.items():
            layer.relative_rate = rates.get(name, 1.0)

    def skip_warm_up(self) -> int:
        """Let all layers skip their initial minibatches; returns the number of minibatches after which their
        work repeats."""
        return math.lcm(*(side.skip_warm_up() for layer in self.layers.values() for side in layer.sides))

    def state_dict(self) -> dict:
        """The states of all layers, as tensors and plain values."""
        return {name: layer.state_dict() for name, layer in self.layers.items()}

    def load_state_dict(self, state: dict, device: torch.device) -> None:
        """Restore the result of `state_dict`. Raises UserError if it belongs to other layers."""
        if list(state) != list(self.layers):
            found = (
                f"natural gradient of the layers {', '.join(state) or '(none)'}, but the network has "
                f"{', '.join(self.layers) or 'none'}"
            )
            raise UserError(f"the checkpoint contains {found}; give --force to train from the start")
        for name, layer in self.layers.items():
            layer.load_state_dict(state[name], device)


def precondition(network: nn.Module, options: NaturalGradientOptions) -> NaturalGradient:
    """Change the classes of the layers of `network` in place, as described above, but not their parameters.
    Their state is reset.

    One log line names the other layers with matrices, one the ranks below those of the options.
    """
    layers, plain = {}, []
    for name, layer in network.named_modules() if options.changes_gradients else ():
        if _can_be_preconditioned(layer):
            layer.__class__ = _CLASSES.get(type(layer), type(layer))
            layer.preconditioner = LayerPreconditioner(
                options, layer.weight[0].numel(), len(layer.weight), layer.bias is not None
            )
            layers[name] = layer.preconditioner
        elif (
            factors := getattr(layer, "factors_to_precondition", None)
        ) is not None and options.natural_gradient != "none":
            layers[name] = layer.preconditioner = FactorsPreconditioner(options, *factors.shape)
        elif any(
            parameter.requires_grad and parameter.dim() > 1 for parameter in layer.parameters(recurse=False)
        ):
            plain.append(_describe(name, layer))
    if plain:
        _tell_once(
            f"these layers have plain gradients, neither preconditioned nor limited: {', '.join(plain)}"
        )
    _tell_lower_ranks(layers, options)
    return NaturalGradient(layers)


def _can_be_preconditioned(layer: nn.Module) -> bool:
    """Whether `layer` is an affine map of its input or of patches from `unfold`. Subclasses with an unknown
    `forward` are not."""
    return type(layer) in {*_CLASSES, *_CLASSES.values()} and (
        isinstance(layer, nn.Linear) or layer.groups == 1
    )


def _describe(name: str, layer: nn.Module) -> str:
    groups = getattr(layer, "groups", 1)
    return f"{name or 'the network'} ({type(layer).__name__}{f' of {groups} groups' if groups != 1 else ''})"


def _tell_lower_ranks(
    layers: dict[str, LayerPreconditioner | FactorsPreconditioner], options: NaturalGradientOptions
) -> None:
    """Log the ranks that are limited to half a dimension."""
    if options.natural_gradient != "online":
        return
    asked = options.ng_rank_in, options.ng_rank_out
    ranks = {
        name: (layer.input.rank, layer.output.rank)
        for name, layer in layers.items()
        if isinstance(layer, LayerPreconditioner)
        and isinstance(layer.input, Online)
        and isinstance(layer.output, Online)
    }
    lower = [f"{name} {used[0]}/{used[1]}" for name, used in ranks.items() if used != asked]
    if lower:
        why = f"--ng-rank-in {asked[0]} and --ng-rank-out {asked[1]} are above half of some dimensions"
        _tell_once(f"{why}; ranks of their layers, inputs/outputs: {', '.join(lower)}")


@functools.cache
def _tell_once(sentence: str) -> None:
    """Log a sentence only once per process, although several learners, and each growth of the network, would
    repeat it."""
    log.info(sentence)
