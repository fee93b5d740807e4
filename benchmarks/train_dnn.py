#!/usr/bin/env python3
"""Training speed in frames per second, with and without natural gradient, compared with a plain torch loop.

CPU: one core, 360-4x1024-208 tanh (3.7 M parameters), minibatches of 512. The result is the maximum of frames
per CPU second over `--num-rounds` rounds, in which the systems alternate, so that other load on the machine
affects all of them. The plain loop is nn.Sequential, F.cross_entropy and torch.optim.SGD, in float32 or with
bfloat16 autocast. All start from the same parameters and train on the same frames with the same learning
rate; the objective is that of the last 50 minibatches. Bfloat16 is measured only if the processor has
instructions for it.

GPU: 440-6x2048-8806 sigmoid (39.9 M parameters), minibatches of 256, 1024 and 4096, frames in device memory;
without the plain loop.

"Of peak" compares with a large product in the same precision, measured in the same run.

Example:
    OMP_NUM_THREADS=1 benchmarks/train_dnn.py --num-rounds 5
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.tensor import products
from pyasr.train.compute import multiplies_bfloat16
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.sgd.learner import Learner, LearnerOptions

RATE = 2e-4  # for summed gradients
EPOCH_FRAMES = 108e6  # 300 hours
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Benchmark:
    num_rounds: int = option(3, "number of rounds, in which the systems alternate", minimum=1)
    num_minibatches: int = option(60, "number of minibatches per round", minimum=20)
    num_frames: int = option(60_000, "number of frames in the store", minimum=1000)


@dataclass(frozen=True)
class Task:
    """The training task: a network, and frames of random speech-like features labelled by a random
    network."""

    dnn: DnnOptions
    feature_dim: int
    context: int
    num_pdfs: int

    @property
    def input_dim(self) -> int:
        return self.feature_dim * (2 * self.context + 1)

    @property
    def operations(self) -> float:
        """Floating-point operations per frame: products with each matrix, forward and for both derivatives;
        not for those of the input."""
        widths = [self.input_dim, *[self.dnn.hidden_dim] * self.dnn.hidden_layers, self.num_pdfs]
        return 6.0 * sum(a * b for a, b in zip(widths, widths[1:])) - 2.0 * widths[0] * widths[1]

    def network(self) -> FeedForward:
        network = FeedForward(self.dnn, self.input_dim, self.num_pdfs)
        initialise(network, self.dnn, torch.Generator().manual_seed(1))
        return network

    def store(self, num_frames: int) -> FrameStore:
        rng = np.random.default_rng(0)
        noise = rng.standard_normal((num_frames + 4, self.feature_dim)).astype(np.float32)
        features = sum(noise[i : num_frames + i] for i in range(5)) / np.sqrt(5)
        teacher = rng.standard_normal((self.feature_dim, self.num_pdfs)).astype(np.float32)
        return FrameStore(
            [features],
            [(np.tanh(features) @ teacher).argmax(1)],
            self.context,
            self.context,
            self.feature_dim,
        )


CPU_TASK = Task(DnnOptions(hidden_layers=4, hidden_dim=1024, activation="tanh"), 40, 4, 208)
GPU_TASK = Task(DnnOptions(hidden_layers=6, hidden_dim=2048, activation="sigmoid"), 40, 5, 8806)


class Ours:
    """pyasr's frame store and learner."""

    def __init__(
        self,
        task: Task,
        num_frames: int,
        device: str,
        precision: str,
        natural_gradient: str,
        minibatch: int = 512,
    ):
        options = learner_options(device, precision, natural_gradient, minibatch)
        self.learner = Learner(task.network(), options)
        self.store = task.store(num_frames)
        self.store.move(options.torch_device(), options.torch_dtype())

    def step(self, index: torch.Tensor) -> torch.Tensor:
        return self.learner.step(*self.store.gather(index), RATE)[0]


def learner_options(
    device: str, precision: str, natural_gradient: str, minibatch: int = 512
) -> LearnerOptions:
    return LearnerOptions(
        device=device,
        minibatch=minibatch,
        precision="bfloat16" if precision == "bfloat16" else "float32",
        natural_gradient=NaturalGradientOptions(natural_gradient=natural_gradient),
    )


