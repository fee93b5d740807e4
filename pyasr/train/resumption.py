"""What of a training job goes into its checkpoints, and how a job goes on from one, with as many ranks as before or with others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.output import differences
from pyasr.train.checkpoint_index import DIRECTORY
from pyasr.train.checkpoints import (
    Checkpoint, check_shapes, frames_to_leave_out, load_checkpoint, random_state, save_checkpoint, set_random_state, shapes,
)  # fmt: skip
from pyasr.train.schedules import ScheduleState

if TYPE_CHECKING:
    from pyasr.train.trainer import Trainer


@dataclass
class Position:
    """How far a rank is: `frames_seen` over all ranks, `own_frames` of its own in this epoch, and their sums (loss, correct, frames), in
    this epoch up to the last log line, and since then; `skipped` minibatches were left out by its learner. The epoch began at
    `epoch_began` frames seen; this rank begins its own with frame `begin`, since others, in another number, have trained on as many."""

    frames_seen: int = 0
    own_frames: int = 0
    skipped: int = 0
    epoch_began: int = 0
    begin: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])
    interval_sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0, 0.0])


def save_job(job: Trainer, equal: bool) -> None:
    """What the learner and the strategy remember, and random state, are each rank's own, and so are parameters that are not `equal`; the
    consensus and the sums over all ranks are for a job of another number of ranks."""
    master, position = job.learner.flat.master, job.position
    sums = job.comm.allreduce(np.array([position.epoch_sums, position.interval_sums]))
    shared = {"master": master if equal else job.strategy.model(master), "shapes": shapes(job.learner.flat.values()),
              "best": job.best, "schedule": dataclasses.asdict(job.schedule.state), "sums": sums.tolist()}  # fmt: skip
    if job.growth:
        shared["network"] = job.learner.network.describe()
    own = {"position": dataclasses.asdict(position), "learner": job.learner.state_dict(), "master": None if equal else master,
           "strategy": job.strategy.state_dict(), "random": random_state(master.device)}  # fmt: skip
    if job.one_learner:
        own["one_learner"] = job.one_learner.kept
    save_checkpoint(job.directory / DIRECTORY, job.comm, shared, own, position.frames_seen)


def resume_job(job: Trainer) -> bool:
    """Let the job go on from its last checkpoint; whether there is one."""
    found = load_checkpoint(job.directory / DIRECTORY, job.comm)
    job.forget_models_after(found.first["position"]["frames_seen"] if found else 0)
    if found is None:
        return False
    job.schedule.state = ScheduleState(**found.shared["schedule"])
    as_before = found.num_ranks == job.comm.size
    job.position = Position(**found.own["position"]) if as_before else _place_among_others(job, found)
    if job.growth:
        _check_network(job, found.shared)
        job.growth.resume(job.learner, found.shared["network"], job.position.frames_seen)
    _take_parameters(job, found.shared, found.own["master"] if as_before else None)
    if found.own:
        go_on = job.learner.load_state_dict if as_before else job.learner.take_up
        go_on(found.own["learner"])
        set_random_state(found.own["random"], job.learner.flat.master.device)
    else:
        _take_momentum(job, found.first["learner"])
    if job.one_learner and found.own:
        job.one_learner.kept = found.own.get("one_learner")
    job.restart()
    if as_before:
        job.strategy.load_state_dict(found.own["strategy"])
    else:
        job.strategy.take_up(found.first["strategy"])
    were = "" if as_before else f", with {job.comm.size} ranks instead of {found.num_ranks}"
    job.comm.say(f"resuming at {job.position.frames_seen} frames, epoch {job.schedule.state.epoch + 1}{were}")
    return True


def _check_network(job: Trainer, shared: dict) -> None:
    """Raise UserError unless the checkpoint's network is what this job's is by then; what is estimated from data or drawn may differ."""
    expected = job.growth.expected(job.learner.network, job.position.frames_seen)
    both = shared["network"], expected.describe()
    theirs, ours = ({name: value for name, value in network.items() if name != "fixed"} for network in both)
    if theirs != ours:
        raise UserError(f"{job.directory / DIRECTORY}: a checkpoint of another network ({'; '.join(differences(theirs, ours))}); "
                        "give the options of that network, or --force to train from the start")  # fmt: skip
    check_shapes(job.directory / DIRECTORY, shared["shapes"], shapes(expected.parameters()))


def _take_parameters(job: Trainer, shared: dict, own_master: torch.Tensor | None) -> None:
    flat = job.learner.flat
    check_shapes(job.directory / DIRECTORY, shared["shapes"], shapes(flat.values()))
    flat.master.copy_(shared["master"] if own_master is None else own_master)
    flat.refresh()
    job.best = None if shared["best"] is None else shared["best"].to(flat.master.device)


def _take_momentum(job: Trainer, first: dict) -> None:
    """A rank that was not there goes on with the momentum of rank 0: those that take the same steps (`gradient`) have the same."""
    job.learner.num_steps = first["num_steps"]
    if job.learner.velocity is not None:
        job.learner.velocity.copy_(first["velocity"])


def _place_among_others(job: Trainer, found: Checkpoint) -> Position:
    """The place in a checkpoint of another number of ranks: of its own part of the data each leaves out the share of the epoch that has
    been trained on, in whole items, or utterances; rank 0 takes all sums."""
    first, skipped = found.first["position"], found.own["position"]["skipped"] if found.own else 0
    done = first["frames_seen"] - first["epoch_began"]
    epoch = job.schedule.state.epoch + 1
    num_frames = job.comm.allgather(job.training.epoch_frames(epoch))
    begin = frames_to_leave_out(num_frames, min(done, sum(num_frames)))[job.comm.rank]
    begin = job.training.border(epoch, begin)
    sums = found.shared["sums"] if job.comm.rank == 0 else np.zeros((2, 3)).tolist()
    return Position(first["frames_seen"], begin, skipped, first["epoch_began"], begin, *sums)
