r"""A deep belief net on disk: RBMs trained one on top of the other, from which a network of sigmoid units can
start.

Reference: G. Hinton, S. Osindero, Y. Teh, "A fast learning algorithm for deep belief nets", Neural
Computation 18, 2006. The data of the l-th RBM are the probabilities of the hidden units of the one below; its
W and b initialise hidden layer l.

DIR/final.dbn is a torch file of plain tensors and values: the RBMs, and mean and inverse standard deviation
of a frame's features, which a network that starts from it must use, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from pyasr.base.errors import UserError
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.nn.networks.rbm import Rbm
from pyasr.tensor.file import load_object, save_tensors

_FORMAT = 1


@dataclass
class Dbn:
    """RBMs from the lowest to the highest, float32 on the CPU.

    mean, inverse_std  of one frame's features before splicing, float32 (dim,)
    """

    rbms: list[Rbm]
    mean: torch.Tensor
    inverse_std: torch.Tensor

    @property
    def dims(self) -> list[int]:
        """Numbers of units of the input and of each hidden layer."""
        return [self.rbms[0].weight.shape[1]] + [rbm.weight.shape[0] for rbm in self.rbms]

    def save(self, path: Path) -> None:
        """Write the file that `load_dbn` reads."""
        machines = [
            {"gaussian": rbm.gaussian, **{name: p.detach().clone() for name, p in rbm.named_parameters()}}
            for rbm in self.rbms
        ]
        save_tensors(
            path, {"format": _FORMAT, "rbms": machines, "mean": self.mean, "inverse_std": self.inverse_std}
        )

    def check(self, options: DnnOptions, input_dim: int, where: Path) -> None:
        """Raise UserError unless the hidden layers of a network with these options match the RBMs."""
        dims = self.dims
        if input_dim != dims[0]:
            found = f"{where} was trained on {dims[0]} columns per frame, but the input has {input_dim}"
            raise UserError(f"{found}; give the same kind of features")
        wanted = {
            "hidden-layers": len(self.rbms),
            "hidden-dim": dims[1],
            "activation": "sigmoid",
            "normalize": "false",
        }
        given = {
            "hidden-layers": options.hidden_layers,
            "hidden-dim": options.hidden_dim,
            "activation": options.activation,
            "normalize": str(options.normalize).lower(),
        }
        if given != wanted:
            flags = " ".join(f"--{name} {value}" for name, value in wanted.items() if given[name] != value)
            raise UserError(
                f"{where} has {len(self.rbms)} layers of {dims[1]} sigmoid units; give {flags}, or pretrain "
                "another DBN"
            )

    @torch.no_grad()
    def start(self, network: FeedForward) -> None:
        """Copy weights and hidden biases into the hidden layers of `network`, which `check` has accepted; its
        output layer stays."""
        for layer, rbm in zip(network.affine_layers, self.rbms):
            layer.weight.copy_(rbm.weight)
            layer.bias.copy_(rbm.hidden_bias)


class Below(nn.Module):
    """Trained RBMs as a function: normalised input (N, V) to probabilities of the highest hidden units."""

    def __init__(self, rbms: list[Rbm], device: torch.device, dtype: torch.dtype):
        super().__init__()
        self.layers = [
            (rbm.weight.detach().to(device, dtype), rbm.hidden_bias.detach().to(device, dtype))
            for rbm in rbms
        ]

    @property
    def dim(self) -> int:
        """Number of columns of the result."""
        return len(self.layers[-1][1])

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The data of the next RBM; `x` itself if there is no RBM below."""
        for weight, bias in self.layers:
            x = F.linear(x, weight, bias).sigmoid_()
        return x


def load_dbn(path: Path) -> Dbn:
    """The net that `Dbn.save` wrote. Raises UserError for other files."""
    return load_object(path, _dbn, "DBN", "pretrain", "steps/pretrain_dbn.py")


def _dbn(content: dict) -> Dbn:
    return Dbn([_machine(entry) for entry in content["rbms"]], content["mean"], content["inverse_std"])


def _machine(entry: dict) -> Rbm:
    hidden_dim, visible_dim = entry["weight"].shape
    rbm = Rbm(visible_dim, hidden_dim, entry["gaussian"])
    rbm.load_state_dict({name: value for name, value in entry.items() if name != "gaussian"})
    if not all(parameter.isfinite().all() for parameter in rbm.parameters()):
        raise ValueError("parameters that are not finite")
    return rbm
