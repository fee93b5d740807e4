"""Schedules compared with values computed by hand."""

import math

import pytest

from pyasr.base.errors import UserError
from pyasr.train.schedules import ScheduleOptions, make_schedule

EPOCH_FRAMES = 1000


def schedule_of(**options):
    return make_schedule(ScheduleOptions(**options), EPOCH_FRAMES)


def rates_of_epochs(schedule):
    """The rate at the beginning of each epoch, until the schedule ends."""
    rates = []
    while not schedule.finished:
        rates.append(schedule.rate(len(rates) * EPOCH_FRAMES))
        assert schedule.end_epoch(1.0, 0.5)
    return rates


def test_exponential_rate_from_initial_to_final():
    """lr_e = i exp(x ln(f / i) / n) with x = e - 1, n = E - 1: 15 epochs from 0.32 to 0.0032 as in Su, Chen,
    Xu 2015."""
    rates = rates_of_epochs(
        schedule_of(learning_rate=0.32, schedule="exponential", num_epochs=15, final_factor=0.01)
    )
    assert rates == pytest.approx([0.32 * math.exp(x * math.log(0.0032 / 0.32) / 14) for x in range(15)])
    assert rates[0] == 0.32 and rates[-1] == pytest.approx(0.0032)


def test_exponential_of_one_epoch():
    schedule = schedule_of(learning_rate=0.5, num_epochs=1)
    assert schedule.rate(0) == schedule.rate(900) == 0.5
    schedule.end_epoch(1.0, 0.5)
    assert schedule.finished


def test_exponential_in_frames():
    """nnet2: 15 + 5 epochs, 0.04 to 0.004, the last five constant; a third of the fall after five epochs."""
    schedule = schedule_of(
        learning_rate=0.04, schedule="exponential-frames", num_epochs=20, constant_epochs=5, final_factor=0.1
    )
    assert schedule.rate(0) == 0.04
    assert schedule.rate(5000) == pytest.approx(0.04 * 10 ** (-1 / 3))
    assert schedule.rate(5001) < schedule.rate(5000)
    assert schedule.rate(15000) == schedule.rate(19999) == pytest.approx(0.004)


def test_steps_at_epochs_and_frames():
    schedule = schedule_of(
        learning_rate=0.8, schedule="step", num_epochs=6, step_epochs="2, 2.5", step_frames="3e3"
    )
    rates = [schedule.rate(frames) for frames in (0, 1999, 2000, 2499, 2500, 2999, 3000, 6000)]
    assert rates == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.1, 0.1]


def test_steps_end_at_minimum_rate():
    rates = rates_of_epochs(
        schedule_of(learning_rate=0.8, schedule="step", num_epochs=5, step_epochs="1,2,3,4", least_rate=0.15)
    )
    assert rates == [0.8, 0.4, 0.2, 0.15, 0.15]
    with pytest.raises(
        UserError,
        match=(
            "--least-rate 0.9: the initial learning rate, 0.8, is lower; lower --least-rate, or raise "
            "--learning-rate"
        ),
    ):
        schedule_of(learning_rate=0.8, schedule="step", step_epochs="1", least_rate=0.9)


def test_invalid_steps_are_refused():
    with pytest.raises(UserError, match="no step is given"):
        schedule_of(schedule="step")
    with pytest.raises(UserError, match="--step-epochs: '3;4' is not a comma-separated list of numbers"):
        schedule_of(schedule="step", step_epochs="3;4")
    with pytest.raises(UserError, match="--step-frames: '2e6,nan' is not a comma-separated list of numbers"):
        schedule_of(schedule="step", step_frames="2e6,nan")
    with pytest.raises(UserError, match="--constant-epochs 4: the training has only 4 epochs"):
        schedule_of(schedule="exponential-frames", num_epochs=4, constant_epochs=4)


