"""Common base of the steps that train networks: checks options and files, and prepares the output directory
for the ranks.

A step is a subclass of `TrainingStep` with the options of a training and the class of its spec. The spec
names the training, which each rank runs (`pyasr.train.objectives.rank_training`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pyasr.feats.inputs import InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.train.steps.on_ranks import MixedTraining, OnRanks, train_on_ranks, training_output
from pyasr.train.targets.pdf_targets import TARGETS_FILE
from pyasr.train.targets.rank_reader import FEATURES_FILE, are_prepared


@dataclass(frozen=True)
class TrainingSpec:
    """Spec of all ranks: features in `data`; what the step has prepared, and results, in `out`. Further
    fields are those of the step.

    objective  MODULE:CLASS of the training, a subclass of `pyasr.train.objectives.rank_training.RankTraining`
    """

    data: Path
    out: Path
    input: InputOptions
    training: Any
    objective: str = field(default="", kw_only=True)


class TrainingStep:
    """Base of the options of a training: `data`, `out`, `training` and, unless `rank_input` is overridden,
    `input`. `num_ranks` is an option or a property.

    spec_class    class of the ranks' spec
    objective     MODULE:CLASS of the training; None: that of `spec_class`
    function      MODULE:FUNCTION that each rank calls with the spec and its communicator
    targets_file  file of targets that `prepare` writes to OUT
    parts         pattern of the subdirectories, such as `rbm*/`, of a step that runs several trainings one
                  after the other
    log           name of the log of the ranks
    """

    data: Path
    out: Path
    input: InputOptions
    training: MixedTraining
    num_ranks: int
    spec_class: type[TrainingSpec]
    objective: str | None = None
    function = "pyasr.train.objectives.rank_training:train_rank"
    targets_file, parts, log = TARGETS_FILE, "", "train.log"

    @property
    def tables(self) -> tuple[str, ...]:
        """Files that `prepare` writes to OUT: the tables through which ranks read features."""
        return (FEATURES_FILE,)

    @property
    def layers_splice(self) -> bool:
        """Whether the network's layers splice their input; otherwise `input` does."""
        return False

    @property
    def rank_input(self) -> InputOptions:
        """Input options of the network, with which ranks read features; OUT/input.json stores them for
        decoding. This is where a network whose layers splice gets features without splicing."""
        return self.input.unspliced() if self.layers_splice else self.input

    def check(self) -> None:
        """Raise UserError for contradictory options. Reads no files."""
        raise NotImplementedError

    def inputs(self) -> list[Path]:
        """Files whose change makes the model out of date."""
        raise NotImplementedError

    def check_features(self) -> None:
        """Raise UserError if the features of `data` do not fit the other inputs. Called before OUT exists, if
        OUT is not up to date."""

    def begin(self, out: Path) -> None:
        """Check the inputs; copy what the model needs to OUT. Raises UserError if they do not match."""

    def prepare(self, out: Path) -> None:
        """Write targets and tables to OUT. Not called if an interrupted run left them."""
        raise NotImplementedError

    def spec(self, out: Path) -> Any:
        """The spec for all ranks."""
        known: dict[str, Any] = {
            "out": out,
            "input": self.rank_input,
            "objective": self.objective or self.spec_class.objective,
        }
        own = {entry.name for entry in fields(self.spec_class)} - known.keys()
        return self.spec_class(**known, **{name: getattr(self, name) for name in own})


@contextlib.contextmanager
def staged(step: TrainingStep) -> Iterator[Any]:
    """Context manager of the ranks' spec; the block runs the ranks. The `out` of the spec, from
    `training_output`, has the prepared files.

    Raises UserError for contradictory options or inputs.
    """
    step.check()
    with training_output(step, step.inputs(), step.parts, step.check_features) as out:
        step.begin(out)
        step.rank_input.save(out)
        keep_origin(out, step.data)
        if not are_prepared(out / step.targets_file, *(out / name for name in step.tables)):
            step.prepare(out)
        yield step.spec(out)


def train(step: TrainingStep) -> None:
    """Run a training step that has the options `OnRanks`."""
    assert isinstance(step, OnRanks)
    with staged(step) as spec:
        train_on_ranks(step, step.training.mixing, step.function, spec, step.parts, step.log)
