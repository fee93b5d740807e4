"""What parallel schemes take, beside what was published: speed-up, one slow learner, MPI ranks on one machine."""

from __future__ import annotations

import math

from pyasr.report import published
from pyasr.report.parallel_runs import RealRun, Run, Runs
from pyasr.report.parallel_tables import cell, pivot, section
from pyasr.report.text_table import markdown_table
from pyasr.report.verdicts import ratio

_ROUNDS = """\
`dpsgd` meets its partners in every round, so it waits for a slow one, as `d1d` does. `adpsgd` with a topology mixes with what its
neighbours have published last, without a barrier, as the rings of arXiv:2110.11199 do."""
_ASGD = """\
One of the learners of `asgd` is the server, which serves one at a time: a message takes {message_s:.2f} s here, a minibatch
{compute_s:g} s. Published times of GTC 2015 are those to reach a frame accuracy; ours, and those of arXiv:1504.01482, are of an epoch."""
_HOSTS = """\
Hosts of {learners_per_host}, {bandwidth_mb:g} MB/s between them. arXiv:2110.11199 compares with a single GPU whose minibatches are half
as large."""
_ONE_MACHINE = """\
The same options, seeds and shards, by MPI ranks on one machine ({machines}). All ranks share its cores with whatever else
ran there: rows may differ by that alone, and more ranks than cores gain nothing. What is compared is what they learn; docs/parallel.md
has times on networks."""


def speed_ups(runs: Runs) -> str:
    """By learners, against one."""
    rows, sentences = [], []
    for source, table in published.SPEED_UPS.items():
        for scheme, values in table.items():
            both = {num: (value, runs.schemes[scheme, num].speed_up) for num, value in values.items() if _trained(runs, scheme, num)}
            rows += [[scheme, source, str(num), f"{value:.2f}", f"{ours:.2f}"] for num, (value, ours) in both.items()]
            sentences += [ratio(f"{scheme}, {source}", both)] if both else []
    if not rows:
        return ""
    table = markdown_table(["scheme", "source", "learners", "published speed-up", "ours, virtual"], rows)
    asgd = next((run.content["virtual"] for (scheme, _), run in runs.schemes.items() if scheme == "asgd"), None)
    told = asgd and _ASGD.format(message_s=asgd["model_mb"] / asgd["bandwidth_mb"], **asgd)
    return section("Speed-up", table, told, sentences=sentences)


def _trained(runs: Runs, scheme: str, learners: int) -> bool:
    return (scheme, learners) in runs.schemes and not runs.schemes[scheme, learners].diverged


def straggler(runs: Runs) -> str:
    """One learner that is slower than the others."""
    found = sorted(runs.of("straggler"), key=lambda run: run.straggler)
    if not found:
        return ""
    base = {run.scheme: run for run in found if run.straggler == 1}
    compared = [run for run in found if run.scheme in base]
    ours = pivot(compared, "scheme", "straggler", lambda run: cell(run.hours / base[run.scheme].hours, ".2f"), "{}x")
    slowest = [run for run in compared if run.straggler == found[-1].straggler]
    sentences = [_straggler_sentence(run, run.hours / base[run.scheme].hours, source)
                 for source in published.IBM_SLOWDOWN for run in slowest]  # fmt: skip
    rounds = _ROUNDS if any(scheme.startswith("dpsgd") for scheme in base) else ""
    return section(f"One slow learner of {found[0].learners}", "Time of an epoch relative to that without it, by how slow it is.", ours,
                   _published_slowdown(), rounds, sentences=sentences) + "\n" + _hosts(base)  # fmt: skip


def _published_slowdown() -> str:
    factors = sorted({factor for table in published.IBM_SLOWDOWN.values() for row in table.values() for factor in row})
    rows = [[scheme, source, *(cell(row[f] / row[1], ".2f") if f in row else "-" for f in factors)]
            for source, table in published.IBM_SLOWDOWN.items() for scheme, row in table.items()]  # fmt: skip
    return markdown_table(["scheme", "published, 16 GPUs", *(f"{factor}x" for factor in factors)], rows)


def _straggler_sentence(run: Run, slower: float, source: str) -> str:
    """A scheme either waits for the slow one or does not: less than a tenth of its factor is not waiting."""
    theirs = published.IBM_SLOWDOWN[source].get(run.scheme, {})
    if run.straggler not in theirs or math.isnan(slower):
        return ""
    expected = theirs[run.straggler] / theirs[1]
    waits, published_waits = (value > run.straggler / 10 for value in (slower, expected))
    verdict, claim = "agrees" if waits == published_waits else "disagrees", "waits" if published_waits else "does not wait"
    return (f"{run.scheme}, {source}: {verdict} that it {claim} for a learner {run.straggler:g} times as slow; "
            f"{slower:.1f}, published {expected:.1f}.")  # fmt: skip


def _hosts(base: dict[str, Run]) -> str:
    """Speed-up without a slow learner, on the hosts of these runs."""
    found = [(*row, base[row[1]]) for row in published.IBM_SPEED_UP if row[1] in base]
    rows = [[scheme, source, str(gpus), f"{value:.1f}", f"{100 * value / gpus:.0f}", str(run.learners), f"{run.speed_up:.1f}",
             f"{100 * run.speed_up / run.learners:.0f}"] for source, scheme, gpus, value, run in found]  # fmt: skip
    if not rows:
        return ""
    head = ["scheme", "source", "GPUs", "published speed-up", "efficiency %", "learners", "ours", "efficiency %"]
    sentences = [ratio(f"{scheme}, {source}, efficiency", {run.learners: (value / gpus, run.speed_up / run.learners)})
                 for source, scheme, gpus, value, run in found]  # fmt: skip
    told = _HOSTS.format(**found[0][-1].content["virtual"])
    return section("Speed-up on hosts with several learners", markdown_table(head, rows), told, sentences=sentences)


def mpi_ranks(runs: Runs, real: list[RealRun]) -> str:
    """The same trainings by ranks that are there."""
    both = [(ranks, runs.schemes[ranks.scheme, ranks.ranks]) for ranks in real if _trained(runs, ranks.scheme, ranks.ranks)]
    if not both:
        return ""
    alone = next((ranks.frames_per_s for ranks in real if ranks.ranks == 1), math.nan)
    rows = [[ranks.scheme, str(ranks.ranks), f"{ranks.loss:.4f} / {ranks.accuracy:.2f}", f"{run.loss:.4f} / {run.accuracy:.2f}",
             f"{ranks.loss / run.loss - 1:+.2%}", cell(ranks.frames_per_s, ".0f"), cell(ranks.frames_per_s / alone, ".2f"),
             f"{cell(100 * ranks.communication, '.0f')} / {cell(100 * ranks.waiting, '.0f')}"] for ranks, run in both]  # fmt: skip
    head = ["scheme", "ranks", "MPI ranks, loss / accuracy %", "virtual learners", "difference of losses", "frames/s", "speed-up",
            "communication / waiting %"]  # fmt: skip
    machines = ", ".join(sorted({ranks.machine for ranks, _ in both if ranks.machine})) or "unknown"
    return section("MPI ranks", markdown_table(head, rows), _ONE_MACHINE.format(machines=machines))
