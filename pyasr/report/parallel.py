"""The page of a comparison of parallel schemes on virtual learners: our tables, the published numbers, and what agrees."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pyasr.report import parallel_learning as learning
from pyasr.report import parallel_time as times
from pyasr.report.experiment_pictures import experiment_pictures
from pyasr.report.experiments import NO_EXPERIMENTS, Experiments, sections
from pyasr.report.parallel_pictures import pictures
from pyasr.report.parallel_runs import RealRun, Run, Runs
from pyasr.report.parallel_tables import cell, loss, pivot, section, wer
from pyasr.report.provenance import commands, in_order, made_with, records
from pyasr.report.verdicts import PUBLISHED_NOISE, WER_NOISE

_SECTIONS = (learning.poster, times.speed_ups, times.straggler, learning.period, learning.rarely, learning.block_schemes,
             learning.minibatch, learning.gradient, learning.growing_batch)  # fmt: skip
_HEAD = """# Parallel training on virtual learners

Written by `utils/collect_parallel.py`; not edited by hand. Real training of a small network by learners in simulated time: what is learnt
is real, what it takes is the declared network's and the declared minibatch's time. Loss is held-out cross-entropy, nats a frame, of the
model at the end: the consensus of all learners. Speed-up is against one learner's computing; those of `gradient` and `post-local` are lower
bounds, since no message of theirs is hidden behind the backward pass, as it is over MPI.
"""
_AGREEMENT = """\
A sentence agrees with what was published, disagrees, or does not show it, where our difference may be chance:

* of losses: up to {loss:.1%}, {why};
* of WERs: up to {wer:.0%}, by what other seeds did in run_averaging.sh, or where the paired bootstrap interval (95 %) has 0 in it;
* of published errors, which have no intervals: up to {published:.1%}.
"""
_DISTANCES = """\
The consensus is the mean of all learners, or what `bmuf`, `slowmo`, `diloco`, `easgd` and `asgd` have instead. A mixture is what a learner
comes to in one mixing: with its few partners in rings and butterflies, so small numbers there do not mean that all are near each other."""
_MEASURED = "by what other seeds did here"
_ELSEWHERE = "by what other seeds did in run_averaging.sh, as none were tried here"


def page(runs: Runs, real: Iterable[RealRun] = (), experiments: Experiments = NO_EXPERIMENTS) -> str:
    """The whole page; its pictures are `all_pictures`."""
    real = list(real)
    why = _ELSEWHERE if math.isnan(runs.measured_noise) else _MEASURED
    agreement = _AGREEMENT.format(loss=runs.noise, why=why, wer=WER_NOISE, published=PUBLISHED_NOISE) if runs.all else ""
    made = [agreement, *sections(experiments), _schemes(runs), times.mpi_ranks(runs, real), *(make(runs) for make in _SECTIONS)]
    links = "\n".join(f"![{name}]({name}.svg)" for name in all_pictures(runs, experiments))
    simulated = records(directory for run in [*runs.all, *real] for directory in run.directories)
    found = in_order([*simulated, *(run.made_by for run in experiments.runs)])
    end = ["## Pictures\n", links, "\n## Made with\n", made_with(found), "\n## Commands\n", commands(found)]
    return "\n".join([_HEAD, *filter(None, made), *end])


def all_pictures(runs: Runs, experiments: Experiments = NO_EXPERIMENTS) -> dict[str, str]:
    """SVGs by name."""
    return pictures(runs) | experiment_pictures(experiments.cells)


def _schemes(runs: Runs) -> str:
    found = sorted(runs.of("schemes"), key=lambda run: (run.scheme, run.learners))
    if not found:
        return ""
    tables = [("Held-out loss / frame accuracy %", loss), ("Test WER %", wer), ("Speed-up", lambda run: cell(run.speed_up, ".2f")),
              ("Time in communication / in waiting, %", lambda run: f"{run.share('mixing'):.0f} / {run.share('waiting'):.0f}"),
              ("Held-out loss of single learners before the last consensus", lambda run: cell(run.loss_apart, ".3f")),
              ("Distance from the consensus at the end of each epoch, relative", _consensus),
              ("Distance from the own mixture in the mixings that were logged, relative", lambda run: cell(run.drift, ".3f"))]  # fmt: skip
    parts = [f"**{title}**, by learners\n\n{pivot(found, 'scheme', 'learners', value)}" for title, value in tables
             if any(value(run) != "-" for run in found)]  # fmt: skip
    return section("Schemes", _declared(found), *parts, _DISTANCES)


def _consensus(run: Run) -> str:
    return " / ".join(f"{distance:.3f}" for _, distance in run.consensus_distances) or "-"


def _declared(runs: list[Run]) -> str:
    run, period = runs[-1], max(run.period for run in runs)
    virtual, model = run.content["virtual"], run.content["num_parameters"]
    return (f"{run.content['epoch_frames']} frames an epoch, {len(run.content['history']) - 1} epochs, {model} parameters that stand for "
            f"{virtual['model_mb']:g} MB; {virtual['compute_s']:g} s a minibatch of {run.minibatch}, {virtual['bandwidth_mb']:g} MB/s, "
            f"mixing every {period} minibatches where a scheme does not say otherwise.")  # fmt: skip
