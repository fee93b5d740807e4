"""The page of a plan: whether it fits this machine, a table by stage, and the basis of the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from pyasr.report.plan.estimate import Cost, Plan
from pyasr.report.plan.planned_data import PlannedCorpus
from pyasr.report.plan.rates import Rates
from pyasr.report.text_table import markdown_table

HEAD = ["stage", "CPU time", "time", "disk", "memory of a job", "GPU time"]
_MAX_IN_UNIT = 100  # maximum value before the next larger unit is used
_COMMAND = "benchmarks/measure_rates.py --run true --out benchmarks/rates.json egs/amazon_queen/s5"


def page(plan: Plan, corpus: PlannedCorpus, rates: Rates) -> Iterator[str]:
    """Lines of text."""
    found = ", ".join(f"{path} {hours:.2f} h" for path, hours in corpus.found.items())
    yield f"speech:     {found or 'no data directory exists yet'}"
    yield from (f"assumed:    {sentence}" for sentence in corpus.assumed.values())
    yield ""
    yield markdown_table(
        HEAD, [row(name, cost) for name, cost in [*plan.stages.items(), ("all", plan.total)]]
    )
    yield ""
    yield from _explanation(plan, rates)


def _explanation(plan: Plan, rates: Rates) -> Iterator[str]:
    yield "time:       with the given jobs and ranks, one core each; networks are trained on these cores"
    yield (
        f"measured:   CPU time, disk and memory, on {rates.machine}, {rates.measured}; to measure this "
        "machine in about an hour:"
    )
    yield f"            {_COMMAND}"
    if any(cost.gpu_s or cost.without_gpu for cost in plan.stages.values()):
        yield from _on_gpus(rates)
    for key, name in plan.assumed.items():
        yield f"not known:  {key}: the rate of {name} is used"
    if plan.unknown:
        yield f"left out:   {', '.join(plan.unknown)}: no rate is known"


def _on_gpus(rates: Rates) -> Iterator[str]:
    if not rates.gpu:
        yield "GPU time:   the file of rates has no estimate"
        return
    yield (
        "estimated:  GPU time of network trainings on one GPU; '?' stands for a training without an estimate"
    )
    yield f"            {rates.gpu.get('source', '')}".rstrip()


def row(name: str, cost: Cost) -> list[str]:
    """Cells of a table with the columns of `HEAD`."""
    gpu = _time(cost.gpu_s) if cost.gpu_s else ""
    unknown = "?" if cost.without_gpu else ""
    sizes = map(_bytes, (cost.disk_bytes, cost.memory_mb * 1e6))
    return [name, _time(cost.core_s), _time(cost.wall_s), *sizes, " + ".join(filter(None, (gpu, unknown)))]


def _time(seconds: float) -> str:
    """45 s, 12 min, 3.2 h."""
    return _in_units(seconds, (("s", 1), ("min", 60), ("h", 3600)))


def _bytes(number: float) -> str:
    """390 MB, 37 GB."""
    return _in_units(number, (("MB", 1e6), ("GB", 1e9)), most=1000)


def _in_units(number: float, units: tuple[tuple[str, float], ...], most: float = _MAX_IN_UNIT) -> str:
    """At least two digits, in the first unit with a value below `most`."""
    name, size = next((unit for unit in units if number / unit[1] < most), units[-1])
    value = number / size
    return f"{value:.2g} {name}" if value < 10 and name in ("h", "GB") else f"{value:.0f} {name}"
