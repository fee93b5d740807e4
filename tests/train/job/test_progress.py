"""Reports of a job: log lines, metrics.jsonl, skipped minibatches, TensorBoard files, the progress bar on a
terminal."""

import io
import json
import logging
import struct
import time

import numpy as np
import pytest
import torch
from toy_jobs import metrics, poisoned, store, trained, training, with_options

from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import make_strategy, mixing_options
from pyasr.train.job import tensorboard
from pyasr.train.job.progress import Reporter
from pyasr.train.job.progress_bar import bar, last_interval, progress_bar, progress_line
from pyasr.train.totals import Totals


@pytest.fixture
def log_messages(caplog):
    """Log messages of pyasr, as a list."""
    caplog.set_level(logging.INFO, "pyasr")
    return lambda: [record.getMessage() for record in caplog.records]


def test_log_lines_of_training(tmp_path, log_messages):
    options = with_options(loop=dict(log_frames=200))
    run_threads(2, lambda comm: trained(comm, tmp_path / "job", store([8, 3][comm.rank], comm.rank), options))
    lines = metrics(tmp_path / "job")
    intervals, epochs = ([line for line in lines if (key in line)] for key in ("left_s", "accepted"))
    assert len(epochs) == 3 and [line["frames"] for line in epochs] == [550, 1100, 1650]
    assert all(line["total_frames"] == 1650 and line["frames_per_s"] > 0 for line in intervals)
    assert all(0 <= line["data"] + line["waiting"] + line["communication"] <= 1 for line in intervals)
    assert intervals[-1]["objective"] > intervals[0]["objective"] and epochs[-1]["heldout_accuracy"] > 0.8
    said = [line for line in log_messages() if "frames/s" in line]
    assert len(said) == len(intervals)
    for word in (
        "epoch 1",
        "M frames (",
        "objective",
        "accuracy",
        "lr 0.1",
        "left",
        "compute",
        "communication",
        "waiting",
        "data",
    ):
        assert word in said[0]


@pytest.mark.parametrize("topology", [None, "fixed-ring"])
def test_staleness_of_mixed_parameters(tmp_path, log_messages, topology):
    """Staleness with published parameters of two learners, one of which is four times as slow. Each reads the
    other's parameters once for each of its own moves, and once at the beginning."""
    options = mixing_options("adpsgd", topology=topology)

    def rank(comm):
        strategy, master = make_strategy(comm, options), torch.zeros(3)
        strategy.restart(master)
        with Reporter(tmp_path, strategy, 100, 0) as reporter:
            strategy.begin_epoch(1000, 10)
            for _ in range([8, 2][comm.rank]):
                comm.sleep([1.0, 4.1][comm.rank])
                strategy.step(master, 10)
            strategy.step(master, 0)
            reporter.interval(1, 100, [1.0, 5, 10], 0.1)
            reporter.interval(1, 100, [1.0, 5, 10], 0.1)

    run_simulated(2, rank, ClusterNetwork(latency_s=1e-6, bandwidth=1e9))
    fast, slow = [0, 1, 2, 3, 4, 4, 5, 6, 7], [0, 3, 6]  # moves by which the other learner is behind or ahead
    lines, said = metrics(tmp_path), [line for line in log_messages() if "stale" in line]
    if not topology:
        assert not said and all("staleness" not in line for line in lines)
        return
    assert (
        lines[0]["staleness"] == pytest.approx(sum(fast + slow) / 12, abs=1e-4)
        and lines[0]["most_stale"] == 7
    )
    assert (
        "staleness" not in lines[1]
        and len(said) == 1
        and f"stale by {sum(fast + slow) / 12:.2g} moves, at most 7  " in said[0]
    )


def test_waiting_and_communication_times_are_separate(tmp_path):
    """In simulated time: a message takes 0.1 s; one is sent before a mixing, which takes two. Rank 0 also
    waits for rank 1."""

    def rank(comm):
        strategy = make_strategy(comm, mixing_options(period_frames=10))
        strategy.begin_epoch(20, 10)
        with Reporter(tmp_path, strategy, 100, 0) as reporter:
            comm.sleep(0.4 * comm.rank)
            strategy.step(torch.zeros(3), 10)
            reporter.interval(1, 20, [1.0, 5, 10], 0.1)
        return strategy.times

    log_messages = []
    run_simulated(
        2,
        lambda comm: log_messages.append((comm.rank, *rank(comm))),
        ClusterNetwork(latency_s=0.1, bandwidth=1e9),
    )
    (_, waited, mixed), (_, none, mixed_too) = sorted(log_messages)
    assert (waited, none) == pytest.approx((0.4 + 0.1, 0.1)) and (mixed, mixed_too) == pytest.approx(
        (0.2, 0.2)
    )
    [line] = metrics(tmp_path)
    assert (line["waiting"], line["communication"], line["accuracy"]) == pytest.approx(
        (0.3 / 0.7, 0.2 / 0.7, 0.5), abs=1e-4
    )


