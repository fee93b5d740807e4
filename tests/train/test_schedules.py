"""Schedules against values worked out by hand."""

import math

import pytest

from pyasr.train.schedules import ScheduleOptions, make_schedule


def test_exponential_goes_from_the_initial_to_the_final_rate():
    """lr_e = i exp(x ln(f / i) / n) with x = e - 1, n = E - 1: 15 epochs from 0.32 to 0.0032 as in Su, Chen, Xu 2015."""
    schedule = make_schedule(ScheduleOptions(learning_rate=0.32, schedule="exponential", num_epochs=15, final_factor=0.01))
    rates = []
    while not schedule.finished:
        rates.append(schedule.rate)
        assert schedule.end_epoch(1.0, 0.5)
    assert rates == pytest.approx([0.32 * math.exp(x * math.log(0.0032 / 0.32) / 14) for x in range(15)])
    assert rates[0] == 0.32 and rates[-1] == pytest.approx(0.0032)


def test_exponential_of_one_epoch():
    schedule = make_schedule(ScheduleOptions(learning_rate=0.5, num_epochs=1))
    assert schedule.rate == 0.5
    schedule.end_epoch(1.0, 0.5)
    assert schedule.finished


def run(schedule, losses):
    schedule.begin(*losses[0])
    told = []
    for loss, accuracy in losses[1:]:
        rate = schedule.rate
        accepted = schedule.end_epoch(loss, accuracy)
        told.append((rate, accepted, schedule.finished))
    return told


def test_newbob():
    """Gains 50, 10, 0.5 (halving begins), 2 (still halving), worse (rejected, gain 0: end)."""
    schedule = make_schedule(ScheduleOptions(learning_rate=0.008, schedule="newbob", num_epochs=20))
    losses = [(4.0, 0), (2.0, 0), (1.8, 0), (1.791, 0), (1.755, 0), (1.76, 0)]
    told = [(0.008, True, False), (0.008, True, False), (0.008, True, False), (0.004, True, False), (0.002, False, True)]
    assert run(schedule, losses) == told


def test_newbob_rejects_before_halving_and_goes_on():
    schedule = make_schedule(ScheduleOptions(learning_rate=1.0, schedule="newbob", num_epochs=3))
    assert run(schedule, [(2.0, 0), (2.5, 0), (1.0, 0), (0.5, 0)]) == [(1.0, False, False), (0.5, True, False), (0.25, True, True)]


def test_newbob_by_accuracy():
    """Gains of 3 %, 0.4 % (halve), 0.6 % (no halving), 0.05 % (end)."""
    schedule = make_schedule(ScheduleOptions(learning_rate=1.0, schedule="newbob-accuracy", num_epochs=20))
    told = run(schedule, [(0, 0.40), (0, 0.43), (0, 0.434), (0, 0.44), (0, 0.4405)])
    assert told == [(1.0, True, False), (1.0, True, False), (0.5, True, False), (0.5, True, True)]


@pytest.mark.parametrize("scaling, factor", [("linear", 4), ("sqrt", 2), ("none", 1)])
def test_scaling_with_ranks(scaling, factor):
    assert ScheduleOptions(lr_scaling=scaling).scale(4) == factor
