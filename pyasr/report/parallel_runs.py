"""Trainings that a page of parallel schemes tells of, as their directories have them.

Simulations are directories of `steps/simulate_parallel.py`; what one is for is the first word of its name, as
egs/*/s5/local/compare_parallel.sh gives them: `straggler_...`, `period_...`, `minibatch_...` and `natural_...`, `batch_...`; all others
compare schemes by learners.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.score.decode_dir import read_summary

_PURPOSES = ("straggler", "period", "minibatch", "natural", "batch")


@dataclass(frozen=True)
class Run:
    """One simulated training.

    content    of simulation.json
    intervals  lines of metrics.jsonl about parts of an epoch
    wer        of the test set where it was decoded, else None
    """

    name: str
    content: dict
    intervals: list[dict]
    wer: float | None

    @property
    def purpose(self) -> str:
        """What it is for: one of _PURPOSES, or `schemes`."""
        return first if (first := self.name.partition("_")[0]) in _PURPOSES else "schemes"

    @property
    def scheme(self) -> str:
        """Its name, with the topology where there is a choice."""
        mixing = self.content["training"]["mixing"]
        return mixing["parallel"] + (f" {mixing['topology']}" if mixing["parallel"] == "dpsgd" else "")

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
    def batch(self) -> int:
        """Frames of a minibatch over all learners."""
        return self.minibatch * self.learners

    @property
    def period(self) -> int:
        """Minibatches between two mixings."""
        return -(-self.content["training"]["mixing"]["period_frames"] // self.minibatch)

    @property
    def gradient(self) -> str:
        """SGD or natural gradient."""
        return "SGD" if self.content["training"]["learner"]["natural_gradient"]["natural_gradient"] == "none" else "natural gradient"

    @property
    def diverged(self) -> bool:
        return self.content["diverged"] is not None

    @property
    def loss(self) -> float:
        """Held-out, in the end; infinite if the training diverged."""
        return math.inf if self.diverged else -self.content["history"][-1][1]

    @property
    def loss_apart(self) -> float | None:
        """Held-out, of the learners' own models before the last consensus; None where they are equal anyway."""
        return -self.content["apart"][-1][1] if self.content.get("apart") else None

    @property
    def accuracy(self) -> float:
        """Per cent of held-out frames, in the end."""
        return math.nan if self.diverged else 100 * self.content["history"][-1][2]

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
        """Mean relative distance of learners from their mixture."""
        found = [line["drift"] for line in self.intervals]
        return sum(found) / len(found) if found else math.nan


def find_runs(directory: Path) -> list[Run]:
    """All complete runs below `directory`. Raises UserError where there is none."""
    paths = [path for path in sorted(Path(directory).glob("*/simulation.json")) if path.parent.suffix not in (".tmp", ".old")]
    if not paths:
        raise UserError(f"{directory}: no simulation in it; run steps/simulate_parallel.py first")
    return [_read(path) for path in paths]


def _read(path: Path) -> Run:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        intervals = [line for line in _lines(path.with_name("metrics.jsonl")) if "drift" in line]
    except (OSError, ValueError) as error:
        raise UserError(f"{path.parent}: damaged ({error}); simulate it again with --force") from None
    decoded = path.parent / "decode_test"
    wer = read_summary(decoded)["chosen"]["wer"] if (decoded / "scoring").exists() else None
    return Run(path.parent.name, content, intervals, wer)


def _lines(path: Path) -> list[dict]:
    """Lines of a metrics.jsonl; there is none where a training has diverged before the first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@dataclass(frozen=True)
class RealRun:
    """A training by MPI ranks; loss and accuracy (per cent) on held-out frames in the end."""

    scheme: str
    ranks: int
    loss: float
    accuracy: float


def find_real_runs(directory: Path) -> list[RealRun]:
    """All complete trainings `directory`/SCHEME_RANKS of steps/train_dnn.py."""
    return [_read_real(path.parent) for path in sorted(Path(directory).glob("*/final.nnet")) if not path.parent.suffix]


def _read_real(directory: Path) -> RealRun:
    scheme, _, ranks = directory.name.rpartition("_")
    ends = [line for line in _lines(directory / "metrics.jsonl") if "heldout_objective" in line]
    if not (ranks.isdigit() and ends):
        raise UserError(f"{directory}: not a training by ranks, whose number ends its name; remove it")
    return RealRun(scheme, int(ranks), -ends[-1]["heldout_objective"], 100 * ends[-1]["heldout_accuracy"])
