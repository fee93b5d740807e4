"""utils/show_progress.py: what is done, what is being made and how far it is."""

import json
import os
import time
from pathlib import Path

import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.base.output import STARTED, stage_output
from pyasr.cluster.status import JobStatus, write_status

INTERVAL = {"epoch": 2, "frames": 400, "total_frames": 1000, "rate": 0.1, "objective": -1.5, "accuracy": 0.6, "frames_per_s": 50, "left_s": 75}
EPOCHS = [{"epoch": number, "frames": 300 * number, "heldout_objective": -2.0 / number} for number in (1, 2)]


def write_metrics(directory: Path, lines: list[dict]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_done_and_under_way(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("exp/mono", "exp/dnn"):
        with stage_output(tmp_path / name, {}, []) as scratch:
            if name == "exp/dnn":
                write_metrics(scratch, EPOCHS)
    os.utime(tmp_path / "exp/mono/.done.json", (1e9, 1e9))
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "exp/lstm", {}, []) as scratch:
        write_metrics(scratch, [*EPOCHS[:1], INTERVAL])
        for job, status in ((1, 0), (2, 1)):
            (scratch / f"log/train.{job}.log").touch()
            write_status(scratch / f"log/train.{job}.log", JobStatus(job, status, None, False, "here", 0.0, 1.0, 1.0, "true"))
        (scratch / "log/train.3.log").touch()
        raise KeyboardInterrupt
    for path in (scratch, *scratch.rglob("*")):
        os.utime(path, (time.time() - 7320,) * 2)
    run_here("show_progress.py", tmp_path / "exp", folder="utils")
    mono, dnn, lstm, bar = capsys.readouterr().out.splitlines()
    assert mono == f"{tmp_path}/exp/mono: done {time.strftime('%Y-%m-%d %H:%M', time.localtime(1e9))}, in 0 s"
    assert dnn.startswith(f"{tmp_path}/exp/dnn: done ") and dnn.endswith(", in 0 s, epoch 2: objective of held-out frames -1.0000")
    assert lstm.startswith(f"{tmp_path}/exp/lstm: begun ") and lstm.endswith(
        f", last written to 2 h 02 min ago; of 3 jobs that have begun 2 have ended, 1 of them failed, see {tmp_path}/exp/lstm.tmp/log/train.2.log")
    assert " 40%  epoch 2  objective -1.5000  accuracy 0.6000  50 frames/s  01:15 left" in bar


def test_the_job_that_failed_first_is_named(tmp_path, capsys):
    """Not one that was stopped because of it. What was kept of jobs that were begun again are no further jobs."""
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "x", {}, []) as scratch:
        for name in ("a.1", "a.2", "a.3", "a.3.requeued-1", "train", "train.1"):
            (scratch / f"log/{name}.log").touch()
        for job, stopped, end in ((1, True, 2.0), (2, False, 1.9), (3, False, 1.5)):
            write_status(scratch / f"log/a.{job}.log", JobStatus(job, 143 if stopped else 1, None, stopped, "here", 0.0, end, 1.0, "true"))
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path, folder="utils")
    assert f"of 4 jobs that have begun 3 have ended, 2 of them failed, see {scratch}/log/a.3.log" in capsys.readouterr().out


def test_metrics_of_a_run_that_was_killed_while_it_wrote(tmp_path, capsys):
    """The cut-off line stays where it is when the training goes on."""
    cut = json.dumps(INTERVAL)[:30] + "\n"
    for name, last in (("cut", [cut]), ("whole", [])):
        with stage_output(tmp_path / name, {}, []) as scratch:
            (scratch / "metrics.jsonl").write_text("".join([json.dumps(EPOCHS[0]) + "\n", cut, json.dumps(EPOCHS[1]) + "\n", *last]))
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "x", {}, []) as scratch:
        (scratch / "metrics.jsonl").write_text(json.dumps(INTERVAL) + "\n" + cut)
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path, folder="utils")
    shown = capsys.readouterr().out
    assert shown.count("epoch 2: objective of held-out frames -1.0000") == 2 and " 40%  epoch 2  objective -1.5000" in shown


def test_what_was_kept_of_an_output_is_not_shown(tmp_path, capsys):
    for name in ("dnn", ".dnn.old"):
        with stage_output(tmp_path / name, {}, []):
            pass
    (tmp_path / "dnn" / STARTED).touch()
    run_here("show_progress.py", tmp_path, folder="utils")
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [f"{tmp_path}/dnn"]


def test_nothing_to_show(tmp_path):
    with pytest.raises(UserError, match="no step has made anything here"):
        run_here("show_progress.py", tmp_path, folder="utils")
    with pytest.raises(UserError, match="none: no such directory"):
        run_here("show_progress.py", tmp_path / "none", folder="utils")
