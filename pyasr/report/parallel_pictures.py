"""Pictures of a comparison of parallel schemes."""

from __future__ import annotations

from pyasr.report.parallel_runs import Run, Runs
from pyasr.report.svg import COLOURS, Series, line_plot

_WELL_KNOWN = ("allreduce", "butterfly", "ring", "gradient", "delayed", "adpsgd", "dpsgd fixed-ring", "asgd", "bmuf", "easgd")


def pictures(runs: Runs) -> dict[str, str]:
    """SVGs by name: speed-up, loss against time, distance of learners from the consensus, word errors."""
    found = [run for run in runs.of("schemes") if not run.diverged]
    drawn = _drawn(found)
    found = [run for run in found if run.scheme in drawn]
    if not found:
        return {}
    most = {f"{run.scheme}, {run.learners}": run for run in found if run.learners in (1, found[-1].learners)}
    loss = {name: [(seconds / 3600, -objective) for seconds, objective, _ in run.content["history"]] for name, run in most.items()}
    distance = {name: [(frames / 1e6, value) for frames, value in run.consensus_distances]
                for name, run in most.items() if run.learners > 1}  # fmt: skip
    made = {"speed_up": line_plot(_by_learners(found, "speed_up"), "Speed-up", "learners", "speed-up", log2=True),
            "loss": line_plot(loss, "Held-out loss against virtual time", "hours", "nats a frame")}  # fmt: skip
    if any(distance.values()):
        made["consensus"] = line_plot(distance, "Distance from the consensus at the ends of epochs", "million frames", "relative distance")
    wer = {scheme: line for scheme, line in _by_learners(found, "wer").items() if len(line) > 1}
    if wer:
        made["wer"] = line_plot(wer, "Word errors on test", "learners", "WER %")
    return made


def _by_learners(runs: list[Run], value: str) -> Series:
    """A line for each scheme, of a property where there is one."""
    lines: Series = {}
    for run in runs:
        if getattr(run, value) is not None:
            lines.setdefault(run.scheme, []).append((run.learners, getattr(run, value)))
    return lines


def _drawn(runs: list[Run]) -> list[str]:
    """No more schemes than there are colours, the best known first."""
    found = dict.fromkeys(run.scheme for run in runs)
    return sorted(found, key=lambda scheme: _WELL_KNOWN.index(scheme) if scheme in _WELL_KNOWN else len(_WELL_KNOWN))[: len(COLOURS)]
