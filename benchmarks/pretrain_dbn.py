#!/usr/bin/env python3
"""Frames per CPU second of contrastive divergence, ours against a plain torch loop, in the same run and on one core.

Both do the same update (minibatch, momentum and L2 of Kaldi's recipe) of a Gaussian machine on 440 inputs and of a Bernoulli machine, in
float32 and in bfloat16 with float32 parameters. The plain loop is what one would write with torch's own functions: `torch.bernoulli`,
one product for each statistic, a list of parameters.

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
STDDEV = 0.01  # so small that the plain loop, which has no guard against explosions, needs none
_NUM_ROUNDS = 6


@dataclass(frozen=True)
class Benchmark:
    hidden_dim: int = option(2048, "hidden units of both machines", minimum=1)
    num_minibatches: int = option(60, "minibatches of each measurement, taken by turns in six rounds", minimum=6)


def ours(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """One minibatch of the learner, as the training loop calls it."""
    rbm = Rbm(*dims, gaussian)
    rbm.initialise(STDDEV, torch.Generator().manual_seed(1))
    options = ComputeOptions(minibatch=MINIBATCH, precision=str(dtype).removeprefix("torch."), device="cpu")
    learner = RbmLearner(rbm, Below([], torch.device("cpu"), dtype), options, L2, torch.Generator())
    learner.momentum = MOMENTUM

    return lambda v: learner.step(v, None, RATE)


def plain(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """The same by torch's own functions."""
    visible_dim, hidden_dim = dims
    parameters = [STDDEV * torch.randn(hidden_dim, visible_dim), torch.zeros(hidden_dim), torch.zeros(visible_dim)]
    velocities = [torch.zeros_like(p) for p in parameters]

    def step(v):
        W, b, a = (p.to(dtype) for p in parameters)
        hidden = torch.sigmoid(v @ W.T + b)
        down = torch.bernoulli(hidden) @ W + a
        down = down if gaussian else torch.sigmoid(down)
        again = torch.sigmoid(down @ W.T + b)
        gradients = [hidden.T @ v - again.T @ down - MINIBATCH * L2 * W, (hidden - again).sum(0), (v - down).sum(0)]
        for parameter, velocity, gradient in zip(parameters, velocities, gradients):
            velocity.mul_(MOMENTUM).add_(gradient, alpha=RATE)
            parameter.add_(velocity)
        return (v - down).square().sum()

    return step


def frames_per_cpu_second(steps: list, v: torch.Tensor, num_minibatches: int) -> list[float]:
    """Of each of `steps`: the median of rounds that they take by turns, so that what else the machine does meets all alike."""
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
            v = (torch.randn(MINIBATCH, visible_dim) if gaussian else torch.rand(MINIBATCH, visible_dim)).to(dtype)
            speeds = frames_per_cpu_second([make(gaussian, dims, dtype) for make in (plain, ours)], v, options.num_minibatches)
            name = f"{'Gaussian' if gaussian else 'Bernoulli'} {dims[0]}-{dims[1]}"
            print(f"{name:<24} {str(dtype)[6:]:<10} {speeds[0]:8.0f} {speeds[1]:8.0f} {speeds[1] / speeds[0]:6.2f}", flush=True)


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