def test_speed_up_and_slowest_rank(tmp_path, log_messages):
    """Ranks compute for 1, 1.5 and 1 s."""

    def rank(comm):
        now = 0.0
        comm.time = lambda: now
        with Reporter(
            tmp_path, make_strategy(comm, mixing_options()), 300, 0, single_rank_speed=100.0
        ) as reporter:
            now = [1.0, 1.5, 1.0][comm.rank]
            reporter.interval(1, 210, [1.0, 5, 70], 0.1)

    run_threads(3, rank)
    [line] = metrics(tmp_path)
    assert line["slowest_rank"] == 1 and line["slowest_excess"] == 0.5
    assert line["frames_per_s"] == 180 and line["speed_up"] == 1.8
    assert log_messages()[0].endswith("data 0%  1.80 x one rank alone  slowest rank 1 (+50%)")


def test_single_rank_has_no_speed_up(tmp_path, log_messages):
    trained(SoloComm(), tmp_path, store(8))
    assert not {"speed_up", "slowest_rank"} & {
        key for line in metrics(tmp_path) for key in line
    } and "alone" not in " ".join(log_messages())


def test_resumed_job_truncates_metrics_after_checkpoint(tmp_path):
    lines = [json.dumps({"epoch": 1, "frames": frames}) + "\n" for frames in (100, 200, 300)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines) + '{"epoch": 1, "fra')
    with Reporter(tmp_path, make_strategy(SoloComm(), mixing_options()), 1000, 200):
        assert [line["frames"] for line in metrics(tmp_path)] == [100, 200]


def test_skipped_minibatches_are_reported(tmp_path, log_messages):
    job = training(SoloComm(), tmp_path / "job", store(6))
    poisoned(job, (3, 5, 9))
    job.run()
    [sentence] = [line for line in log_messages() if "skipped" in line]
    assert sentence == (
        "minibatches skipped: 3; the gradient of layers.0, layers.2 was not finite, last at step 9 of rank 0"
    )
    assert job.position.skipped == 3 and job.evaluate().accuracy > 0.7
    assert np.isfinite([line["objective"] for line in metrics(tmp_path / "job") if "objective" in line]).all()


def test_too_many_skipped_minibatches_end_training(tmp_path):
    """Skipped minibatches are counted over the whole training, including before an interruption."""
    options = with_options(loop=dict(max_skipped=4))
    job = training(SoloComm(), tmp_path / "job", store(6), options)
    poisoned(job, (2, 3, 4, 22, 50))
    with pytest.raises(
        UserError,
        match="5 minibatches were skipped, more than --max-skipped 4: .* layers.2 was not finite, .* step 50",
    ):
        job.run()
    again = training(SoloComm(), tmp_path / "job", store(6), options)
    poisoned(again, (3,))
    with pytest.raises(UserError, match="[56] minibatches were skipped"):
        again.run()


def test_repeated_harm_by_averaging_gives_warning(tmp_path, log_messages):
    """The ranks' own models report perfect results, so averaging is worse in each of three epochs."""

    def rank(comm):
        job = training(comm, tmp_path / "job", store(6, comm.rank))
        before_consensus = job.strategy.training.before_consensus

        def perfect():
            before_consensus()
            job.heldout_before_consensus = Totals(np.array([1.0, 100.0, 100.0]))

        job.strategy.training.before_consensus = perfect
        job.run()

    run_threads(2, rank)
    said = [
        line
        for line in log_messages()
        if "averaging made the held-out objective worse, from -0.0100 to -" in line
    ]
    assert (
        len(said) == 2
        and "in 3 epochs in a row: ranks drift too far apart; lower --period-frames or --learning-rate"
        in said[1]
    )


def test_event_files_equal_tensorboard(tmp_path, monkeypatch):
    """Byte for byte the output of tensorboard 2.21 for these events at time 1.5."""
    monkeypatch.setattr(time, "time", lambda: 1.5)
    with tensorboard.EventWriter(tmp_path, 300_000) as events:
        events.add(300_000, {"train/objective": -2.25, "rate": 0.5})
    [path] = tmp_path.iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert path.read_bytes() == bytes.fromhex(
        "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
        "11000000000000009d6db52e09000000000000f83f10e0a7123a0208013eefe34f"
        "34000000000000005e33175c09000000000000f83f10e0a7122a250a160a0f747261696e2f6f62"
        "6a65637469766515000010c00a0b0a0472617465150000003ff8be96f5"
    )


def fields(content):
    """(number, value) of the fields of a protocol buffer, decoded by the wire format."""
    place = 0

    def varint():
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(content):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if size is None else size
        yield key >> 3, content[place : place + size]
        place += size


