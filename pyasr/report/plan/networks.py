"""Sizes of networks. The cost of training and scores is proportional to the products per frame."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.report.plan.planned_calls import Call

FEED_FORWARD = "feed-forward"
_FLOPS_OF_TRAINING = 6  # per product and frame: forward, and backward for weights and inputs
_FLOPS_OF_SCORES = 2
_FLOPS_OF_MACHINE = 10  # of an RBM: up, down and up again; two products of units with units
SHAPES = {"train_dnn": (4, 768), "pretrain_dbn": (6, 2048)}  # default layers and units
_SHAPE_FLAGS = ("hidden-layers", "hidden-dim")


@dataclass(frozen=True)
class NetworkSize:
    """The size of a network.

    parameters  total number
    products    multiply-add operations per frame of the features
    kind        kind of layers: `feed-forward`, or the kind that `pyasr.nn.networks.size` finds for a file of
                layers
    maps        number of matrices
    steps       number of sequential steps of recurrent layers in a chunk, over all layers and directions
    """

    parameters: float
    products: float
    kind: str = FEED_FORWARD
    maps: int = 1
    steps: int = 0

    def training_gflop(self, frames: float) -> float:
        """Gflop of training on `frames` frames, counting each pass over the data."""
        return _FLOPS_OF_TRAINING * self.products * frames / 1e9

    def scoring_gflop(self, frames: float) -> float:
        """Gflop of the scores of `frames` frames."""
        return _FLOPS_OF_SCORES * self.products * frames / 1e9


def feed_forward(call: Call, columns: float, outputs: float) -> NetworkSize:
    """The size from the options of steps/train_dnn.py, for features of `columns` columns. A p-norm layer has
    a group of rows per unit."""
    layers, units = (call.number(flag, usual) for flag, usual in zip(_SHAPE_FLAGS, SHAPES["train_dnn"]))
    rows = units * (call.number("pnorm-group", 10) if call.flags.get("activation") == "pnorm" else 1)
    inputs = columns * (call.number("splice-left", 5) + 1 + call.number("splice-right", 5))
    products = inputs * rows + (layers - 1) * units * rows + max(outputs, call.number("mix-up", 0)) * units
    return NetworkSize(products, products, maps=int(layers) + 1)


def pretraining_gflop(call: Call, columns: float, frames: float) -> float:
    """Gflop of steps/pretrain_dbn.py on `frames` frames: each RBM processes them `--rbm-iter` times (the
    first one twice as often), after the RBMs below it."""
    layers, units = (call.number(flag, usual) for flag, usual in zip(_SHAPE_FLAGS, SHAPES["pretrain_dbn"]))
    inputs = columns * (call.number("splice-left", 5) + 1 + call.number("splice-right", 5))
    products, below, passes = inputs * units, 0.0, 2 * call.number("rbm-iter", 1)
    flops = 0.0
    for _ in range(int(layers)):
        flops += (_FLOPS_OF_MACHINE * products + _FLOPS_OF_SCORES * below) * passes
        below, products, passes = below + products, units**2, call.number("rbm-iter", 1)
    return flops * frames / 1e9
