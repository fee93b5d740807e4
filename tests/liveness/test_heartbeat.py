"""Heartbeats that continue, end regularly or fail; wrong clocks."""

import os
import shutil

import pytest

from pyasr.liveness.heartbeat import Heartbeat, HeartbeatReader, heartbeat_dir, heartbeat_files, remove


@pytest.fixture
def directory(tmp_path):
    return heartbeat_dir(tmp_path / "train.spec.json")


def heartbeats(directory, num: int) -> list[Heartbeat]:
    made = [Heartbeat(directory, 100 + rank) for rank in range(num)]
    for rank, heartbeat in enumerate(made):
        heartbeat.start(f"rank {rank} of {num} on node{rank}")
    return made


def poll(reader: HeartbeatReader, seconds: float, *beating: Heartbeat):
    """Result of the reader within `seconds` of its own time, while these ranks send heartbeats."""
    for number in range(round(seconds / reader.poll_s)):
        for heartbeat in beating:
            heartbeat.beat()
        if loss := reader.poll():
            return loss, number * reader.poll_s
    return None


def test_beating_rank_is_alive(directory):
    one, other = heartbeats(directory, 2)
    reader = HeartbeatReader(directory, 2, 20.0)
    assert reader.poll_s == 2.0
    assert poll(reader, 100, one, other) is None
    loss, seconds = poll(reader, 100, one)
    assert loss.num_ranks == 1 and loss.sentence.startswith(
        "rank 1 of 2 on node1: no heartbeat for more than 20 s"
    )
    assert 20 <= seconds <= 24


def test_clocks_of_hosts_are_not_compared(directory):
    """One clock is far in the past, and is set back; another is far in the future."""
    past, future = heartbeats(directory, 2)
    reader = HeartbeatReader(directory, 2, 20.0)
    for number in range(100):
        os.utime(past.file, ns=(0, 10**9 - number))
        os.utime(future.file, ns=(0, 4 * 10**18 + number))
        assert reader.poll() is None
    assert poll(reader, 100, past)[0].sentence.startswith("rank 1 of 2")


def test_ranks_of_a_host_are_lost_together(directory):
    one, *others = heartbeats(directory, 4)
    reader = HeartbeatReader(directory, 4, 20.0)
    poll(reader, 10, one, *others)
    for heartbeat in others[
        :2
    ]:  # the reader sees their last heartbeats at the same time as those of the third and the next
        heartbeat.beat()
    loss, _ = poll(reader, 100, one)
    assert loss.num_ranks == 3 and loss.sentence.startswith(
        "rank 1 of 4 on node1, rank 2 of 4 on node2, rank 3 of 4 on node3: "
    )


def test_ended_rank_is_not_missed(directory):
    one, other = heartbeats(directory, 2)
    reader = HeartbeatReader(directory, 2, 20.0)
    poll(reader, 10, one, other)
    other.stop()
    other.stop()
    other.beat()
    assert poll(reader, 200, one) is None


def test_rank_that_never_started_is_lost_after_timeout(directory):
    """If no rank has started, the job waits in a queue. If one of three has started, the others have at least
    a minute."""
    reader = HeartbeatReader(directory, 3, 6.0)
    assert poll(reader, 600) is None
    (one,) = heartbeats(directory, 1)
    loss, seconds = poll(reader, 600, one)
    assert 59 <= seconds <= 62 and loss.num_ranks == 2
    assert loss.sentence.startswith("2 of 3 ranks did not start within 60 s of the first; others started on ")


def test_restarted_job_gets_new_ranks(directory):
    """If the files of the previous ranks were removed between two polls, they are no longer expected; all new
    ranks must start."""
    before = heartbeats(directory, 3)
    reader = HeartbeatReader(directory, 3, 20.0)
    poll(reader, 10, *before)
    remove(heartbeat_files(directory))
    again = Heartbeat(directory, 200)
    again.start("rank 0 of 3 on node9")
    loss, seconds = poll(reader, 200, again, *before)
    assert (
        loss.sentence.startswith("2 of 3 ranks did not start within 60 s of the first; others started on ")
        and 59 <= seconds <= 63
    )


def test_short_timeout_is_respected(directory):
    heartbeats(directory, 1)
    reader = HeartbeatReader(directory, 1, 0.5)
    assert 5 <= poll(reader, 60)[1] <= 6


def test_removed_directory_is_no_error(directory):
    (one,) = heartbeats(directory, 1)
    reader = HeartbeatReader(directory, 1, 20.0)
    poll(reader, 10, one)
    shutil.rmtree(directory)
    one.beat()
    assert poll(reader, 100) is None
    unwritable = Heartbeat(directory / "no" / "where", 1)
    unwritable.start("rank 0")
    unwritable.beat()
    unwritable.stop()
