"""Options of LSTM language models."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import SeedOptions
from pyasr.lang.ngrams.train_lm import TextOptions
from pyasr.nn.device import DeviceOptions


@dataclass(frozen=True)
class LstmLmOptions(TextOptions, SeedOptions, DeviceOptions):
    """The network and its training."""

    heading = "optimisation"

    dim: int = option(
        200, "dimension of word vectors and number of cells per layer", minimum=1, heading="network"
    )
    num_layers: int = option(1, "number of LSTM layers", minimum=1, heading="network")
    dropout: float = option(
        0.5,
        "dropout probability for word vectors, between layers, and for the output",
        minimum=0.0,
        maximum=0.9,
        heading="network",
    )
    minibatch: int = option(256, "words and sentence ends per minibatch", minimum=1)
    learning_rate: float = option(0.003, "initial learning rate of Adam", minimum=0.0, common=True)
    num_epochs: int = option(40, "maximum number of passes over the text", minimum=1, common=True)
    start_halving_gain: float = option(
        0.002, "relative gain of the held-out loss below which the rate is halved after every epoch"
    )
    end_halving_gain: float = option(
        0.0005, "relative gain of the held-out loss below which the training ends while halving"
    )
