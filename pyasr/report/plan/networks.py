"""Sizes of networks: what their training and their scores cost grows with the products of a frame."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.report.plan.calls import Call

FEED_FORWARD = "feed-forward"
_FLOPS_OF_TRAINING = 6  # for a product and frame: forward, and backward for weights and inputs
_FLOPS_OF_SCORES = 2
_FLOPS_OF_MACHINE = 10  # of an RBM: up, down and up again; two products of units with units
SHAPES = {"train_dnn": (4, 768), "pretrain_dbn": (6, 2048)}  # layers and units by default
_SHAPE_FLAGS = ("hidden-layers", "hidden-dim")


@dataclass(frozen=True)
class NetworkSize:
    """Of a network.

    parameters  in all
    products    multiplications, each with an addition, for a frame of the features
    kind        of its layers: `feed-forward`, or what `pyasr.nn.size` says of a file of layers
    maps        matrices
    steps       of recurrent layers one after the other in a chunk, all layers and directions counted
    """

    parameters: float
    products: float
    kind: str = FEED_FORWARD
    maps: int = 1
    steps: int = 0

    def training_gflop(self, frames: float) -> float:
        """Of so many frames, each pass over the data counted."""
        return _FLOPS_OF_TRAINING * self.products * frames / 1e9

    def scoring_gflop(self, frames: float) -> float:
        """Of the scores of so many frames."""
        return _FLOPS_OF_SCORES * self.products * frames / 1e9


def feed_forward(call: Call, columns: float, outputs: float) -> NetworkSize:
    """Of the options of steps/train_dnn.py, for features of so many columns. A p-norm layer has a group of rows for each unit."""
    layers, units = (call.number(flag, usual) for flag, usual in zip(_SHAPE_FLAGS, SHAPES["train_dnn"]))
    rows = units * (call.number("pnorm-group", 10) if call.flags.get("activation") == "pnorm" else 1)
    inputs = columns * (call.number("splice-left", 5) + 1 + call.number("splice-right", 5))
    products = inputs * rows + (layers - 1) * units * rows + max(outputs, call.number("mix-up", 0)) * units
    return NetworkSize(products, products, maps=int(layers) + 1)


def pretraining_gflop(call: Call, columns: float, frames: float) -> float:
    """Of steps/pretrain_dbn.py on so many frames: every machine sees them `--rbm-iter` times, the first twice as often, through those
    below it."""
    layers, units = (call.number(flag, usual) for flag, usual in zip(_SHAPE_FLAGS, SHAPES["pretrain_dbn"]))
    inputs = columns * (call.number("splice-left", 5) + 1 + call.number("splice-right", 5))
    products, below, passes = inputs * units, 0.0, 2 * call.number("rbm-iter", 1)
    flops = 0.0
    for _ in range(int(layers)):
        flops += (_FLOPS_OF_MACHINE * products + _FLOPS_OF_SCORES * below) * passes
        below, products, passes = below + products, units**2, call.number("rbm-iter", 1)
    return flops * frames / 1e9
