#!/usr/bin/env python3
"""Time of every scheme of parallel training on slow networks, compared with torch's DistributedDataParallel.
Needs root and Linux.

Four ranks, one on each of four hosts (network namespaces) with links of the given speed, mix a parameter
vector over MPI, through the strategies of training; torch's ranks communicate by gloo over the same links.
Nothing is trained: computing is *emulated by sleeping* for a given time per minibatch, so that ranks do not
compete for the cores of this machine. 145 ms is the time of a K20 for 1024 frames with the 40 M-parameter
network of arXiv:1507.01239 (254.5 min for 300 hours). Schemes average every 10 minibatches, or every
minibatch if the scheme prescribes that. Messages are float32, except those of schemes called SCHEME+bfloat16.

A setting is MBIT_PER_S:PARAMETERS:MILLISECONDS, in millions of parameters. To measure a slow network faster,
divide message and time by the same number. To get the load of a network that is too fast for this machine,
whose few cores process the bytes of all four hosts, divide link and message by the same number. The load is
the time of an all-reduce with the minimum traffic, 2 (P - 1) / P messages, divided by the computing time
between two of them.

minibatches  mean number between two mixings
ms           time per minibatch: number of ranks / minibatches per second of all ranks; a parameter server
             processes none
hours/epoch  for 300 hours of speech, at that time per minibatch
speed-up     relative to one learner, which only computes
step         percentage of the time that is not computing; next, the parts of it spent waiting for other ranks
             and mixing; work in the background counts in neither
efficiency   of scaling: computing time / time, per minibatch
of torch     time of the peer / time of pyasr: DistributedDataParallel for schemes that mix every minibatch,
             else PeriodicModelAverager

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
from slow_network import SlowNetwork

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError

NUM_RANKS, MINIBATCH = 4, 1024
DEFAULT_SETTINGS = ("10000:40:145", "1000:4:145", "1000:40:145", "100:4:14.5")
EPOCH_MINIBATCHES = 108_000_000 / MINIBATCH  # 300 hours, all ranks together
MIXINGS = {1: 8, 10: 2}  # period in minibatches: number of timed mixings
MINIBATCHES = {"asgd": 60}  # for a scheme whose mixings may be rarer than its period
EVERY_MINIBATCH = ("gradient", "d1d", "dpsgd", "adpsgd", "hadpsgd", "asgd")
PEERS = {"ddp": ("torch DDP, gloo", 1), "averager": ("torch averager, gloo", 10)}
OPTIONS = {"post-local": {"post_local_epochs": 0}, "kaldi": {"initial_ranks": NUM_RANKS}}
NARROW = [f"{name}+bfloat16" for name in ("allreduce", "delayed", "gradient", "d1d", "dpsgd", "adpsgd")]
REFERENCE = {1: PEERS["ddp"][0], 10: PEERS["averager"][0]}


@dataclass(frozen=True)
class Benchmark:
    settings: tuple = argument(
        f"MBIT_PER_S:MILLION_PARAMETERS:MILLISECONDS; 'default' for {' '.join(DEFAULT_SETTINGS)}", many=True
    )
    schemes: str = option("all", "schemes to measure, separated by commas; 'torch' is the peer")
    num_rounds: int = option(1, "number of rounds; the minimum time of each scheme is printed", minimum=1)
    timeout: float = option(1500.0, "time limit of one round of one setting in seconds", minimum=10.0)


@dataclass(frozen=True)
class Setting:
    """A network and a load."""

    mbit_per_s: int
    num_params: int
    compute_s: float

    @property
    def message_s(self) -> float:
        """Seconds of an all-reduce of float32 at the link's speed."""
        return 2 * (NUM_RANKS - 1) / NUM_RANKS * self.num_params * 32 / (self.mbit_per_s * 1e6)

    def __str__(self) -> str:
        return (
            f"{self.mbit_per_s:g} Mbit/s, {self.num_params / 1e6:g} M parameters, "
            f"{1000 * self.compute_s:g} ms a minibatch"
        )


def parse_setting(text: str) -> Setting:
    """Raises UserError."""
    try:
        mbit, millions, milliseconds = map(float, text.split(":"))
        setting = Setting(int(mbit), int(1e6 * millions), milliseconds / 1000)
        if min(setting.mbit_per_s, setting.num_params, setting.compute_s) <= 0:
            raise ValueError
    except (ValueError, OverflowError):
        raise UserError(
            f"'{text}' is not a setting; write MBIT_PER_S:MILLION_PARAMETERS:MILLISECONDS, such as 1000:4:145"
        ) from None
    return setting


