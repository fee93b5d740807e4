#!/usr/bin/env python3
"""Time of every scheme of parallel training on slow networks, and of torch's DistributedDataParallel, in one run. Needs root, and Linux.

Four ranks, one on each of four hosts (network namespaces) that are joined by links of the speed given, mix a vector of parameters by MPI,
through the strategies that train networks; torch's ranks talk by gloo over the same links. Nothing is trained: computing is *emulated by
sleeping* for a stated time a minibatch, so that ranks do not fight for the cores of this machine. 145 ms is what a K20 took for 1024
frames through the 40 M-parameter network of arXiv:1507.01239 (254.5 min for 300 hours). Schemes average every 10 minibatches or, where
that is what they are, every minibatch. Messages are float32, except those of schemes that are called SCHEME+bfloat16.

A setting is MBIT_PER_S:PARAMETERS:MILLISECONDS, in millions of parameters. Message and time may be divided by the same number to get
through a slow network's measurement sooner; link and message by the same number, to get the load of a network that is too fast for the
processor of this machine: its four ranks push all bytes through a few cores, which on a cluster would be those of four hosts. The load
is the time of an all-reduce of the least possible traffic, 2 (P - 1) / P messages, over the time of computing between two of them.

minibatches  between two mixings, as it came
ms           the time of a minibatch: ranks over the minibatches of all ranks in a second; a parameter server makes none
hours/epoch  of 300 hours of speech, at that time a minibatch
speed-up     over one learner, which only computes
step         share of the time that is not computing; of it in waiting for other ranks, and in mixing; a background's work is in none
efficiency   of scaling: time of computing / time, of a minibatch
of torch     the peer's time over ours: of DistributedDataParallel for schemes that mix every minibatch, else of PeriodicModelAverager

Example:
    benchmarks/parallel.py --num-rounds 2 10000:40:145 1000:4:145
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from private_network import check_possible
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from slow_network import SlowNetwork

NUM_RANKS, MINIBATCH = 4, 1024
DEFAULT_SETTINGS = ("10000:40:145", "1000:4:145", "1000:40:145", "100:4:14.5")
EPOCH_MINIBATCHES = 108_000_000 / MINIBATCH  # 300 hours, all ranks together
MIXINGS = {1: 8, 10: 2}  # by the period in minibatches: how many are timed
MINIBATCHES = {"asgd": 60}  # of a scheme that mixes more rarely than it might
EVERY_MINIBATCH = ("gradient", "d1d", "dpsgd", "adpsgd", "hadpsgd", "asgd")
PEERS = {"ddp": ("torch DDP, gloo", 1), "averager": ("torch averager, gloo", 10)}
OPTIONS = {"post-local": {"post_local_epochs": 0}, "kaldi": {"initial_ranks": NUM_RANKS}}
NARROW = [f"{name}+bfloat16" for name in ("allreduce", "delayed", "gradient", "d1d", "dpsgd", "adpsgd")]
REFERENCE = {1: PEERS["ddp"][0], 10: PEERS["averager"][0]}


@dataclass(frozen=True)
class Benchmark:
    settings: tuple = argument(f"MBIT_PER_S:MILLION_PARAMETERS:MILLISECONDS; 'default' for {' '.join(DEFAULT_SETTINGS)}", many=True)
    schemes: str = option("all", "those to measure, with commas; 'torch' stands for the peer")
    num_rounds: int = option(1, "turns; the best time of each is told", minimum=1)
    timeout: float = option(1500.0, "seconds for one turn of one setting", minimum=10.0)


@dataclass(frozen=True)
class Setting:
    """A network and a load."""

    mbit_per_s: int
    num_params: int
    compute_s: float

    @property
    def message_s(self) -> float:
        """Of an all-reduce of float32 at the link's speed."""
        return 2 * (NUM_RANKS - 1) / NUM_RANKS * self.num_params * 32 / (self.mbit_per_s * 1e6)

    def __str__(self) -> str:
        return f"{self.mbit_per_s:g} Mbit/s, {self.num_params / 1e6:g} M parameters, {1000 * self.compute_s:g} ms a minibatch"


def parse_setting(text: str) -> Setting:
    """Raises UserError."""
    try:
        mbit, millions, milliseconds = map(float, text.split(":"))
        setting = Setting(int(mbit), int(1e6 * millions), milliseconds / 1000)
        if min(setting.mbit_per_s, setting.num_params, setting.compute_s) <= 0:
            raise ValueError
    except (ValueError, OverflowError):
        raise UserError(f"'{text}' is no setting; write MBIT_PER_S:MILLION_PARAMETERS:MILLISECONDS, such as 1000:4:145") from None
    return setting


