"""Trainings that a page of parallel schemes tells of, as their directories have them.

Simulations are directories of `steps/simulate_parallel.py`; what one is for is the first word of its name, as
egs/*/s5/local/compare_parallel.sh gives them: `seed_...`, `straggler_...`, `period_...`, `rarely_...`, `minibatch_...` and `natural_...`,
`batch_...`; all others compare schemes by learners.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from statistics import mean

from pyasr.base.aside import is_aside
from pyasr.base.errors import UserError
from pyasr.base.fingerprint import read_done
from pyasr.base.foreign_json import parse_object, read_object
from pyasr.report.systems import SIMULATION
from pyasr.report.verdicts import LOSS_NOISE, chance
from pyasr.score.decode_dir import read_summary, scoring_dir

_LEARNS = "learns"
_PURPOSES = ("seed", "straggler", "period", "rarely", "minibatch", "natural", "batch")


@dataclass(frozen=True)
class Run:
    """One simulated training.

    content     of simulation.json
    lines       of metrics.jsonl
    directory   of the model
    test        summary.json of its scores; None where it was not scored
    """

    content: dict
    lines: list[dict]
    directory: Path
    test: dict | None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def scored(self) -> Path:
        """Directory of the test set's scores."""
        return scoring_dir(self.directory / "decode_test")

    @property
    def directories(self) -> list[Path]:
        """Whose records tell how it was made."""
        return [self.directory, self.scored.parent, self.scored]

    @property
    def purpose(self) -> str:
        """What it is for: one of _PURPOSES, or `schemes`."""
        return first if (first := self.name.partition("_")[0]) in _PURPOSES else "schemes"

    @property
    def scheme(self) -> str:
        """Its name, with the topology, or the choice of peers, where there is one."""
        mixing, options = self.content["training"]["mixing"], self.scheme_options
        topology = options["topology"] if mixing["parallel"] == "dpsgd" else mixing.get("scheme", {}).get("topology")
        return " ".join(filter(None, [mixing["parallel"], topology, "random-peers" * options.get("random_peers", False)]))

    @property
    def scheme_options(self) -> dict:
        """Those of its scheme; simulations of earlier versions have those of all schemes there, beside the name."""
        mixing = self.content["training"]["mixing"]
        return mixing.get("scheme", mixing)

    @property
    def seed(self) -> int:
        return self.content["training"]["loop"]["train_seed"]

    @property
    def learners(self) -> int:
        return self.content["virtual"]["num_learners"]

    @property
    def straggler(self) -> float:
        return self.content["virtual"]["straggler"]

    @property
    def minibatch(self) -> int:
        return self.content["training"]["learner"]["minibatch"]

    @property
    def wer(self) -> float | None:
        """Of the test set, per cent; None where it was not decoded."""
        return self.test and self.test["chosen"]["wer"]

    @property
    def batch(self) -> int:
        """Frames of a minibatch over all learners."""
        return self.minibatch * self.learners

    @property
    def period(self) -> int:
        """Minibatches between two mixings; 1 for a scheme that leaves no choice."""
        return -(-self.scheme_options.get("period_frames", 1) // self.minibatch)

    @property
    def gradient(self) -> str:
        """SGD or natural gradient."""
        return "SGD" if self.content["training"]["learner"]["natural_gradient"]["natural_gradient"] == "none" else "natural gradient"

    @property
    def diverged(self) -> bool:
        """Whether the training ended without a model."""
        return self.content["diverged"] is not None

    @property
    def verdict(self) -> str:
        """On the model in the end, as `pyasr.train.verdict` has it; simulations of earlier versions ended where they were worse than
        guessing."""
        return self.content.get("verdict") or ("diverged" if self.diverged else _LEARNS)

    @property
    def learns(self) -> bool:
        """Whether the model knows more of the held-out frames than the frequencies of the pdfs."""
        return self.verdict == _LEARNS

    @property
    def loss(self) -> float:
        """Held-out, of the model in the end; infinite if the training diverged."""
        return math.inf if self.diverged else -self._end[1]

    @property
    def loss_apart(self) -> float | None:
        """Held-out, of the model of one learner after the last mixing, or, where that was not saved, of the learners' own models before the
        last consensus; None where they are equal anyway."""
        if self.content.get("learner"):
            return -self.content["learner"][0]
        return -self.content["apart"][-1][1] if self.content.get("apart") else None

    @property
    def of_learner(self) -> Run | None:
        """The same with the test set's scores of the model of one learner; None where it was not scored."""
        own = replace(self, directory=self.directory / "learner", test=None)
        return replace(own, test=read_summary(own.scored.parent)) if own.scored.exists() else None

    @property
    def accuracy(self) -> float:
        """Per cent of held-out frames, in the end."""
        return math.nan if self.diverged else 100 * self._end[2]

    @property
    def _end(self) -> list[float]:
        """(virtual seconds, held-out objective, accuracy) of the model in the end: after the last epoch that was accepted."""
        history = self.content["history"]
        accepted = [True, *(line["accepted"] for line in self.lines if "accepted" in line)][: len(history)]
        return [point for point, is_accepted in zip_longest(history, accepted, fillvalue=True) if is_accepted][-1]

    @property
    def hours(self) -> float:
        """Virtual hours of an epoch."""
        return (self.content["epoch_s"] or math.nan) / 3600

    @property
    def speed_up(self) -> float:
        """The time of an epoch's minibatches on one learner, relative to that of this run's epoch."""
        minibatches = self.content["epoch_frames"] / self.minibatch
        return minibatches * self.content["virtual"]["compute_s"] / 3600 / self.hours

    def share(self, activity: str) -> float:
        """Per cent of the learners' time."""
        seconds = self.content["seconds"]
        return 100 * seconds[activity] / max(sum(seconds.values()), 1e-9)

    @property
    def drift(self) -> float:
        """Mean relative distance of learners from their mixture, in the mixings that were logged; NaN where there was none."""
        found = [line["drift"] for line in self.lines if "drift" in line]
        return mean(found) if found else math.nan

    @property
    def consensus_distances(self) -> list[tuple[int, float]]:
        """(frames seen, relative distance of learners from the model of all) at the ends of epochs."""
        return [(line["frames"], line["consensus_distance"]) for line in self.lines if "consensus_distance" in line]


class Runs:
    """All trainings of a comparison."""

    def __init__(self, runs: list[Run]):
        self.all = runs

    def of(self, purpose: str) -> list[Run]:
        """Those of a purpose, fewest learners first."""
        return sorted((run for run in self.all if run.purpose == purpose), key=lambda run: (run.learners, run.name))

    @cached_property
    def schemes(self) -> dict[tuple[str, int], Run]:
        """Those that compare schemes, by scheme and learners."""
        return {(run.scheme, run.learners): run for run in self.of("schemes")}

    @cached_property
    def measured_noise(self) -> float:
        """`chance` of losses over seeds; NaN where trainings have one only."""
        seeds = self.of("seed")
        table: dict[int, dict] = {}
        for run in [*seeds, *(self.schemes[run.scheme, run.learners] for run in seeds if (run.scheme, run.learners) in self.schemes)]:
            table.setdefault(run.seed, {})[run.scheme, run.learners] = run.loss if run.learns else math.inf
        return chance(table)

    @property
    def noise(self) -> float:
        """By how much losses may differ by chance."""
        return LOSS_NOISE if math.isnan(self.measured_noise) else self.measured_noise


def find_runs(directory: Path) -> Runs:
    """All complete runs below `directory`. Raises UserError where there is none."""
    paths = [path for path in sorted(Path(directory).glob(f"*/{SIMULATION}")) if not is_aside(path.relative_to(directory))]
    if not paths:
        raise UserError(f"{directory}: no simulation in it; run steps/simulate_parallel.py first")
    return Runs([read_run(path.parent) for path in paths])


def read_run(directory: Path) -> Run:
    """The simulation in `directory`. Raises UserError where it is damaged."""
    try:
        content = read_object(directory / SIMULATION)
        lines = _lines(directory / "metrics.jsonl")
    except (OSError, ValueError) as error:
        raise UserError(f"{directory}: damaged ({error}); simulate it again with --force") from None
    run = Run(content, lines, directory, None)
    return replace(run, test=read_summary(run.scored.parent)) if run.scored.exists() else run


def _lines(path: Path) -> list[dict]:
    """Lines of a metrics.jsonl; there is none where a training has diverged before the first."""
    return [parse_object(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@dataclass(frozen=True)
class RealRun:
    """A training by MPI ranks; loss and accuracy (per cent) on held-out frames in the end.

    frames_per_s  of all ranks while they trained
    waiting, communication  shares of the ranks' time
    machine       processor and cores; empty where there is no record
    """

    directory: Path
    scheme: str
    ranks: int
    loss: float
    accuracy: float
    frames_per_s: float
    waiting: float
    communication: float
    machine: str

    @property
    def directories(self) -> list[Path]:
        """Whose record tells how it was made."""
        return [self.directory]


def find_real_runs(directory: Path) -> list[RealRun]:
    """All complete trainings `directory`/SCHEME_RANKS of steps/train_dnn.py."""
    return [_read_real(path.parent) for path in sorted(Path(directory).glob("*/final.nnet")) if not path.parent.suffix]


def _read_real(directory: Path) -> RealRun:
    scheme, _, ranks = directory.name.rpartition("_")
    lines = _lines(directory / "metrics.jsonl")
    ends = [line for line in lines if "heldout_objective" in line]
    if not (ranks.isdigit() and ends):
        raise UserError(f"{directory}: not a training by ranks, whose number ends its name; remove it")
    machine = (read_done(directory) or {}).get("machine", "")
    end = [line for line in ends if line.get("accepted", True)][-1:] or ends[-1:]
    loss, accuracy = -end[0]["heldout_objective"], 100 * end[0]["heldout_accuracy"]
    return RealRun(directory, scheme, int(ranks), loss, accuracy, *_speed(lines), machine)


def _speed(lines: list[dict]) -> tuple[float, float, float]:
    """(frames a second, share of waiting, of communication) of all intervals that were logged."""
    intervals = [line for line in lines if line.get("frames_per_s")]
    frames = [line["frames"] - before for line, before in zip(intervals, [0, *(line["frames"] for line in intervals)])]
    seconds = [number / line["frames_per_s"] for line, number in zip(intervals, frames)]
    whole = sum(seconds)
    if not whole:
        return math.nan, math.nan, math.nan
    waiting, communication = (sum(line[name] * s for line, s in zip(intervals, seconds)) / whole for name in ("waiting", "communication"))
    return sum(frames) / whole, waiting, communication