def cases(wanted: str) -> list[dict]:
    """The cases to measure, in the form of the plan for the ranks."""
    from pyasr.parallel.strategies import strategy_names

    names = [*strategy_names(), *NARROW]
    chosen = ["torch", *names] if wanted == "all" else wanted.split(",")
    unknown = [name for name in chosen if name not in (*names, "torch")]
    if unknown:
        raise UserError(f"--schemes: no such scheme '{unknown[0]}'; choose from torch, {', '.join(names)}")
    own = [scheme_case(name) for name in chosen if name != "torch"]
    peers = [
        sized({"label": label, "peer": peer, "period": period}) for peer, (label, period) in PEERS.items()
    ]
    return peers * ("torch" in chosen) + own


def scheme_case(label: str) -> dict:
    name, _, payload = label.partition("+")
    period = 1 if name in EVERY_MINIBATCH else 10
    options = {"parallel": name, "payload": payload or "float32", **OPTIONS.get(name, {})}
    if name not in EVERY_MINIBATCH:
        options["period_frames"] = period * MINIBATCH
    return sized({"label": label, "period": period, "options": options})


def sized(case: dict) -> dict:
    return {
        **case,
        "minibatches": MINIBATCHES.get(case["label"], (MIXINGS[case["period"]] + 2) * case["period"]),
    }


def measure(
    network: SlowNetwork, setting: Setting, wanted: list[dict], options: Benchmark
) -> dict[str, np.ndarray]:
    """{label: results of `parallel_ranks`}, of the round with the minimum time."""
    network.limit(setting.mbit_per_s)
    plan = {
        "num_params": setting.num_params,
        "compute_s": setting.compute_s,
        "minibatch": MINIBATCH,
        "address": network.addresses()[0],
        "cases": wanted,
    }
    best: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(plan))
        for _ in range(options.num_rounds):
            ranks = Path(__file__).with_name("parallel_ranks.py")
            network.run_ranks([sys.executable, "-m", "mpi4py", str(ranks), str(path)], options.timeout)
            for label, times in json.loads(path.with_suffix(".times.json").read_text()).items():
                if label not in best or times[0] < best[label][0]:
                    best[label] = np.array(times)
    return best


HEADINGS = (
    "minibatches",
    "ms",
    "step",
    "waiting",
    "mixing",
    "hours/epoch",
    "speed-up",
    "efficiency",
    "of torch",
)


def show(setting: Setting, wanted: list[dict], sentence: dict[str, np.ndarray]) -> None:
    """Print a table with a line per scheme."""
    load = setting.message_s / setting.compute_s
    print(f"\n{setting}\nload: {load:.2f} every minibatch, {load / 10:.3f} every 10\n")
    print("| scheme | " + " | ".join(HEADINGS) + " |\n|---|" + "---|" * len(HEADINGS))
    for case in wanted:
        cells = line(setting, case, sentence[case["label"]], sentence.get(REFERENCE[case["period"]]))
        print("| " + " | ".join([case["label"], *cells]) + " |", flush=True)


def line(setting: Setting, case: dict, own: np.ndarray, peer: np.ndarray | None) -> list[str]:
    """The cells of a line, in the order of `HEADINGS`."""
    seconds, minibatches, step, waiting, mixing = own
    efficiency = setting.compute_s / seconds
    parts = [f"{waiting:.1%}", f"{mixing:.1%}"] if "options" in case else ["", ""]
    hours = EPOCH_MINIBATCHES / NUM_RANKS * seconds / 3600
    ratio = "" if peer is None else f"{peer[0] / seconds:.2f}"
    return [
        f"{minibatches:.1f}",
        f"{1000 * seconds:.1f}",
        f"{step:.1%}",
        *parts,
        f"{hours:.2f}",
        f"{NUM_RANKS * efficiency:.2f}",
        f"{efficiency:.1%}",
        ratio,
    ]


def main(options: Benchmark) -> None:
    check_possible()
    words = [
        word for given in options.settings for word in (DEFAULT_SETTINGS if given == "default" else (given,))
    ]
    settings, wanted = [parse_setting(word) for word in words], cases(options.schemes)
    print(
        f"{NUM_RANKS} ranks on {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}); computing is emulated "
        f"by sleeping; best of {options.num_rounds}; 'of torch': its time / ours, with DDP every minibatch, "
        "with its averager every 10"
    )
    with SlowNetwork(NUM_RANKS) as network:
        for setting in settings:
            show(setting, wanted, measure(network, setting, wanted, options))


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
