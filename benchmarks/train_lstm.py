#!/usr/bin/env python3
"""Training speed of bidirectional LSTM layers in frames per second, compared with a plain torch loop with
nn.LSTM.

CPU: one core; 2 layers of 256 cells per direction on 260 columns, a linear bottleneck of 256, 2000 pdfs: a
smaller version of IBM's network (arXiv:1904.04956). Minibatches of 32 chunks of 21 frames. The plain loop is
nn.LSTM(bidirectional=True), F.cross_entropy and torch.optim.SGD, in float32 or with bfloat16 autocast. All
start from the same parameters and train on the same chunks with the same learning rate. The result is the
maximum of frames per CPU second over `--num-rounds` rounds, in which the systems alternate; the objective is
that of the last 50 minibatches.

GPU: IBM's network (6 layers of 512 cells per direction, 260 columns, 32,000 pdfs), minibatches of 128 and 256
chunks of 21 frames, in device memory. "Of peak" compares with a large product in the same precision, measured
in the same run.

Example:
    OMP_NUM_THREADS=1 benchmarks/train_lstm.py --num-rounds 3
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from train_dnn import RATE, Timing, allow_tf32, compare, gpu_peaks, learner_options, show, torch_layer

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.nn.layers.lstm import Lstm
from pyasr.nn.layers.sequence_layers import Recurrent
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.train.compute import multiplies_bfloat16
from pyasr.train.minibatches.chunks import ChunkStore, Packing
from pyasr.train.sgd.learner import Learner

DIM, CHUNK, CHUNKS = 260, 21, 32
IBMS = Path(__file__).resolve().parents[1] / "egs/amazon_queen/s5/conf/network/ibm.net"


@dataclass(frozen=True)
class Benchmark:
    num_rounds: int = option(3, "number of rounds, in which the systems alternate", minimum=1)
    num_minibatches: int = option(12, "number of minibatches per round", minimum=5)
    num_chunks: int = option(1000, "number of chunks in the store", minimum=64)


@dataclass(frozen=True)
class Task:
    """The training task: a network of LSTM layers and a bottleneck, and utterances of one chunk each,
    labelled by a random function of neighbouring frames."""

    lines: list[str]
    num_pdfs: int

    @property
    def operations(self) -> float:
        """Floating-point operations per frame: products with each matrix, forward and for both derivatives;
        not for those of the input."""
        network = self.network()
        inputs = sum(lstm.input.weight.numel() for lstm in network.layers[0].directions)
        return 6.0 * sum(weight.numel() for weight in network.parameters() if weight.dim() > 1) - 2.0 * inputs

    def network(self) -> LayeredNetwork:
        made = LayeredNetwork(self.lines, DIM, self.num_pdfs, CHUNK)
        made.initialise(torch.Generator().manual_seed(1))
        return made

    def store(self, num_chunks: int) -> ChunkStore:
        rng = np.random.default_rng(0)
        features = rng.standard_normal((num_chunks, CHUNK, DIM)).astype(np.float32)
        teacher = rng.standard_normal((DIM, self.num_pdfs)).astype(np.float32)
        targets = [(np.tanh(x + np.roll(x, 1, 0)) @ teacher).argmax(1) for x in features]
        return ChunkStore(iter(features), targets, Packing(chunk=CHUNK), DIM)


CPU_TASK = Task(["blstm cells=256 repeat=2", "linear dim=256"], 2000)
GPU_TASK = Task(read_network(IBMS), 32_000)


class Ours:
    """pyasr's store of chunks and learner."""

    def __init__(self, task: Task, num_chunks: int, device: str, precision: str, natural_gradient: str):
        options = learner_options(device, precision, natural_gradient)
        self.learner = Learner(task.network(), options)
        self.store = task.store(num_chunks)
        self.store.move(options.torch_device(), options.torch_dtype())

    def step(self, index: torch.Tensor) -> torch.Tensor:
        return self.learner.step(*self.store.gather(index[::CHUNK] % self.store.num_items), RATE)[0]


