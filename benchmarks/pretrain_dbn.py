#!/usr/bin/env python3
"""Frames per CPU second of contrastive divergence, ours against a plain torch loop, in the same run.

    OMP_NUM_THREADS=1 benchmarks/pretrain_dbn.py [--hidden-dim 2048] [--num-minibatches 30]

Both do the same update (minibatch, momentum and L2 of Kaldi's recipe) of a Gaussian machine on 440 inputs and of a Bernoulli machine, in
float32 and in bfloat16 with float32 parameters. The plain loop is what one would write with torch's own functions: `torch.bernoulli`,
one product for each statistic, a list of parameters.
"""

from __future__ import annotations

import argparse
import time

import torch

from pyasr.nn.dbn import Below
from pyasr.nn.rbm import Rbm
from pyasr.train.compute import ComputeOptions
from pyasr.train.rbm_learner import MomentumOptions, RbmLearner

INPUT_DIM, MINIBATCH, RATE, MOMENTUM, L2 = 440, 100, 1e-4, 0.9, 0.0002


def ours(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """One minibatch of the learner, as the training loop calls it."""
    rbm = Rbm(*dims, gaussian)
    rbm.initialise(0.1, torch.Generator().manual_seed(1))
    options = ComputeOptions(minibatch=MINIBATCH, precision=str(dtype).removeprefix("torch."), device="cpu")
    learner = RbmLearner(rbm, Below([], torch.device("cpu"), dtype), options, MomentumOptions(), L2, 2 * RATE, torch.Generator())

    def step(v):
        learner.step(v, None, RATE)
        learner.flat.refresh()

    return step


def plain(gaussian: bool, dims: tuple[int, int], dtype: torch.dtype):
    """The same by torch's own functions."""
    visible_dim, hidden_dim = dims
    parameters = [0.1 * torch.randn(hidden_dim, visible_dim), torch.zeros(hidden_dim), torch.zeros(visible_dim)]
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


def frames_per_cpu_second(step, v: torch.Tensor, num_minibatches: int) -> float:
    """Of the best third of the minibatches."""
    seconds = []
    for _ in range(num_minibatches):
        begin = time.process_time()
        step(v)
        seconds.append(time.process_time() - begin)
    best = sorted(seconds)[: max(num_minibatches // 3, 1)]
    return MINIBATCH * len(best) / sum(best)


def main() -> None:
    """Print a row for each machine and type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-dim", type=int, default=2048)
    parser.add_argument("--num-minibatches", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'machine':<24} {'type':<10} {'plain':>8} {'ours':>8} {'ratio':>6}   frames per CPU second")
    for gaussian, visible_dim in ((True, INPUT_DIM), (False, arguments.hidden_dim)):
        dims = visible_dim, arguments.hidden_dim
        for dtype in (torch.float32, torch.bfloat16):
            v = (torch.randn(MINIBATCH, visible_dim) if gaussian else torch.rand(MINIBATCH, visible_dim)).to(dtype)
            speeds = [frames_per_cpu_second(make(gaussian, dims, dtype), v, arguments.num_minibatches) for make in (plain, ours)]
            name = f"{'Gaussian' if gaussian else 'Bernoulli'} {dims[0]}-{dims[1]}"
            print(f"{name:<24} {str(dtype)[6:]:<10} {speeds[0]:8.0f} {speeds[1]:8.0f} {speeds[1] / speeds[0]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