def cases(wanted: str) -> list[dict]:
    """What to measure, as the ranks understand it."""
    from pyasr.parallel.strategies import strategy_names

    names = [*strategy_names(), *NARROW]
    chosen = ["torch", *names] if wanted == "all" else wanted.split(",")
    unknown = [name for name in chosen if name not in (*names, "torch")]
    if unknown:
        raise UserError(f"--schemes: there is no '{unknown[0]}'; choose from torch, {', '.join(names)}")
    own = [scheme_case(name) for name in chosen if name != "torch"]
    peers = [sized({"label": label, "peer": peer, "period": period}) for peer, (label, period) in PEERS.items()]
    return peers * ("torch" in chosen) + own


def scheme_case(label: str) -> dict:
    name, _, payload = label.partition("+")
    period = 1 if name in EVERY_MINIBATCH else 10
    options = {"parallel": name, "payload": payload or "float32", **OPTIONS.get(name, {})}
    if name not in EVERY_MINIBATCH:
        options["period_frames"] = period * MINIBATCH
    return sized({"label": label, "period": period, "options": options})


def sized(case: dict) -> dict:
    return {**case, "minibatches": MINIBATCHES.get(case["label"], (MIXINGS[case["period"]] + 2) * case["period"])}


def measure(network: SlowNetwork, setting: Setting, wanted: list[dict], options: Benchmark) -> dict[str, np.ndarray]:
    """{label: what `parallel_ranks` tells}, of the turn with the least time."""
    network.limit(setting.mbit_per_s)
    plan = {"num_params": setting.num_params, "compute_s": setting.compute_s, "minibatch": MINIBATCH,
            "address": network.addresses()[0], "cases": wanted}  # fmt: skip
    best: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(plan))
        for _ in range(options.num_rounds):
            ranks = Path(__file__).with_name("parallel_ranks.py")
            network.run_ranks([sys.executable, "-m", "mpi4py", str(ranks), str(path)], options.timeout)
            for label, times in json.loads(path.with_suffix(".told.json").read_text()).items():
                if label not in best or times[0] < best[label][0]:
                    best[label] = np.array(times)
    return best


HEADINGS = ("minibatches", "ms", "step", "waiting", "mixing", "hours/epoch", "speed-up", "efficiency", "of torch")


def show(setting: Setting, wanted: list[dict], told: dict[str, np.ndarray]) -> None:
    """A table, one scheme a line."""
    load = setting.message_s / setting.compute_s
    print(f"\n{setting}\nload: {load:.2f} every minibatch, {load / 10:.3f} every 10\n")
    print("| scheme | " + " | ".join(HEADINGS) + " |\n|---|" + "---|" * len(HEADINGS))
    for case in wanted:
        cells = line(setting, case, told[case["label"]], told.get(REFERENCE[case["period"]]))
        print("| " + " | ".join([case["label"], *cells]) + " |", flush=True)


def line(setting: Setting, case: dict, own: np.ndarray, peer: np.ndarray | None) -> list[str]:
    """The cells under `HEADINGS`."""
    seconds, minibatches, step, waiting, mixing = own
    efficiency = setting.compute_s / seconds
    parts = [f"{waiting:.1%}", f"{mixing:.1%}"] if "options" in case else ["", ""]
    hours = EPOCH_MINIBATCHES / NUM_RANKS * seconds / 3600
    ratio = "" if peer is None else f"{peer[0] / seconds:.2f}"
    return [f"{minibatches:.1f}", f"{1000 * seconds:.1f}", f"{step:.1%}", *parts, f"{hours:.2f}", f"{NUM_RANKS * efficiency:.2f}",
            f"{efficiency:.1%}", ratio]  # fmt: skip


def main(options: Benchmark) -> None:
    check_possible()
    words = [word for given in options.settings for word in (DEFAULT_SETTINGS if given == "default" else (given,))]
    settings, wanted = [parse_setting(word) for word in words], cases(options.schemes)
    print(f"{NUM_RANKS} ranks on {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}); computing is emulated by sleeping; "
          f"best of {options.num_rounds}; 'of torch': its time over ours, DDP's every minibatch, its averager's every 10")  # fmt: skip
    with SlowNetwork(NUM_RANKS) as network:
        for setting in settings:
            show(setting, wanted, measure(network, setting, wanted, options))


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
