"""Dropout schedules: their notation, and their application in trainings."""

import pytest
import torch
from toy_jobs import Crash, crash_after, store, training, with_options

from pyasr.base.errors import UserError
from pyasr.nn.dropout import Dropout
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.dropout_schedule import DropoutSchedule
from pyasr.train.sgd.learner import LearnerOptions

KALDIS = "0,0@0.20,0.5@0.50,0"
SCHEDULED = with_options(dnn=dict(dropout=0.25), learner=dict(dropout_schedule=KALDIS))


@pytest.mark.parametrize(
    "text, points",
    [
        (KALDIS, {0: 0, 0.1: 0, 0.2: 0, 0.35: 0.25, 0.5: 0.5, 0.75: 0.25, 1: 0, 1.1: 0}),
        ("0.1,0.3", {0: 0.1, 0.5: 0.2, 1: 0.3}),
        ("0,0.4,0.2", {0: 0, 0.25: 0.2, 0.5: 0.4, 0.75: 0.3, 1: 0.2}),
        ("0,0@0.5,0.5@0.5,0.5", {0.49: 0, 0.51: 0.5}),
        (" 0 , 0.5 @ 0.5 , 0 ", {0.25: 0.25}),
    ],
)
def test_dropout_probabilities_over_training(text, points):
    schedule = DropoutSchedule(text)
    assert {done: schedule(done) for done in points} == pytest.approx(points)


@pytest.mark.parametrize(
    "text", ["0.3", "a,b", "0,0.6,0", "0,-0.1@0.5,0", "0,,0", "0@0.1,0", "0,0.1@x,0", "0,nan,0", ",", "0;0.5"]
)
def test_invalid_probabilities_are_refused(text):
    with pytest.raises(UserError, match="--dropout-schedule '.*': give two or more shares from 0 to 0.5"):
        LearnerOptions(dropout_schedule=text).check()


@pytest.mark.parametrize("text", ["0,0.1@0.5,0.2@0.4,0", "0,0.1@1.1,0", "0,0.1@-1,0", "0,0.1@nan,0"])
def test_descending_times_are_refused(text):
    with pytest.raises(UserError, match="--dropout-schedule '.*': times do not ascend"):
        LearnerOptions(dropout_schedule=text).check()


def test_networks_without_dropout_are_refused(tmp_path):
    with pytest.raises(UserError, match="--dropout-schedule: no layer has dropout"):
        training(SoloComm(), tmp_path, store(4), with_options(learner=dict(dropout_schedule=KALDIS)))


def shares_of(
    comm, directory, num_steps: int | None = None
) -> tuple[list[tuple[float, float]], torch.Tensor]:
    """((completed part, dropout share) at each minibatch, final parameters); the job dies after `num_steps`
    minibatches."""
    job, seen = training(comm, directory, store(8, comm.rank), SCHEDULED), []
    if num_steps:
        crash_after(job, num_steps)
    step = job.learner.step

    def watched(*arguments):
        (share,) = {module.share for module in job.learner.network.modules() if isinstance(module, Dropout)}
        seen.append((job.position.frames_seen / job.total_frames, share))
        return step(*arguments)

    job.learner.step = watched
    try:
        job.run()
    except Crash:
        pass
    return seen, job.learner.flat.master.clone()


def test_trainings_follow_schedule(tmp_path):
    """On two ranks: from 0 to 0.5 and back."""
    for seen, _ in run_threads(2, lambda comm: shares_of(comm, tmp_path)):
        assert [share for _, share in seen] == pytest.approx(
            [DropoutSchedule(KALDIS)(done) for done, _ in seen]
        )
        assert (
            seen[0][1] == 0
            and max(share for _, share in seen) > 0.45
            and seen[-1][1] < 0.05
            and seen[-1][0] > 0.9
        )


def test_resumed_training_gives_same_bits(tmp_path):
    expected = shares_of(SoloComm(), tmp_path / "whole")
    first = shares_of(SoloComm(), tmp_path / "again", num_steps=40)
    rest = shares_of(SoloComm(), tmp_path / "again")
    assert (
        0 < len(rest[0]) < len(expected[0])
        and rest[0] == expected[0][-len(rest[0]) :]
        and first[0][:40] == expected[0][:40]
    )
    assert torch.equal(rest[1], expected[1])
