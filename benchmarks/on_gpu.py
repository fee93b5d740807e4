#!/usr/bin/env python3
"""Measure training on the GPU of this machine in about four minutes: limits of the GPU, losses compared with
the CPU, kernels and synchronisations of a step, and frames per second compared with a plain torch loop.

    card       name, versions, whether cuDNN supports bfloat16
    limits     a large product in each precision, copies on the device and to the host, products of the sizes
               of a layer, eigenvalues
    losses     200 minibatches with natural gradient, on the CPU and on the GPU, in float32 and in bfloat16
    step       kernels, time on the GPU, and synchronisations of a step; 440-6x2048-8806, minibatch 1024
    speed      frames per second of that network, with and without natural gradient, compared with a plain
               torch loop
    lstm       the same for IBM's BLSTM (6 layers of 512 cells per direction, 32,000 outputs), minibatches of
               128 and 256 chunks of 21 frames

Percentages of peak are relative to the large product in the same precision and run.

Example:
    benchmarks/on_gpu.py --parts card,limits,step
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import train_lstm
from torch.profiler import ProfilerActivity, profile
from train_dnn import CPU_TASK, EPOCH_FRAMES, GPU_TASK, Ours, Plain, Timing, allow_tf32, compare, gpu_peaks

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.nn.layers.lstm import cudnn_supports

MINIBATCH = 1024
KINDS = "none", "online"


@dataclass(frozen=True)
class Benchmark:
    parts: str = option("card,limits,losses,step,speed,lstm", "parts to measure, separated by commas")
    num_minibatches: int = option(100, "number of minibatches per round", minimum=20)
    num_rounds: int = option(3, "number of rounds, in which the systems alternate", minimum=1)
    num_frames: int = option(60_000, "number of frames in the store", minimum=1000)


def card(_: Benchmark) -> None:
    properties = torch.cuda.get_device_properties(0)
    print(
        f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
        f"{properties.total_memory / 2**30:.0f} GiB"
    )
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    takes = cudnn_supports(torch.zeros(1, dtype=torch.bfloat16, device="cuda"))
    print(f"cuDNN computes LSTM layers in bfloat16: {'yes' if takes else 'no'}")


def microseconds(function: Callable[[], object], repeats: int = 50) -> float:
    """Microseconds of a call, measured by events of the device after some calls that are not timed."""
    for _ in range(3):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end) / repeats


def limits(_: Benchmark) -> None:
    for precision, operations in gpu_peaks().items():
        print(f"product of 8192 x 8192 in {precision}: {operations / 1e12:.0f} Tflop/s")
    large = torch.randn(1 << 28, device="cuda")
    print(
        f"copy on the device: {2 * large.nbytes / microseconds(large.clone) / 1e6:.2f} TB/s, read and written"
    )
    print_copies()
    print_products()
    for rank in (80, 20):
        print_eigenvalues(rank)


def print_copies() -> None:
    """Copy 40 M parameters in float32 to the host and back."""
    on_device = torch.randn(40_000_000, device="cuda")
    for name, host in (
        ("pageable", torch.empty(40_000_000)),
        ("pinned", torch.empty(40_000_000, pin_memory=True)),
    ):
        out, back = (
            microseconds(lambda: to.copy_(of), 5) / 1000 for to, of in ((host, on_device), (on_device, host))
        )
        print(f"160 MB, {name}: {out:.1f} ms to the host, {back:.1f} ms from it")


def print_products() -> None:
    """Print the times of the three products of layers of the network, in bfloat16."""
    for inputs, outputs in ((440, 2048), (2048, 2048), (2048, 8806), (2048, 8832)):
        x, y, w = (
            torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            for shape in ((MINIBATCH, inputs), (MINIBATCH, outputs), (outputs, inputs))
        )
        times = [microseconds(product) for product in (lambda: x @ w.T, lambda: y @ w, lambda: y.T @ x)]
        rates = [2e-6 * MINIBATCH * inputs * outputs / spent for spent in times]
        print(
            f"layer {inputs} x {outputs}, forward, by input, by weight: "
            + ", ".join(f"{spent:.0f} us ({rate:.0f} Tflop/s)" for spent, rate in zip(times, rates))
        )


def print_eigenvalues(rank: int) -> None:
    """Print the times of the eigenvectors of seven symmetric matrices."""
    matrices = torch.randn(7, rank, rank, dtype=torch.float64)
    matrices = matrices @ matrices.mT
    on_device = matrices.cuda()
    begin = time.perf_counter()
    for _ in range(5):
        for matrix in matrices:
            torch.linalg.eigh(matrix)
    host = (time.perf_counter() - begin) / 5
    print(
        f"eigenvectors of 7 x ({rank}, {rank}) float64: host {1000 * host:.2f} ms, "
        f"GPU {microseconds(lambda: torch.linalg.eigh(on_device), 5) / 1000:.2f} ms"
    )


def losses(options: Benchmark) -> None:
    for precision in ("float32", "bfloat16"):
        own, other = (losses_of(options, device, precision) for device in ("cpu", "cuda"))
        difference = ((own - other).abs() / own).max()
        print(
            f"losses of 200 minibatches, {precision}: last {own[-1]:.5f} (CPU), {other[-1]:.5f} (GPU), "
            f"maximum relative difference {difference:.1e}"
        )


def losses_of(options: Benchmark, device: str, precision: str) -> torch.Tensor:
    """Losses per frame of 200 minibatches."""
    system = Ours(CPU_TASK, options.num_frames, device, precision, "online")
    random = torch.Generator().manual_seed(2)
    indices = torch.randint(options.num_frames, (200, 512), generator=random)
    return torch.stack([system.step(index.to(device)) for index in indices]).cpu() / 512


def step(options: Benchmark) -> None:
    for kind in KINDS:
        system = Ours(GPU_TASK, options.num_frames, "cuda", "bfloat16", kind, MINIBATCH)
        indices = torch.randint(options.num_frames, (32, MINIBATCH), device="cuda")
        for index in indices[:16]:
            system.step(index)
        waits = [num_waits(system, index) for index in indices[16:20]]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for index in indices[20:28]:
                system.step(index)
            torch.cuda.synchronize()
        print(f"{kind}: synchronisations of four steps {waits}; mean of a step:")
        print_profile(profiler, 8)


def num_waits(system: Ours, index: torch.Tensor) -> int:
    """Number of times that the host waits for the device in a step."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        system.step(index)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def print_profile(profiler: profile, steps: int) -> None:
    """Print the kernels that take longest."""
    rows = [
        event
        for event in profiler.key_averages()
        if event.self_device_time_total > 0 and event.device_type.name == "CUDA"
    ]
    rows.sort(key=lambda event: -event.self_device_time_total)
    total, count = sum(event.self_device_time_total for event in rows), sum(event.count for event in rows)
    print(f"  {count / steps:.0f} kernels and copies, {total / steps:.0f} us on the GPU")
    for event in rows[:60]:
        print(
            f"  {event.self_device_time_total / steps:8.1f} us {event.count / steps:6.1f} x {event.key[:110]}"
        )


