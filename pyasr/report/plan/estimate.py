"""What a recipe's calls take: by stages, with the rates of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyasr.report.plan.calls import Call
from pyasr.report.plan.corpus import Corpus
from pyasr.report.plan.rates import Rates, at
from pyasr.report.plan.works import LITTLE, WORKS, key_of
from pyasr.report.text_table import markdown_table

_ON_GPU = ("train_dnn", "pretrain_dbn")
_GPU_RATE = "training_gflop_per_s"


@dataclass
class Cost:
    """Core seconds, seconds with the calls' jobs or ranks side by side, bytes on disk, MB of the largest job, GPU seconds."""

    core_s: float = 0.0
    wall_s: float = 0.0
    disk_bytes: float = 0.0
    memory_mb: float = 0.0
    gpu_s: float = 0.0

    def add(self, other: Cost) -> None:
        """What comes after this."""
        self.core_s += other.core_s
        self.wall_s += other.wall_s
        self.disk_bytes += other.disk_bytes
        self.memory_mb = max(self.memory_mb, other.memory_mb)
        self.gpu_s += other.gpu_s


@dataclass
class Plan:
    """Costs by stage in order, and the programs that have no part in them, since their rates were not measured."""

    stages: dict[str, Cost] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @property
    def total(self) -> Cost:
        """Of all stages."""
        total = Cost()
        for cost in self.stages.values():
            total.add(cost)
        return total


def cost_of(call: Call, corpus: Corpus, rates: Rates) -> Cost | None:
    """What a call takes; None where its kind of work was not measured."""
    work, rate = WORKS[call.name], rates.of.get(key_of(call)) or rates.of.get(call.name if "network" not in call.flags else "")
    if rate is None:
        return None
    amount, size, workers = work.amount(call, corpus), work.size(call, corpus), work.num_workers(call)
    core_s, gpu_rate = at(rate.core_s, amount), rates.gpu.get(_GPU_RATE)
    gpu_s = amount / gpu_rate if gpu_rate and call.name in _ON_GPU else 0.0
    return Cost(core_s, core_s / workers, at(rate.output_bytes, size), at(rate.memory_mb, size / workers), gpu_s)


def make_plan(calls: list[Call], corpus: Corpus, rates: Rates) -> Plan:
    """Raises UserError where a call needs the hours of a data directory that is neither there nor made by another call."""
    plan = Plan()
    for call in calls:
        cost = cost_of(call, corpus, rates) if call.name in WORKS else None
        if cost:
            plan.stages.setdefault(call.stage, Cost()).add(cost)
        elif call.name not in LITTLE:
            name = key_of(call) if call.name in WORKS else call.program
            plan.unknown += [name] if name not in plan.unknown else []
        corpus.note(call)
    return plan


def told(plan: Plan, corpus: Corpus, rates: Rates) -> Iterator[str]:
    """The lines of the table, and sentences on what it rests on."""
    hours = ", ".join(f"{path} {value:.2f} h" for path, value in corpus.found.items())
    yield f"speech: {hours}"
    head = ["stage", "core hours", "hours", "disk, GB", "memory of a job, MB", "hours of one GPU"]
    yield markdown_table(head, [_row(name, cost) for name, cost in [*plan.stages.items(), ("all", plan.total)]])
    yield f"rates: {rates.measured} on {rates.machine}; hours are those of the given numbers of jobs and ranks, on as many cores"
    if rates.gpu:
        yield f"GPU: {rates.gpu.get('source', 'no source is named')}; small networks reach less"
    else:
        yield "GPU: its rate was not measured"
    if plan.unknown:
        yield f"not in the plan, since they were not measured: {', '.join(plan.unknown)}"


def _row(name: str, cost: Cost) -> list[str]:
    numbers = map(_short, (cost.core_s / 3600, cost.wall_s / 3600, cost.disk_bytes / 1e9))
    return [name, *numbers, f"{cost.memory_mb:.0f}", _short(cost.gpu_s / 3600) if cost.gpu_s else ""]


def _short(number: float) -> str:
    """Two digits or more: 1234, 12.3, 0.056."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}" if number >= 1 else f"{number:.2g}"
