"""Heartbeats that continue, end regularly or fail; wrong clocks."""

import os
import shutil

import pytest

from pyasr.liveness.heartbeat import Heartbeat, HeartbeatReader, forget, hearts_in, hearts_of


@pytest.fixture
def directory(tmp_path):
    return hearts_of(tmp_path / "train.spec.json")


def hearts(directory, num: int) -> list[Heartbeat]:
    made = [Heartbeat(directory, 100 + rank) for rank in range(num)]
    for rank, heart in enumerate(made):
        heart.introduce(f"rank {rank} of {num} on node{rank}")
    return made


def listen(ear: HeartbeatReader, seconds: float, *beating: Heartbeat):
    """Result of the listener within `seconds` of its own time, while these ranks send heartbeats."""
    for look in range(round(seconds / ear.look_s)):
        for heart in beating:
            heart.beat()
        if loss := ear.listen():
            return loss, look * ear.look_s
    return None


def test_beating_rank_is_alive(directory):
    one, other = hearts(directory, 2)
    ear = HeartbeatReader(directory, 2, 20.0)
    assert ear.look_s == 2.0
    assert listen(ear, 100, one, other) is None
    loss, seconds = listen(ear, 100, one)
    assert loss.num_ranks == 1 and loss.sentence.startswith(
        "rank 1 of 2 on node1: no heartbeat for more than 20 s"
    )
    assert 20 <= seconds <= 24


def test_clocks_of_hosts_are_not_compared(directory):
    """One clock is far in the past, and is set back; another is far in the future."""
    past, future = hearts(directory, 2)
    ear = HeartbeatReader(directory, 2, 20.0)
    for number in range(100):
        os.utime(past.file, ns=(0, 10**9 - number))
        os.utime(future.file, ns=(0, 4 * 10**18 + number))
        assert ear.listen() is None
    assert listen(ear, 100, past)[0].sentence.startswith("rank 1 of 2")


def test_ranks_of_a_host_are_lost_together(directory):
    one, *others = hearts(directory, 4)
    ear = HeartbeatReader(directory, 4, 20.0)
    listen(ear, 10, one, *others)
    for heart in others[
        :2
    ]:  # the listener sees their last heartbeats at the same time as those of the third and the next
        heart.beat()
    loss, _ = listen(ear, 100, one)
    assert loss.num_ranks == 3 and loss.sentence.startswith(
        "rank 1 of 4 on node1, rank 2 of 4 on node2, rank 3 of 4 on node3: "
    )


def test_ended_rank_is_not_missed(directory):
    one, other = hearts(directory, 2)
    ear = HeartbeatReader(directory, 2, 20.0)
    listen(ear, 10, one, other)
    other.stop()
    other.stop()
    other.beat()
    assert listen(ear, 200, one) is None


def test_rank_that_never_started_is_lost_after_timeout(directory):
    """If no rank has started, the job waits in a queue. If one of three has started, the others have at least
    a minute."""
    ear = HeartbeatReader(directory, 3, 6.0)
    assert listen(ear, 600) is None
    (one,) = hearts(directory, 1)
    loss, seconds = listen(ear, 600, one)
    assert 59 <= seconds <= 62 and loss.num_ranks == 2
    assert loss.sentence.startswith("2 of 3 ranks did not start within 60 s of the first; others started on ")


def test_restarted_job_gets_new_ranks(directory):
    """If the files of the previous ranks were removed between two looks, they are no longer expected; all new
    ranks must start."""
    before = hearts(directory, 3)
    ear = HeartbeatReader(directory, 3, 20.0)
    listen(ear, 10, *before)
    forget(hearts_in(directory))
    again = Heartbeat(directory, 200)
    again.introduce("rank 0 of 3 on node9")
    loss, seconds = listen(ear, 200, again, *before)
    assert (
        loss.sentence.startswith("2 of 3 ranks did not start within 60 s of the first; others started on ")
        and 59 <= seconds <= 63
    )


def test_short_timeout_is_respected(directory):
    hearts(directory, 1)
    ear = HeartbeatReader(directory, 1, 0.5)
    assert 5 <= listen(ear, 60)[1] <= 6


def test_removed_directory_is_no_error(directory):
    (one,) = hearts(directory, 1)
    ear = HeartbeatReader(directory, 1, 20.0)
    listen(ear, 10, one)
    shutil.rmtree(directory)
    one.beat()
    assert listen(ear, 100) is None
    unwritable = Heartbeat(directory / "no" / "where", 1)
    unwritable.introduce("rank 0")
    unwritable.beat()
    unwritable.stop()
