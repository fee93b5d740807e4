#!/usr/bin/env python3
"""Frames per CPU second of contrastive divergence on one core, by pyasr and by a plain torch loop.

Both compute the same update (minibatch, momentum and L2 of Kaldi's recipe) of a Gaussian RBM with 440 inputs
and of a Bernoulli RBM, in float32 and in bfloat16 with float32 parameters. The plain loop uses torch's own
functions: `torch.bernoulli`, one product per statistic, a list of parameters.

Example:
    benchmarks/pretrain_dbn.py --hidden-dim 2048 --num-minibatches 60
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.nn.networks.dbn import Below
from pyasr.nn.networks.rbm import Rbm
from pyasr.train.compute import ComputeOptions
from pyasr.train.sgd.rbm_learner import RbmLearner

INPUT_DIM, MINIBATCH, RATE, MOMENTUM, L2 = 440, 100, 1e-6, 0.9, 0.0002
STDDEV = 0.01  # small enough that the plain loop, which has no guard against explosions, does not diverge
_NUM_ROUNDS = 6


@dataclass(frozen=True)
class Benchmark:
    hidden_dim: int = option(2048, "number of hidden units of both RBMs", minimum=1)
    num_minibatches: int = option(
        60, "number of minibatches per measurement, in six alternating rounds", minimum=6
    )


def ours(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """A function for one minibatch of the learner, as called by the training loop."""
    rbm = Rbm(*dims, gaussian)
    rbm.initialise(STDDEV, torch.Generator().manual_seed(1))
    options = ComputeOptions(minibatch=MINIBATCH, precision=str(dtype).removeprefix("torch."), device="cpu")
    learner = RbmLearner(rbm, Below([], torch.device("cpu"), dtype), options, L2, torch.Generator())
    learner.momentum = MOMENTUM

    return lambda v: learner.step(v, None, RATE)


def plain(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """A function for one minibatch with torch's own functions."""
    visible_dim, hidden_dim = dims
    parameters = [
        STDDEV * torch.randn(hidden_dim, visible_dim),
        torch.zeros(hidden_dim),
        torch.zeros(visible_dim),
    ]
    velocities = [torch.zeros_like(p) for p in parameters]

    def step(v):
        W, b, a = (p.to(dtype) for p in parameters)
        hidden = torch.sigmoid(v @ W.T + b)
        down = torch.bernoulli(hidden) @ W + a
        down = down if gaussian else torch.sigmoid(down)
        again = torch.sigmoid(down @ W.T + b)
        gradients = [
            hidden.T @ v - again.T @ down - MINIBATCH * L2 * W,
            (hidden - again).sum(0),
            (v - down).sum(0),
        ]
        for parameter, velocity, gradient in zip(parameters, velocities, gradients):
            velocity.mul_(MOMENTUM).add_(gradient, alpha=RATE)
            parameter.add_(velocity)
        return (v - down).square().sum()

    return step


def frames_per_cpu_second(steps: list, v: torch.Tensor, num_minibatches: int) -> list[float]:
    """The median over rounds for each of `steps`, which alternate, so that other load on the machine affects
    all of them equally."""
    speeds = [[] for _ in steps]
    for _ in range(_NUM_ROUNDS):
        for step, found in zip(steps, speeds):
            step(v)
            begin = time.process_time()
            for _ in range(num_minibatches // _NUM_ROUNDS):
                step(v)
            found.append(num_minibatches // _NUM_ROUNDS * MINIBATCH / (time.process_time() - begin))
    return [sorted(found)[len(found) // 2] for found in speeds]


def main(options: Benchmark) -> None:
    torch.set_num_threads(1)
    print(f"{'machine':<24} {'type':<10} {'plain':>8} {'ours':>8} {'ratio':>6}   frames per CPU second")
    for gaussian, visible_dim in ((True, INPUT_DIM), (False, options.hidden_dim)):
        dims = visible_dim, options.hidden_dim
        for dtype in (torch.float32, torch.bfloat16):
            v = (torch.randn(MINIBATCH, visible_dim) if gaussian else torch.rand(MINIBATCH, visible_dim)).to(
                dtype
            )
            speeds = frames_per_cpu_second(
                [make(gaussian, dims, dtype) for make in (plain, ours)], v, options.num_minibatches
            )
            name = f"{'Gaussian' if gaussian else 'Bernoulli'} {dims[0]}-{dims[1]}"
            print(
                f"{name:<24} {str(dtype)[6:]:<10} {speeds[0]:8.0f} {speeds[1]:8.0f} "
                f"{speeds[1] / speeds[0]:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