class Plain:
    """A plain torch training loop; spliced frames are in memory."""

    def __init__(self, task: Task, num_frames: int, device: str, precision: str):
        self.device, self.autocast = device, precision == "bfloat16"
        self.network = nn.Sequential(*map(torch_layer, task.network().layers)).to(device)
        self.optimiser = torch.optim.SGD(self.network.parameters(), RATE)
        self.x, self.targets = (
            tensor.to(device) for tensor in task.store(num_frames).gather(torch.arange(num_frames))
        )

    def step(self, index: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = F.cross_entropy(self.network(self.x[index]).float(), self.targets[index], reduction="sum")
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def torch_layer(layer: nn.Module) -> nn.Module:
    """The same layer as an instance of torch's own class."""
    if not isinstance(layer, nn.Linear):
        return nn.Tanh() if isinstance(layer, nn.Tanh) else layer
    own = nn.Linear(layer.in_features, layer.out_features)
    own.load_state_dict(layer.state_dict())
    return own


class Timing:
    """A system's maximum rate in frames per second, and its last losses."""

    def __init__(self, system, num_frames: int, minibatch: int, device: str):
        self.system, self.device, self.minibatch = system, device, minibatch
        self.generator = torch.Generator().manual_seed(2)
        self.num_frames, self.best, self.losses = num_frames, 0.0, []

    def turn(self, num_minibatches: int) -> None:
        """Train for some minibatches; measures CPU time, or wall time for a GPU."""
        batches = torch.randint(
            self.num_frames, (num_minibatches, self.minibatch), generator=self.generator
        ).to(self.device)
        begin = seconds(self.device)
        losses = [self.system.step(index) for index in batches]
        taken = seconds(self.device) - begin
        self.losses += torch.stack(losses).tolist()
        self.best = max(self.best, num_minibatches * self.minibatch / taken)

    @property
    def objective(self) -> float:
        return -sum(self.losses[-50:]) / min(len(self.losses), 50) / self.minibatch


def seconds(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak(device: str, precision: str) -> float:
    """Operations per second of a large product, by the faster of torch's library and pyasr's."""
    size = 2048 if device == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))
    best = 0.0
    for product in 4 * (torch.mm, products.mm):
        begin = seconds(device)
        product(a, b)
        best = max(best, 2.0 * size**3 / (seconds(device) - begin))
    return best


def compare(timings: dict[str, Timing], options: Benchmark) -> None:
    """Run the systems alternately; the first round is a warm-up."""
    for timing in timings.values():
        timing.turn(10)
        timing.best = 0.0
    for _ in range(options.num_rounds):
        for timing in timings.values():
            timing.turn(options.num_minibatches)


def show(timings: dict[str, Timing], operations: float, peaks: dict[str, float], unit: str) -> None:
    print(f"{'':34s}{'frames/' + unit:>14s}{'of peak':>9s}{'objective':>11s}")
    for name, timing in timings.items():
        share = timing.best * operations / peaks[name.split()[-1]]
        print(f"{name:34s}{timing.best:14.0f}{share:9.0%}{timing.objective:11.4f}")


def on_cpu(options: Benchmark) -> None:
    minibatch, num = 512, options.num_frames
    precisions = ["float32", "bfloat16"] if multiplies_bfloat16(torch.device("cpu")) else ["float32"]
    if len(precisions) < 2:
        print("bfloat16 skipped: this processor has neither avx512_bf16 nor amx_bf16")
    peaks = {precision: peak("cpu", precision) for precision in precisions}
    systems = {}
    for precision in precisions:
        systems[f"plain torch {precision}"] = Plain(CPU_TASK, num, "cpu", precision)
        systems[f"ours, SGD, {precision}"] = Ours(CPU_TASK, num, "cpu", precision, "none")
        systems[f"ours, natural gradient, {precision}"] = Ours(CPU_TASK, num, "cpu", precision, "online")
    timings = {name: Timing(system, num, minibatch, "cpu") for name, system in systems.items()}
    compare(timings, options)
    for precision, operations in peaks.items():
        print(f"product of 2048 x 2048 in {precision}: {operations / 1e9:.0f} Gflop/s")
    show(timings, CPU_TASK.operations, peaks, "CPU s")
    for precision in precisions:
        plain, sgd, online = (timings[name].best for name in timings if name.endswith(precision))
        print(
            f"{precision}: natural gradient {online / sgd:.2f} of ours without it, {online / plain:.2f} of "
            "plain torch"
        )


def on_gpu(options: Benchmark) -> None:
    peaks = gpu_peaks()
    for minibatch in (256, 1024, 4096):
        for precision in peaks:
            allow_tf32(precision)
            torch.cuda.reset_peak_memory_stats()
            timings = {}
            for kind in ("none", "online"):
                system = Ours(GPU_TASK, options.num_frames, "cuda", precision, kind, minibatch)
                timings[f"{kind}, minibatch {minibatch} {precision}"] = Timing(
                    system, options.num_frames, minibatch, "cuda"
                )
            compare(timings, options)
            show(timings, GPU_TASK.operations, peaks, "s")
            sgd, online = (timing.best for timing in timings.values())
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"natural gradient costs {sgd / online - 1:.1%}; 300 h in {EPOCH_FRAMES / online:.0f} s; "
                f"{memory:.1f} GiB with both"
            )


def gpu_peaks() -> dict[str, float]:
    """`peak` of a GPU in each precision; empty, with a message, if there is no GPU."""
    if not torch.cuda.is_available():
        print("GPU skipped: torch finds none")
        return {}
    print(f"GPU: {torch.cuda.get_device_name()}")
    return {precision: gpu_peak(precision) for precision in DTYPES}


def gpu_peak(precision: str) -> float:
    allow_tf32(precision)
    return peak("cuda", precision)


def allow_tf32(precision: str) -> None:
    """Use tf32 for float32 products on a GPU, including cuDNN's, if that is the precision."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def main(options: Benchmark) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    on_cpu(options)
    on_gpu(options)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
