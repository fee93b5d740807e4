"""Contents of the checkpoints of a training job, and resuming from one with any number of ranks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.outputs.comparison import differences
from pyasr.train.evolve.combine import remove_models_after
from pyasr.train.job.checkpoint_index import DIRECTORY, MODELS
from pyasr.train.job.checkpoints import (
    Checkpoint,
    check_shapes,
    frames_to_leave_out,
    load_checkpoint,
    random_state,
    save_checkpoint,
    set_random_state,
    shapes,
)
from pyasr.train.schedules import Schedule, ScheduleState
from pyasr.train.sgd.learner import Learner

if TYPE_CHECKING:
    from pyasr.parallel.strategies import Strategy
    from pyasr.train.data.minibatch_stream import Frames
    from pyasr.train.evolve.growth import Growth
    from pyasr.train.job.one_learner import OneLearner
    from pyasr.train.minibatches.whole_utterances import Utterances
    from pyasr.train.sgd.any_learner import AnyLearner


@dataclass
class Position:
    """Progress of a rank.

    frames_seen    frames over all ranks
    own_frames     frames of this rank in this epoch
    skipped        minibatches that this rank has skipped
    epoch_began    `frames_seen` at the beginning of the epoch
    begin          first frame of this rank's epoch; above 0 after a resumption with another number of ranks,
                   which skips trained frames
    epoch_sums     (loss, correct, frames) of this rank in this epoch up to the last log line
    interval_sums  the same since the last log line
    """

    frames_seen: int = 0
    own_frames: int = 0
    skipped: int = 0
    epoch_began: int = 0
    begin: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    interval_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])


class JobCheckpoints:
    """The checkpoints of a training job, in DIRECTORY/checkpoint.

    Each rank saves the state of its learner and strategy, its random state, and its parameters unless all
    ranks have the same. The consensus of the parameters and the sums over all ranks are saved once, for
    resuming with another number of ranks.

    learner, strategy, schedule, training  parts of the job; `resume` restores them
    """

    def __init__(
        self,
        directory: Path,
        learner: AnyLearner,
        strategy: Strategy,
        schedule: Schedule,
        training: Frames | Utterances,
    ):
        self.path, self.models = directory / DIRECTORY, directory / MODELS
        self.learner, self.strategy, self.schedule, self.training, self.comm = (
            learner,
            strategy,
            schedule,
            training,
            strategy.comm,
        )

    def save(
        self,
        position: Position,
        best: torch.Tensor | None,
        equal: bool,
        growth: Growth | None = None,
        one_learner: OneLearner | None = None,
    ) -> None:
        """Save the present state of the job. Every rank must call this.

        best   parameters to which the schedule may return
        equal  whether all ranks have the same parameters
        """
        master = self.learner.flat.master
        sums = self.comm.allreduce(np.array([position.epoch_sums, position.interval_sums]))
        shared = {
            "master": master if equal else self.strategy.model(master),
            "shapes": shapes(self.learner.flat.values()),
            "best": best,
            "schedule": dataclasses.asdict(self.schedule.state),
            "sums": sums.tolist(),
        }
        if growth:
            shared["network"] = self.learner.network.describe()
        own = {
            "position": dataclasses.asdict(position),
            "learner": self.learner.state_dict(),
            "master": None if equal else master,
            "strategy": self.strategy.state_dict(),
            "random": random_state(master.device),
        }
        if one_learner:
            own["one_learner"] = one_learner.kept
        save_checkpoint(self.path, self.comm, shared, own, position.frames_seen)

    def resume(
        self, growth: Growth | None = None, one_learner: OneLearner | None = None
    ) -> tuple[Position, torch.Tensor | None] | None:
        """Restore the job from the last checkpoint. Returns (position, best), or None without a checkpoint.
        Every rank must call this."""
        found = load_checkpoint(self.path, self.comm)
        self.remove_models_after(found.first["position"]["frames_seen"] if found else 0)
        if found is None:
            return None
        self.schedule.state = ScheduleState(**found.shared["schedule"])
        # this rank's own state; None with another number of ranks
        before = found.own if found.num_ranks == self.comm.size else None
        position = Position(**before["position"]) if before else self._resized_position(found)
        if growth:
            self._check_network(growth, position.frames_seen, found.shared)
            assert isinstance(self.learner, Learner)  # only its network grows
            growth.resume(self.learner, found.shared["network"], position.frames_seen)
        self._restore_parameters(found.shared, before["master"] if before else None)
        self._restore_learner(found, as_before=before is not None)
        if one_learner and found.own:
            one_learner.kept = found.own.get("one_learner")
        self.strategy.restart(self.learner.flat.master)
        if before:
            self.strategy.load_state_dict(before["strategy"])
        else:
            self.strategy.resume_resized(found.first["strategy"])
        resized = "" if before else f", with {self.comm.size} ranks instead of {found.num_ranks}"
        self.comm.log(
            f"resuming at {position.frames_seen} frames, epoch {self.schedule.state.epoch + 1}{resized}"
        )
        best = found.shared["best"]
        return position, None if best is None else best.to(self.learner.flat.master.device)

    def remove_models_after(self, frames_seen: int) -> None:
        """Remove models for --combine that were kept after `frames_seen`, in a part of the training that the
        job discards."""
        if self.comm.rank == 0:
            remove_models_after(frames_seen, self.models)

    def _check_network(self, growth: Growth, frames_seen: int, shared: dict) -> None:
        """Raise UserError unless the checkpoint's network is the one that this job has after `frames_seen`.
        Estimated and random values may differ."""
        expected = growth.expected(self.learner.network, frames_seen)
        both = shared["network"], expected.describe()
        theirs, ours = (
            {name: value for name, value in network.items() if name != "fixed"} for network in both
        )
        if theirs != ours:
            raise UserError(
                f"{self.path}: a checkpoint of another network ({'; '.join(differences(theirs, ours))}); "
                "give the options of that network, or --force to train from the start"
            )
        check_shapes(self.path, shared["shapes"], shapes(expected.parameters()))

    def _restore_parameters(self, shared: dict, own_master: torch.Tensor | None) -> None:
        flat = self.learner.flat
        check_shapes(self.path, shared["shapes"], shapes(flat.values()))
        flat.master.copy_(shared["master"] if own_master is None else own_master)
        flat.refresh()

    def _restore_learner(self, found: Checkpoint, as_before: bool) -> None:
        """Restore the learner's state. A new rank takes the momentum of rank 0, because ranks that apply the
        same updates (`gradient`) have equal momentum."""
        learner = self.learner
        if found.own:
            restore = learner.load_state_dict if as_before else learner.resume_resized
            restore(found.own["learner"])
            set_random_state(found.own["random"], learner.flat.master.device)
            return
        learner.num_steps = found.first["learner"]["num_steps"]
        if learner.velocity is not None:
            learner.velocity.copy_(found.first["learner"]["velocity"])

    def _resized_position(self, found: Checkpoint) -> Position:
        """Position of this rank after a checkpoint of another number of ranks. Each rank skips the trained
        share of the epoch in its own part of the data, in whole items or utterances. Rank 0 takes all
        sums."""
        first, skipped = found.first["position"], found.own["position"]["skipped"] if found.own else 0
        done = first["frames_seen"] - first["epoch_began"]
        epoch = self.schedule.state.epoch + 1
        num_frames = self.comm.allgather(self.training.epoch_frames(epoch))
        begin = frames_to_leave_out(num_frames, min(done, sum(num_frames)))[self.comm.rank]
        begin = self.training.border(epoch, begin)
        sums = found.shared["sums"] if self.comm.rank == 0 else np.zeros((2, 3)).tolist()
        return Position(first["frames_seen"], begin, skipped, first["epoch_began"], begin, *sums)
