"""Check whether a plan fits a machine: free disk space, main memory."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pyasr.base.files.places import existing_part
from pyasr.base.host.host_memory import total_bytes
from pyasr.report.plan.estimate import Need, Plan

_GB = 1e9


def lacks(plan: Plan) -> Iterator[str]:
    """A sentence for each insufficient resource."""
    yield from disk_shortages(plan.needs)
    yield from memory_shortages(plan.needs, total_bytes())


def disk_shortages(needs: list[Need]) -> Iterator[str]:
    """Check disk space by filesystem; complete outputs need none."""
    by_device = defaultdict(list)
    for need in needs:
        if not (Path(need.output) / ".done.json").exists():
            place = existing_part(Path(need.output))
            by_device[os.stat(place).st_dev].append((place, need.disk_bytes))
    for places in by_device.values():
        place, needed = places[0][0], sum(size for _, size in places)
        free = shutil.disk_usage(place).free
        if needed > free:
            yield (
                f"disk: outputs below {place.resolve()} need {needed / _GB:.3g} GB more, {free / _GB:.3g} GB "
                "are free; free some space, or run the recipe on another filesystem"
            )


def memory_shortages(needs: list[Need], memory: int | None) -> Iterator[str]:
    """Check the memory of the largest job, and the largest sum of simultaneous jobs on this machine."""
    local = [need for need in needs if need.is_local]
    if not local or memory is None:
        return
    largest = max(local, key=lambda need: need.memory_mb)
    together = max(local, key=lambda need: need.memory_mb * need.num_workers)
    if largest.memory_mb * 1e6 > memory:
        yield (
            f"memory: a job of {_named(largest)} needs {largest.memory_mb / 1e3:.3g} GB, this machine has "
            f"{memory / _GB:.3g} GB; {_advice(largest)}"
        )
    elif together.memory_mb * together.num_workers * 1e6 > memory:
        num = max(int(memory / (together.memory_mb * 1e6)), 1)
        needed = together.memory_mb * together.num_workers / 1e3
        yield (
            f"memory: {together.num_workers} simultaneous jobs of {_named(together)} need {needed:.3g} GB, "
            f"this machine has {memory / _GB:.3g} GB; run at most {num} at a time, or use a cluster (cmd.sh)"
        )


def _named(need: Need) -> str:
    return f"{need.call.program} for {need.output}"


def _advice(need: Need) -> str:
    if need.call.name in ("train_dnn", "pretrain_dbn", "train_lfmmi"):
        return "use more ranks, or --max-store-mb to read frames from disk in blocks"
    return "use more jobs (--nj), which divide the data, or a machine with more memory"
