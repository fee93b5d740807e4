r"""Saturation of tanh and sigmoid units, and the repair of saturated and linear units during training
(Kaldi's nnet-am-fix).

A unit y = sigma(w . h + b) that is near its bounds on most frames hardly learns; a unit that stays in the
linear range of sigma adds no non-linearity. With d its mean derivative over a sample, relative to the maximum
derivative (tanh: 1 - y^2; sigmoid: 4 y (1 - y)),

    (w, b) <- (w, b) / min(2, 0.1 / d)     where d < 0.1
    (w, b) <- (w, b) min(2, d / 0.75)      where d > 0.75

The units of an LSTM are its gates i, f, o and g and tanh(c), H of each (`pyasr.nn.layers.lstm`). Their
saturation is measured but not repaired.

Kaldi averages over the frames of the last iteration, and has a rule for ReLU (biases of dead units + 1),
which is not implemented here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from pyasr.nn.layers.fast_tanh import Tanh
from pyasr.nn.layers.lstm import Lstm
from pyasr.nn.networks.construction import Network
from pyasr.train.data.sample import Sample
from pyasr.train.sgd.learner import Learner

_MIN_DERIVATIVE, _MAX_DERIVATIVE, _MAX_FACTOR = 0.1, 0.75, 2.0


def _of_tanh(y: Tensor) -> Tensor:
    """Derivative of tanh at the output y, relative to its maximum."""
    return 1 - y * y


def _of_sigmoid(y: Tensor) -> Tensor:
    """Derivative of the sigmoid at the output y, relative to its maximum."""
    return 4 * y * (1 - y)


_DERIVATIVES = {Tanh: _of_tanh, nn.Sigmoid: _of_sigmoid}


@dataclass
class SaturationFix:
    """Repairs saturated and linear units. Every rank must call it, with the same parameters."""

    sample: Sample

    def __call__(self, learner: Learner, frames_seen: int) -> None:
        """Change `learner`'s parameters in place."""
        derivatives = average_derivatives(learner.network.with_parameters(learner.flat.values()), self.sample)
        values = learner.flat.values()  # weight and bias of each layer in turn
        factors = [factors_of(derivative) for derivative in derivatives]
        for factor, weight, bias in zip(factors, values[0::2], values[1::2]):
            weight.mul_(factor.to(weight).unsqueeze(1))
            bias.mul_(factor.to(bias))
        learner.flat.refresh()
        every = torch.cat(factors)
        back, out = int((every < 1).sum()), int((every > 1).sum())
        self.sample.comm.log(f"repaired {back} saturated and {out} linear units of {len(every)} hidden units")


def factors_of(derivatives: Tensor) -> Tensor:
    """Factors on the parameters of units, from their relative derivatives."""
    back = (_MIN_DERIVATIVE / derivatives.clamp(min=1e-20)).clamp(1.0, _MAX_FACTOR)
    out = (derivatives / _MAX_DERIVATIVE).clamp(1.0, _MAX_FACTOR)
    return out / back


@torch.inference_mode()
def average_derivatives(network: Network, sample: Sample) -> list[Tensor]:
    """Relative derivatives of units, averaged over the sample's frames on all ranks: a float64 vector for
    each layer with such units, the units of an LSTM concatenated. Every rank must call this."""
    sums: dict[int, Tensor] = {}  # of each layer; the last element counts frames

    def see(place: int, derivatives: Tensor) -> None:
        rows = derivatives.flatten(0, -2)
        total = torch.cat(
            [rows.sum(0, dtype=torch.float64), rows.new_tensor([len(rows)], dtype=torch.float64)]
        ).cpu()
        sums[place] = sums[place] + total if place in sums else total

    network.to(sample.device)
    with _watched(network, see):
        # sets the shapes, also on a rank without frames
        network(sample.x.new_zeros(1, *sample.x.shape[1:]).float())
        for total in sums.values():
            total.zero_()
        for x, _ in sample.batches():
            network(x)
    for total in sums.values():
        sample.comm.allreduce(total)
    return [total[:-1] / total[-1].clamp(min=1) for total in sums.values()]


@contextmanager
def _watched(network: Network, see: Callable[[int, Tensor], None]) -> Iterator[None]:
    """In the block, call `see` with the index of a layer and the relative derivatives of its units (...,
    units) at each computation."""
    hooks, lstms = [], []
    for place, module in enumerate(network.modules()):
        if type(module) in _DERIVATIVES:
            hooks.append(module.register_forward_hook(partial(_report, see, place)))
        elif isinstance(module, Lstm):
            module.watch = partial(_report_gates, see, place)
            lstms.append(module)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for lstm in lstms:
            lstm.watch = None


def _report(see: Callable[[int, Tensor], None], place: int, module: nn.Module, _: tuple, y: Tensor) -> None:
    see(place, _DERIVATIVES[type(module)](y))


def _report_gates(see: Callable[[int, Tensor], None], place: int, gates: Tensor, cells: Tensor) -> None:
    i, f, g, o = gates.chunk(4, -1)
    see(
        place,
        torch.cat(
            [_of_sigmoid(i), _of_sigmoid(f), _of_sigmoid(o), _of_tanh(g), _of_tanh(torch.tanh(cells))], -1
        ),
    )