def scalars_in(path):
    """(step, tag, value) of the events in a file."""
    content = path.read_bytes()
    while content:
        [length] = struct.unpack("<Q", content[:8])
        event = dict(fields(content[12 : 12 + length]))
        for _, value in fields(event.get(5, b"")):
            parts = dict(fields(value))
            yield event.get(2, 0), parts[1].decode(), struct.unpack("<f", parts[2])[0]
        content = content[16 + length :]


def test_curves_are_written_as_events(tmp_path):
    trained(SoloComm(), tmp_path / "job", store(6), with_options(loop=dict(log_frames=100)))
    [path] = (tmp_path / "job" / "tensorboard").iterdir()
    curves = {}
    for step, tag, value in scalars_in(path):
        curves.setdefault(tag, []).append((step, pytest.approx(value, rel=1e-6)))
    lines = metrics(tmp_path / "job")
    assert [(line["frames"], line["objective"]) for line in lines if "objective" in line] == curves[
        "train/objective"
    ]
    assert [
        (line["frames"], line["heldout_accuracy"]) for line in lines if "heldout_accuracy" in line
    ] == curves["epoch/heldout_accuracy"]
    assert {
        "train/accuracy",
        "train/rate",
        "time/frames_per_s",
        "time/waiting",
        "epoch/train_objective",
    } <= set(curves)


def test_tensorboard_reads_event_files(tmp_path):
    """Points that an interrupted run wrote after its checkpoint are dropped."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, values in ((0, (1.0, 2.0, 3.0)), (200, (4.0, 5.0))):
        with tensorboard.EventWriter(tmp_path, first) as events:
            for i, value in enumerate(values):
                events.add(first + 100 * i, {"train/objective": value})
    reader = accumulator.EventAccumulator(str(tmp_path))
    reader.Reload()
    points = [(point.step, point.value) for point in reader.Scalars("train/objective")]
    assert points == [(0, 1.0), (100, 2.0), (200, 4.0), (300, 5.0)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


LINE = {
    "epoch": 3,
    "frames": 500,
    "total_frames": 2000,
    "objective": -1.25,
    "accuracy": 0.5,
    "frames_per_s": 15000,
    "left_s": 61,
}


def test_bar_text():
    text = bar(LINE, 120)
    assert text.startswith(
        "[##########"
        + 30 * "-"
        + "]  25%  epoch 3  objective -1.2500  accuracy 0.5000  15000 frames/s  01:01 left"
    )
    assert len(text) == 120 and len(bar(LINE, 50)) == 50
    assert "objective" not in bar({key: value for key, value in LINE.items() if key != "objective"}, 120)


def test_bar_is_shown_only_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr("pyasr.train.job.progress_bar._PERIOD_S", 0.01)
    path, terminal, file = tmp_path / "rbm2" / "metrics.jsonl", Terminal(), io.StringIO()
    with (
        progress_bar(tmp_path, "rbm*/metrics.jsonl", file),
        progress_bar(tmp_path, "rbm*/metrics.jsonl", terminal),
    ):
        assert terminal.getvalue() == ""
        path.parent.mkdir()
        path.write_text(
            json.dumps(LINE)
            + "\n"
            + json.dumps({"epoch": 3, "frames": 600, "accepted": True})
            + "\n"
            + '{"epo'
        )
        deadline = time.monotonic() + 60
        while "25%" not in terminal.getvalue():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)
    assert file.getvalue() == "" and terminal.getvalue().endswith("\r\x1b[K")
    shown = len(terminal.getvalue())
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar(tmp_path, "rbm*/metrics.jsonl"):
        pass
    assert terminal.getvalue()[shown:].endswith("\r\x1b[K")
    assert last_interval(path) == LINE


def test_progress_line_without_terminal(tmp_path, monkeypatch):
    """The line shows the newest of several trainings, or the job's log; on a terminal there is none, since
    the bar shows it."""
    log = tmp_path / "train.log"
    log.write_text("14:02:10 train_rank[0]: reading\n")
    assert progress_line(tmp_path, "rbm*/metrics.jsonl", log) == "reading"
    (tmp_path / "rbm2").mkdir()
    (tmp_path / "rbm2/metrics.jsonl").write_text(json.dumps({**LINE, "rate": 0.008}) + "\n")
    line = "(25%), objective -1.2500, accuracy 0.5000, learning rate 0.008, 15000 frames/s, about 1 min left"
    assert progress_line(tmp_path, "rbm*/metrics.jsonl", log) == f"epoch 3 of rbm2 {line}"
    assert progress_line(tmp_path / "rbm2", "metrics.jsonl", log) == f"epoch 3 {line}"
    monkeypatch.setattr("sys.stderr", Terminal())
    assert progress_line(tmp_path, "rbm*/metrics.jsonl", log) is None


def test_totals_are_averaged():
    totals = Totals(np.array([20.0, 6.0, 10.0]))
    assert totals.objective == -2.0 and totals.accuracy == 0.6 and Totals().objective == 0.0
    assert Totals().text() == "no frames" and Totals().metrics() == {}
