"""What the steps that train networks have in common: from options and files to the output directory in which ranks find their work.

A training is a subclass of `TrainingStep` with options, the class of its spec, and a function that one rank calls (`pyasr.train.steps`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyasr.feats.inputs import InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.train.steps.on_ranks import train_on_ranks, training_output
from pyasr.train.targets.pdf_targets import TARGETS_FILE
from pyasr.train.targets.rank_reader import FEATURES_FILE, are_prepared


class TrainingStep:
    """Base of the options of a training: `data`, `out`, `training` and, in most, `input`.

    function  what a rank calls with the spec and its communicator, MODULE:FUNCTION
    targets_file, tables  what `prepare` writes to OUT: targets, and the tables by which ranks read features
    parts     pattern of directories, such as `rbm*/`, if there are several trainings, one after the other, each in one of its own
    log       name of the log of the ranks
    """

    function = ""
    targets_file, tables, parts, log = TARGETS_FILE, (FEATURES_FILE,), "", "train.log"

    @property
    def rank_input(self) -> InputOptions:
        """How ranks read features. OUT/input.json keeps it for decoding."""
        return self.input

    def check(self) -> None:
        """Raise UserError where options do not go together. No file is read."""
        self.training.schedule.check_deaf()
        self.training.learner.check()

    def inputs(self) -> list[Path]:
        """Files whose change makes the model out of date."""
        raise NotImplementedError

    def check_features(self) -> None:
        """Raise UserError where the features of `data` do not fit the other inputs. Called when there is work to do, before OUT exists."""

    def begin(self, out: Path) -> None:
        """Check the inputs, and copy to OUT those that the model needs. Raises UserError where they do not go together."""

    def prepare(self, out: Path) -> None:
        """Write targets and tables to OUT. Called unless an interrupted run has left them."""
        raise NotImplementedError

    def spec(self, out: Path) -> Any:
        """The work of all ranks."""
        raise NotImplementedError


@contextlib.contextmanager
def staged(step: TrainingStep) -> Iterator[Any]:
    """The work of the ranks, for a `with` block that has them do it. Its `out`, of `training_output`, has what they need.

    Raises UserError where options or inputs do not go together.
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
    """Run a training whose step has the options `OnRanks`."""
    with staged(step) as spec:
        train_on_ranks(step, step.function, spec, step.parts, step.log)