def test_warm_up_and_annealing():
    """Batch 2560 in arXiv:1904.04956: 0.1 to 1.0 over ten epochs, then a factor of 1 / sqrt 2 per epoch, from
    the eleventh on."""
    rates = rates_of_epochs(schedule_of(learning_rate=0.1, schedule="warm-up", num_epochs=16))
    assert rates[:10] == pytest.approx([0.1 + 0.09 * epoch for epoch in range(10)])
    assert rates[10:] == pytest.approx([2 ** (-k / 2) for k in range(1, 7)])
    schedule = schedule_of(learning_rate=0.1, schedule="warm-up", num_epochs=16)
    assert schedule.rate(500) == pytest.approx(0.145) and schedule.rate(9999) == pytest.approx(1.0, rel=1e-3)
    assert schedule.rate(10999) == schedule.rate(10000)
    with pytest.raises(
        UserError,
        match=(
            "--warm-up-epochs 10: the learning rate would not fall within the 10 epochs; raise --num-epochs"
        ),
    ):
        schedule_of(schedule="warm-up", num_epochs=10)
    assert schedule_of(schedule="warm-up", num_epochs=11).rate(10500) < schedule_of(
        schedule="warm-up", num_epochs=11
    ).rate(9999)
    part = schedule_of(learning_rate=0.1, schedule="warm-up", num_epochs=5, warm_up_epochs=2.5)
    assert [part.rate(frames) for frames in (2500, 2999, 3000, 3999, 4000)] == pytest.approx(
        [1, 1, 2**-0.5, 2**-0.5, 0.5]
    )
    constant = schedule_of(learning_rate=0.1, schedule="warm-up", num_epochs=12, warm_up_factor=1.0)
    assert rates_of_epochs(constant)[:11] == pytest.approx([0.1] * 10 + [0.1 / math.sqrt(2)])


def run(schedule, losses):
    schedule.begin(*losses[0])
    report = []
    for loss, accuracy in losses[1:]:
        rate = schedule.rate(0)
        accepted = schedule.end_epoch(loss, accuracy)
        report.append((rate, accepted, schedule.finished))
    return report


def test_newbob():
    """Gains 50, 10, 0.5 (halving begins), 2 (still halving), worse (rejected, gain 0: end)."""
    schedule = schedule_of(learning_rate=0.008, schedule="newbob", num_epochs=20)
    losses = [(4.0, 0), (2.0, 0), (1.8, 0), (1.791, 0), (1.755, 0), (1.76, 0)]
    report = [
        (0.008, True, False),
        (0.008, True, False),
        (0.008, True, False),
        (0.004, True, False),
        (0.002, False, True),
    ]
    assert run(schedule, losses) == report


def test_newbob_rejects_before_halving_and_continues():
    schedule = schedule_of(learning_rate=1.0, schedule="newbob", num_epochs=3)
    assert run(schedule, [(2.0, 0), (2.5, 0), (1.0, 0), (0.5, 0)]) == [
        (1.0, False, False),
        (0.5, True, False),
        (0.25, True, True),
    ]


def test_newbob_by_accuracy():
    """Gains of 3 %, 0.4 % (halve), 0.6 % (no halving), 0.05 % (end)."""
    schedule = schedule_of(learning_rate=1.0, schedule="newbob-accuracy", num_epochs=20)
    output = run(schedule, [(0, 0.40), (0, 0.43), (0, 0.434), (0, 0.44), (0, 0.4405)])
    assert output == [(1.0, True, False), (1.0, True, False), (0.5, True, False), (0.5, True, True)]


@pytest.mark.parametrize("scaling, factor", [("linear", 4), ("sqrt", 2), ("none", 1)])
def test_scaling_with_ranks(scaling, factor):
    assert ScheduleOptions(lr_scaling=scaling).scale(4) == factor
    assert ScheduleOptions(lr_scaling=scaling, lr_convention="sum").rate_factor(4, 256) == factor
    assert ScheduleOptions(lr_scaling=scaling, lr_convention="mean").rate_factor(4, 256) == factor / 256


def test_description_of_schedule():
    options = ScheduleOptions(
        learning_rate=0.32, lr_convention="sum", schedule="newbob-accuracy", num_epochs=20
    )
    expected = (
        "learning rate 0.32 (sum over minibatches of 1024), linear scaling: effective 0.32 x 8 = "
        "2.56; newbob-accuracy, 20 epochs"
    )
    assert options.describe(8, 1024) == expected
