"""One rank of `parallel.py`: training loops in which computing is a sleep. `python -m mpi4py
parallel_ranks.py PLAN.json`.

The plan lists the cases. Rank 0 writes PLAN.times.json, {label: [seconds per minibatch, minibatches per
mixing, fractions of the time in step, in waiting and in mixing]}, measured from the end of the first period
to the beginning of the last, without the beginning and the end of the epoch. Seconds per minibatch are the
number of ranks, trainers and servers, divided by the minibatches per second of all ranks.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pyasr.base.outputs.output import atomic_write
from pyasr.nn.layers.preconditioned_layers import NaturalGradient
from pyasr.parallel.communication.mpi_comm import MpiComm
from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.parallel.strategies import Strategy, make_strategy, mixing_options
from pyasr.train.sgd.completion import Completion

_PORT = 29511
# layer sizes, which give the proportions of the peer's gradients
LAYERS = (440, 2048, 2048, 2048, 2048, 2048, 2048, 8806)


class Clock:
    """Time of a loop of minibatches, and its time in communication."""

    def __init__(self):
        self._marks = [[time.perf_counter(), 0.0, 0.0, 0.0, 0]]

    def mark(self, in_step: float, times=(0.0, 0.0), mixed: bool = True) -> None:
        """Record the end of a minibatch: seconds in its step; total seconds of waiting and mixing; whether it
        ended with a mixing."""
        self._marks.append(
            [time.perf_counter(), self._marks[-1][1] + in_step, *times, self._marks[-1][4] + mixed]
        )

    def rates(self, period: int) -> np.ndarray:
        """(minibatches, mixings, and seconds in step, waiting and mixing) per second, without the first and
        the last period."""
        marks = np.array(self._marks[period : len(self._marks) - period])
        if len(marks) < 2:
            return np.zeros(5)
        seconds, *others, mixings = marks[-1] - marks[0]
        return np.array([len(marks) - 1, mixings, *others]) / seconds


def strategy_loop(comm: MpiComm, plan: dict, case: dict) -> Clock:
    """One epoch of a scheme of pyasr."""
    master = torch.rand(plan["num_params"])
    strategy = make_strategy(comm, mixing_options(**case["options"]))
    strategy.restart(master)
    strategy.drift = 0.0  # training measures it occasionally
    strategy.training.objective = float  # nothing is trained
    minibatch, left, mixing = plan["minibatch"], case["minibatches"], None
    if strategy.share != (comm.rank, comm.size):  # it draws from all data
        left *= comm.size
    compute = computing(strategy, plan)
    strategy.begin_epoch(left * minibatch, minibatch)
    clock = Clock()
    while mixing is None or not mixing.last:
        trains, begin = strategy.share is not None and left > 0 and not strategy.is_idle, time.perf_counter()
        if trains:
            compute()
        mixing = strategy.step(master, minibatch * trains)
        left -= 1
        if trains:
            clock.mark(time.perf_counter() - begin - plan["compute_s"], strategy.times, mixing is not None)
    return clock


def computing(strategy: Strategy, plan: dict) -> Callable[[], None]:
    """A function that computes a minibatch; layer by layer if the scheme sums gradients during the backward
    pass."""
    gradient_sum = strategy.sum_gradients()
    if gradient_sum is None:
        return lambda: time.sleep(plan["compute_s"])
    network = SleepingNetwork(plan["num_params"], plan["compute_s"])
    flat, x = FlatParameters(network.parameters()), torch.zeros(1, requires_grad=True)
    gradient_sum.attach(flat.grad, [span.start for span in flat.spans])
    completion = Completion(network, flat.spans, NaturalGradient({}), gradient_sum.ready)

    def compute() -> None:
        completion.restart()
        gradient_sum.begin(plan["minibatch"])
        network(x).sum().backward()
        gradient_sum.finish()

    return compute


class SleepingLayer(torch.autograd.Function):
    """A layer that sleeps for a third of its time in the forward pass and two thirds in the backward pass;
    its gradient is an argument."""

    @staticmethod
    def forward(ctx, x, weight, gradient, seconds):
        ctx.gradient, ctx.seconds = gradient, seconds
        time.sleep(seconds / 3)
        return x + 0

    @staticmethod
    def backward(ctx, derivative):
        time.sleep(2 * ctx.seconds / 3)
        return derivative, ctx.gradient, None, None


class SleepingNetwork(torch.nn.Module):
    """Layers with `num_params` parameters that sleep for `compute_s` in total, each in proportion to its
    parameters."""

    def __init__(self, num_params: int, compute_s: float):
        super().__init__()
        shares = np.array([a * b for a, b in zip(LAYERS, LAYERS[1:])], float)
        shares /= shares.sum()
        self.weights = torch.nn.ParameterList(torch.rand(int(share * num_params)) for share in shares)
        self.gradients = [torch.zeros_like(weight) for weight in self.weights]
        self.seconds = shares * compute_s

    def forward(self, x):
        for weight, gradient, seconds in zip(self.weights, self.gradients, self.seconds):
            x = SleepingLayer.apply(x, weight, gradient, float(seconds))
        return x


def peer_step(plan: dict, case: dict):
    """A minibatch of torch: gradients by DistributedDataParallel, or parameters by PeriodicModelAverager;
    returns seconds of averaging."""
    network = SleepingNetwork(plan["num_params"], plan["compute_s"])
    x = torch.zeros(1, requires_grad=True)
    if case["peer"] == "ddp":
        parallel = torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)

        def step() -> float:
            begin = time.perf_counter()
            parallel(x).sum().backward()
            return time.perf_counter() - begin - plan["compute_s"]
    else:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        averager = PeriodicModelAverager(period=case["period"])
        for weight, gradient in zip(network.weights, network.gradients):
            weight.grad = gradient  # parameters without gradient are skipped

        def step() -> float:
            time.sleep(plan["compute_s"])
            begin = time.perf_counter()
            averager.average_parameters(network.parameters())
            return time.perf_counter() - begin

    return step


def peer_loop(comm: MpiComm, plan: dict, case: dict) -> Clock:
    """torch over gloo, with the same ranks."""
    if not torch.distributed.is_initialized():
        store = f"tcp://{plan['address']}:{_PORT}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=comm.rank, world_size=comm.size)
    step, clock = peer_step(plan, case), Clock()
    for number in range(case["minibatches"]):
        clock.mark(step(), mixed=number % case["period"] == 0)
    return clock


def times_of_case(comm: MpiComm, clock: Clock, period: int) -> list[float]:
    """The results of a case for PLAN.times.json."""
    own = clock.rates(period)
    minibatches, mixings, *parts = comm.allreduce(own, "mean")
    num_learners = comm.reduce_scalar(bool(own[0]))
    return [
        1 / minibatches,
        minibatches / mixings if mixings else math.inf,
        *np.multiply(parts, comm.size / num_learners).tolist(),
    ]


def main(path: Path) -> None:
    """Measure all cases in sequence."""
    torch.set_num_threads(1)
    plan, comm, message = json.loads(path.read_text()), MpiComm(), {}
    for case in plan["cases"]:
        comm.barrier()
        clock = (peer_loop if "peer" in case else strategy_loop)(comm, plan, case)
        message[case["label"]] = times_of_case(comm, clock, case["period"])
    if comm.rank == 0:
        with atomic_write(path.with_suffix(".times.json")) as f:
            json.dump(message, f)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