def speed(options: Benchmark) -> None:
    peaks = gpu_peaks()
    for precision in ("tf32", "bfloat16"):
        allow_tf32(precision)
        tell(dict(timings_of(options, precision)), options, precision, GPU_TASK.operations / peaks[precision])


def lstm(options: Benchmark) -> None:
    peaks = gpu_peaks()
    for chunks in (128, 256):
        timings = train_lstm.timings_of(
            train_lstm.GPU_TASK, train_lstm.Benchmark(num_chunks=600), "cuda", "bfloat16", chunks
        )
        fewer, operations = dataclasses.replace(options, num_minibatches=20), train_lstm.GPU_TASK.operations
        tell(timings, fewer, f"{chunks} chunks", operations / peaks["bfloat16"])


def tell(timings: dict[str, Timing], options: Benchmark, what: str, seconds_at_peak: float) -> None:
    """Time the systems, which alternate, and print their rates."""
    compare(timings, options)
    for name, timing in timings.items():
        print(
            f"{what}, {name:24s}{timing.best / 1e6:8.3f} M frames/s{timing.best * seconds_at_peak:6.0%} of "
            f"peak; 300 h in {EPOCH_FRAMES / timing.best:.0f} s; objective {timing.objective:.4f}"
        )


def timings_of(options: Benchmark, precision: str) -> Iterator[tuple[str, Timing]]:
    """Systems by name."""
    num = options.num_frames
    yield "plain torch", Timing(Plain(GPU_TASK, num, "cuda", precision), num, MINIBATCH, "cuda")
    for kind, name in zip(KINDS, ("ours, SGD", "ours, natural gradient")):
        yield name, Timing(Ours(GPU_TASK, num, "cuda", precision, kind, MINIBATCH), num, MINIBATCH, "cuda")


PARTS = {part.__name__: part for part in (card, limits, losses, step, speed, lstm)}


def main(options: Benchmark) -> None:
    names = options.parts.split(",")
    if wrong := [name for name in names if name not in PARTS]:
        raise UserError(f"--parts {wrong[0]}: choose from {', '.join(PARTS)}")
    if not torch.cuda.is_available():
        raise UserError("torch finds no GPU; run this benchmark on a machine with a GPU")
    for name in names:
        begin = time.monotonic()
        print(f"\n{name}")
        PARTS[name](options)
        print(f"  ({time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