class PlainNetwork(nn.Module):
    """The network in plain torch."""

    def __init__(self, network: LayeredNetwork):
        super().__init__()
        self.layers = nn.ModuleList(
            bidirectional(layer.directions) for layer in network.layers if isinstance(layer, Recurrent)
        )
        self.bottleneck, self.output = torch_layer(network.layers[-1].others[0]), torch_layer(network.output)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return self.output(self.bottleneck(x))


def bidirectional(directions: list[Lstm]) -> nn.LSTM:
    """torch's bidirectional layer with the parameters of two layers of pyasr."""
    own = nn.LSTM(directions[0].input.in_features, directions[0].cell_dim, bidirectional=True)
    for suffix, lstm in zip(("", "_reverse"), directions):
        for name, value in (
            ("weight_ih", lstm.input.weight),
            ("weight_hh", lstm.recurrent.weight),
            ("bias_ih", lstm.input.bias),
        ):
            getattr(own, f"{name}_l0{suffix}").data.copy_(value)
        getattr(own, f"bias_hh_l0{suffix}").data.zero_()
    return own


class Plain:
    """A plain training loop; chunks are stored with time as the first dimension."""

    def __init__(self, task: Task, num_chunks: int, device: str, precision: str):
        self.device, self.autocast = device, precision == "bfloat16"
        self.network = PlainNetwork(task.network()).to(device)
        self.optimiser = torch.optim.SGD(self.network.parameters(), RATE)
        self.x, self.targets = (
            tensor.to(device) for tensor in task.store(num_chunks).gather(torch.arange(num_chunks))
        )

    def step(self, index: torch.Tensor) -> torch.Tensor:
        chunks = index[::CHUNK] % len(self.x)
        x, targets = self.x[chunks].transpose(0, 1).contiguous(), self.targets[chunks].T.flatten()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = F.cross_entropy(self.network(x).flatten(0, 1).float(), targets, reduction="sum")
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def timings_of(task: Task, options: Benchmark, device: str, precision: str, chunks: int) -> dict[str, Timing]:
    """{name: timing} of all systems with minibatches of `chunks` chunks, the plain loop first."""
    num = options.num_chunks
    systems = {
        "plain torch": Plain(task, num, device, precision),
        "ours, SGD": Ours(task, num, device, precision, "none"),
        "ours, natural gradient": Ours(task, num, device, precision, "online"),
    }
    return {name: Timing(system, num * CHUNK, chunks * CHUNK, device) for name, system in systems.items()}


def on_cpu(options: Benchmark) -> None:
    precisions = ["float32", "bfloat16"] if multiplies_bfloat16(torch.device("cpu")) else ["float32"]
    timings = {
        f"{name}, {precision}": timing
        for precision in precisions
        for name, timing in timings_of(CPU_TASK, options, "cpu", precision, CHUNKS).items()
    }
    compare(timings, options)
    for name, timing in timings.items():
        peer = timings[f"plain torch, {name.split()[-1]}"]
        print(
            f"{name:34s}{timing.best:8.0f} frames/CPU s{timing.best / peer.best:6.2f} of plain torch, "
            f"objective {timing.objective:.4f}"
        )


def on_gpu(options: Benchmark) -> None:
    peaks = gpu_peaks()
    for chunks in (128, 256):
        for precision in peaks:
            allow_tf32(precision)
            timings = timings_of(GPU_TASK, options, "cuda", precision, chunks)
            compare(timings, options)
            show(
                {f"{name}, {precision}": timing for name, timing in timings.items()},
                GPU_TASK.operations,
                peaks,
                "s",
            )
            plain, sgd, online = (timing.best for timing in timings.values())
            print(
                f"{chunks} segments, {precision}: ours {sgd / plain:.2f} of plain torch, with natural "
                f"gradient {online / plain:.2f}"
            )


def main(options: Benchmark) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    on_cpu(options)
    on_gpu(options)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
