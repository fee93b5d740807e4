#!/usr/bin/env python3
"""Frames that our trainer learns from in a second with bidirectional LSTM layers, and a plain torch loop's with nn.LSTM, in one run.

One core; 2 layers of 256 cells in each direction on 260 columns, a linear bottleneck of 256, 2000 pdfs: IBM's network (arXiv:1904.04956),
smaller. Minibatches of 32 chunks of 21 frames. The plain loop is nn.LSTM(bidirectional=True), F.cross_entropy and torch.optim.SGD, in
float32 or under bfloat16 autocast. All start from the same parameters and learn the same chunks at the same rate; frames per CPU second,
the best of `--num-rounds` in which the systems take turns; the objective is that of the last 50 minibatches.

Example:
    OMP_NUM_THREADS=1 benchmarks/train_lstm.py --num-rounds 3
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from train_dnn import RATE, Timing, compare

from pyasr.base.options import option
from pyasr.base.step import run_step
from pyasr.nn.layered import LayeredNetwork
from pyasr.nn.lstm import Lstm
from pyasr.nn.preconditioned_layers import NaturalGradientOptions
from pyasr.train.chunks import ChunkStore, Packing
from pyasr.train.compute import multiplies_bfloat16
from pyasr.train.learner import Learner, LearnerOptions

LINES, DIM, NUM_PDFS, CHUNK, CHUNKS = ["blstm cells=256 repeat=2", "linear dim=256"], 260, 2000, 21, 32


@dataclass(frozen=True)
class Benchmark:
    num_rounds: int = option(3, "turns of each system", minimum=1)
    num_minibatches: int = option(12, "minibatches of a turn", minimum=5)
    num_chunks: int = option(1000, "chunks in the store", minimum=64)


def network() -> LayeredNetwork:
    made = LayeredNetwork(LINES, DIM, NUM_PDFS, CHUNK)
    made.initialise(torch.Generator().manual_seed(1))
    return made


def store(num_chunks: int) -> ChunkStore:
    """Utterances of a chunk each, labelled by a random map of neighbouring frames."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((num_chunks, CHUNK, DIM)).astype(np.float32)
    teacher = rng.standard_normal((DIM, NUM_PDFS)).astype(np.float32)
    targets = (np.tanh(features + np.roll(features, 1, 1)) @ teacher).argmax(2)
    return ChunkStore(iter(features), list(targets), Packing(chunk=CHUNK), DIM)


class Ours:
    """Our store of chunks and learner."""

    def __init__(self, num_chunks: int, precision: str, natural_gradient: str):
        preconditioning = NaturalGradientOptions(natural_gradient=natural_gradient)
        self.learner = Learner(network(), LearnerOptions(device="cpu", precision=precision, natural_gradient=preconditioning))
        self.store = store(num_chunks)
        self.store.move(torch.device("cpu"), self.learner.options.torch_dtype())

    def step(self, index: torch.Tensor) -> torch.Tensor:
        return self.learner.step(*self.store.gather(index[::CHUNK] % self.store.num_items), RATE)[0]


class PlainNetwork(nn.Module):
    """What one would write with torch alone."""

    def __init__(self):
        super().__init__()
        recurrent, bottleneck = network().layers[:2], network().layers[2]
        self.layers = nn.ModuleList(bidirectional(layer.directions) for layer in recurrent)
        self.bottleneck, self.output = nn.Linear(512, 256), nn.Linear(256, NUM_PDFS)
        self.bottleneck.load_state_dict(bottleneck.others[0].state_dict())
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return self.output(self.bottleneck(x))


def bidirectional(directions: list[Lstm]) -> nn.LSTM:
    """torch's layer with the parameters of two of ours."""
    own = nn.LSTM(directions[0].input.in_features, directions[0].cell_dim, bidirectional=True)
    for suffix, lstm in zip(("", "_reverse"), directions):
        for name, value in (("weight_ih", lstm.input.weight), ("weight_hh", lstm.recurrent.weight), ("bias_ih", lstm.input.bias)):
            getattr(own, f"{name}_l0{suffix}").data.copy_(value)
        getattr(own, f"bias_hh_l0{suffix}").data.zero_()
    return own


class Plain:
    """A plain training loop; chunks lie in memory time first."""

    def __init__(self, num_chunks: int, precision: str):
        self.network, self.autocast = PlainNetwork(), precision == "bfloat16"
        self.optimiser = torch.optim.SGD(self.network.parameters(), RATE)
        self.x, self.targets = store(num_chunks).gather(torch.arange(num_chunks))

    def step(self, index: torch.Tensor) -> torch.Tensor:
        chunks = index[::CHUNK] % len(self.x)
        x, targets = self.x[chunks].transpose(0, 1).contiguous(), self.targets[chunks].T.flatten()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = F.cross_entropy(self.network(x).flatten(0, 1).float(), targets, reduction="sum")
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def main(options: Benchmark) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    precisions = ["float32", "bfloat16"] if multiplies_bfloat16(torch.device("cpu")) else ["float32"]
    timings = {}
    for precision in precisions:
        systems = {"plain torch": Plain(options.num_chunks, precision), "ours, SGD": Ours(options.num_chunks, precision, "none"),
                   "ours, natural gradient": Ours(options.num_chunks, precision, "online")}  # fmt: skip
        for name, system in systems.items():
            timings[f"{name}, {precision}"] = Timing(system, options.num_chunks * CHUNK, CHUNKS * CHUNK, "cpu")
    compare(timings, options)
    for name, timing in timings.items():
        peer = timings[f"plain torch, {name.split()[-1]}"]
        print(f"{name:34s}{timing.best:8.0f} frames/CPU s{timing.best / peer.best:6.2f} of plain torch, objective {timing.objective:.4f}")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
