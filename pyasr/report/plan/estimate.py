"""Estimate the cost of a recipe's calls by stage, with the rates of a machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pyasr.base.errors import UserError
from pyasr.report.plan.gpu import gpu_seconds
from pyasr.report.plan.planned_calls import Call
from pyasr.report.plan.planned_data import PlannedCorpus
from pyasr.report.plan.rates import Rates, at
from pyasr.report.plan.works import BEFORE, FRAMES_PER_HOUR, LITTLE, WORKS, Work, key_of

_NGRAMS_PER_S = 4e6  # speed of reading n-grams (docs/lang/language_model.md)
_LOCAL_RUNNER = "run.pl"


@dataclass
class Cost:
    """Core seconds, seconds with the calls' jobs or ranks in parallel, bytes on disk, MB of the largest job,
    GPU seconds.

    without_gpu  whether the GPU seconds of one of the networks are unknown
    """

    core_s: float = 0.0
    wall_s: float = 0.0
    disk_bytes: float = 0.0
    memory_mb: float = 0.0
    gpu_s: float = 0.0
    without_gpu: bool = False

    def add(self, other: Cost) -> None:
        """Add the cost of later work."""
        self.core_s += other.core_s
        self.wall_s += other.wall_s
        self.disk_bytes += other.disk_bytes
        self.memory_mb = max(self.memory_mb, other.memory_mb)
        self.gpu_s += other.gpu_s
        self.without_gpu |= other.without_gpu


@dataclass(frozen=True)
class Need:
    """Resources of a call: bytes for its output, MB of each of its processes, which run on this machine or
    elsewhere."""

    call: Call
    output: str
    disk_bytes: float
    memory_mb: float
    num_workers: int

    @property
    def is_local(self) -> bool:
        """Whether its processes run on this machine."""
        return self.call.flags.get("cmd", _LOCAL_RUNNER).split()[0].endswith(_LOCAL_RUNNER)


@dataclass
class Plan:
    """Costs by stage in order, and needs by call.

    unknown  programs that are not included, because their cost is unknown
    assumed  {kind of work without a rate: the kind whose rate is used}
    """

    stages: dict[str, Cost] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    assumed: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Cost:
        """The cost of all stages."""
        total = Cost()
        for cost in self.stages.values():
            total.add(cost)
        return total


def make_plan(calls: list[Call], corpus: PlannedCorpus, rates: Rates) -> Plan:
    """Estimate the cost of calls. Raises UserError if a call needs the hours of a data directory that is
    neither there nor written."""
    plan = Plan()
    for call in calls:
        with_its_line(call, corpus.note)
        if call.name in WORKS:
            with_its_line(call, lambda call: _add(plan, call, corpus, rates))
        elif call.name not in LITTLE | BEFORE:
            plan.unknown += [call.program] if call.program not in plan.unknown else []
    return plan


def with_its_line(call: Call, function) -> None:
    """Apply a function to a call. Raises UserError for a call with too few words."""
    try:
        function(call)
    except (IndexError, KeyError) as error:
        raise UserError(
            f"{call.program} {' '.join(call.words)}: a word or flag is missing ({error}); see "
            f"{call.program} --help"
        ) from None


def _add(plan: Plan, call: Call, corpus: PlannedCorpus, rates: Rates) -> None:
    key, work = key_of(call, corpus), WORKS[call.name]
    name = rates.nearest(key)
    if name is None:
        plan.unknown += [key] if key not in plan.unknown else []
        return
    if name != key:
        plan.assumed[key] = name
    cost = cost_of(call, work, name, corpus, rates)
    plan.stages.setdefault(call.stage, Cost()).add(cost)
    plan.needs.append(Need(call, call.words[-1], cost.disk_bytes, cost.memory_mb, work.num_workers(call)))


def cost_of(call: Call, work: Work, name: str, corpus: PlannedCorpus, rates: Rates) -> Cost:
    """The cost of a call with the rates of this name."""
    rate, workers = rates.of[name], work.num_workers(call)
    core_s = at(rate.core_s, work.amount(call, corpus)) + network_core_s(call, work, corpus, rates)
    core_s += workers * 1e6 * work.loaded(call, corpus) / _NGRAMS_PER_S if call.name == "lm_rescore" else 0.0
    held = work.memory(call, corpus)
    memory_mb = rate.memory_mb[0] + min(
        rate.memory_mb[1] * held, call.number("max-store-mb", 0) or _most_held_mb(work, held)
    )
    gpu_s = gpu_seconds(call, corpus, rates.gpu) if work.workers == "num-ranks" else 0.0
    disk_bytes = at(rate.output_bytes, work.size(call, corpus))
    return Cost(core_s, core_s / workers, disk_bytes, memory_mb, gpu_s or 0.0, gpu_s is None)


def _most_held_mb(work: Work, hours: float) -> float:
    """Maximum MB of features and alignments in a process by default: for GMMs as in
    `pyasr.hmm.shards.shard_store`, otherwise unlimited."""
    if work.workers != "nj":
        return math.inf
    frames = FRAMES_PER_HOUR * hours
    return (4 * frames + min(max(80 * frames, 128e6), 1e9)) / 1e6


def network_core_s(call: Call, work: Work, corpus: PlannedCorpus, rates: Rates) -> float:
    """Core seconds of a network in a call whose amount excludes it, from the rate of its training."""
    part = work.network(call, corpus)
    if part is None:
        return 0.0
    name = rates.nearest(part[0])
    return rates.of[name].core_s[1] * part[1] if name else 0.0
