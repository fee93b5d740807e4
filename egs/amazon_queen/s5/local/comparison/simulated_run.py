"""One simulated training, from the files that steps/simulate_parallel.py and steps/score.py write in its
directory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_object, read_object
from pyasr.report.systems import SIMULATION
from pyasr.score.score_dir import read_summary, scoring_dir


@dataclass(frozen=True)
class SimulatedRun:
    """One simulated training.

    content     content of simulation.json
    lines       lines of metrics.jsonl
    directory   directory of the model
    test        summary.json of its scores; None if it was not scored
    """

    content: dict
    lines: list[dict]
    directory: Path
    test: dict | None

    @property
    def scored(self) -> Path:
        """Directory of the test set's scores."""
        return scoring_dir(self.directory / "decode_test")

    @property
    def minibatch(self) -> int:
        return self.content["training"]["learner"]["minibatch"]

    @property
    def wer(self) -> float | None:
        """WER of the test set in per cent; None if it was not decoded."""
        return self.test["chosen"]["wer"] if self.test else None

    @property
    def diverged(self) -> bool:
        """Whether the training ended without a model."""
        return self.content["diverged"] is not None

    @property
    def verdict(self) -> str:
        """The verdict on the final model (`pyasr.train.simulate.verdict`); `learns` if there is none because
        the entropy of the priors is unknown."""
        return self.content["verdict"] or "learns"

    @property
    def loss(self) -> float:
        """Held-out loss of the final model; infinite if the training diverged."""
        return math.inf if self.diverged else -self._end[1]

    @property
    def loss_before_consensus(self) -> float | None:
        """Held-out loss of the model of one learner after the last mixing or, if that was not saved, of the
        learners' own models before the last consensus; None if they are equal."""
        if self.content.get("learner"):
            return -self.content["learner"][0]
        return -self.content["apart"][-1][1] if self.content.get("apart") else None

    @property
    def of_learner(self) -> SimulatedRun | None:
        """This run with the test scores of the model of one learner; None if it was not scored."""
        own = replace(self, directory=self.directory / "learner", test=None)
        return replace(own, test=read_summary(own.scored.parent)) if own.scored.exists() else None

    @property
    def accuracy(self) -> float:
        """Final accuracy on held-out frames, in per cent."""
        return math.nan if self.diverged else 100 * self._end[2]

    @property
    def _end(self) -> list[float]:
        """(virtual seconds, held-out objective, accuracy) of the final model, at the last accepted epoch."""
        history: list[list[float]] = self.content["history"]
        of_epochs = (line["accepted"] for line in self.lines if "accepted" in line)
        accepted = chain([True], of_epochs, repeat(True))
        return [point for point, is_accepted in zip(history, accepted) if is_accepted][-1]

    @property
    def hours(self) -> float:
        """Virtual hours of an epoch."""
        return (self.content["epoch_s"] or math.nan) / 3600

    @property
    def speed_up(self) -> float:
        """The time of an epoch's minibatches on one learner, divided by the time of this run's epoch."""
        minibatches = self.content["epoch_frames"] / self.minibatch
        return minibatches * self.content["virtual"]["compute_s"] / 3600 / self.hours

    @property
    def consensus_distances(self) -> list[tuple[int, float]]:
        """(frames seen, relative distance of learners from the consensus) at the ends of epochs."""
        return [
            (line["frames"], line["consensus_distance"])
            for line in self.lines
            if "consensus_distance" in line
        ]


def read_run(directory: Path) -> SimulatedRun:
    """Read the simulation in `directory`. Raises UserError if it is damaged."""
    try:
        content = read_object(directory / SIMULATION)
        lines = _lines(directory / "metrics.jsonl")
    except (OSError, ValueError) as error:
        raise UserError(f"{directory}: damaged ({error}); simulate it again with --force") from None
    run = SimulatedRun(content, lines, directory, None)
    return replace(run, test=read_summary(run.scored.parent)) if run.scored.exists() else run


def _lines(path: Path) -> list[dict]:
    """Lines of a metrics.jsonl, which does not exist if a training has diverged before the first line."""
    return (
        [parse_object(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )
