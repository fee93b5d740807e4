"""utils/show_progress.py: finished outputs, and the progress of unfinished ones."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.base.outputs import lock
from pyasr.base.outputs.output import STARTED, stage_output
from pyasr.base.outputs.run_times import RUNS
from pyasr.cluster.runner.status import JobStatus, write_status
from pyasr.report.curves import spark

INTERVAL = {
    "epoch": 2,
    "frames": 400,
    "total_frames": 1000,
    "rate": 0.1,
    "objective": -1.5,
    "accuracy": 0.6,
    "frames_per_s": 50,
    "left_s": 75,
}
SVG = "{http://www.w3.org/2000/svg}"
EPOCHS = [{"epoch": number, "frames": 300 * number, "heldout_objective": -2.0 / number} for number in (1, 2)]


def write_metrics(directory: Path, lines: list[dict]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_finished_and_running_outputs(tmp_path, monkeypatch, capsys):
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
            write_status(
                scratch / f"log/train.{job}.log",
                JobStatus(job, status, None, False, "here", 0.0, 1.0, 1.0, "true"),
            )
        (scratch / "log/train.3.log").touch()
        raise KeyboardInterrupt
    runs = scratch / RUNS
    runs.write_text(
        runs.read_text().replace(f" {runs.read_text().split()[3]} ", f" {time.time() - 7320:.3f} ")
    )
    run_here("show_progress.py", tmp_path / "exp", folder="utils")
    mono, dnn, lstm, bar = capsys.readouterr().out.splitlines()
    assert mono == f"{tmp_path}/exp/mono: done {time.strftime('%Y-%m-%d %H:%M', time.localtime(1e9))}, in 0 s"
    assert dnn.startswith(f"{tmp_path}/exp/dnn: done ") and dnn.endswith(
        ", in 0 s, epoch 2: objective of held-out frames -1.0000"
    )
    assert lstm.startswith(f"{tmp_path}/exp/lstm: begun ") and lstm.endswith(
        ", stopped by SIGINT 2 h 02 min ago; 2 of 3 started jobs have ended, 1 of them failed, see "
        f"{tmp_path}/exp/lstm.tmp/log/train.2.log"
    )
    assert bar.rstrip().endswith(" 40%  epoch 2  objective -1.5000  accuracy 0.6000  50 frames/s")


def courses(training: int) -> list[dict]:
    """Metrics of a training: 40 intervals with recognisable values, and two epochs."""
    intervals = [
        {**INTERVAL, "frames": 1000 * number, "objective": -training - 1 / number, "drift": 0.01 * number}
        for number in range(1, 41)
    ]
    return [*intervals[:20], {**EPOCHS[0], "rate": 0.5}, *intervals[20:], {**EPOCHS[1], "rate": 0.5}]


def test_curves_of_a_training(tmp_path, capsys):
    """Curves are shown for a given output and for unfinished outputs, but not for all finished ones."""
    with stage_output(tmp_path / "exp/dnn", {}, []) as scratch:
        write_metrics(scratch, courses(1))
    run_here("show_progress.py", tmp_path / "exp/dnn", folder="utils")
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"objective                 -2 {spark([-1 - 1 / number for number in range(1, 41)])} -1.025",
        "held-out objective        -2 ▁█ -1",
        f"drift                   0.01 {spark(list(range(40)))} 0.4",
        f"learning rate            0.1 {24 * '▁'} 0.1",
    ]
    run_here("show_progress.py", tmp_path / "exp", folder="utils")
    assert len(capsys.readouterr().out.splitlines()) == 1
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "exp/lstm", {}, []) as scratch:
        write_metrics(scratch, courses(1)[:30])
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path / "exp", folder="utils")
    assert capsys.readouterr().out.splitlines()[3].startswith("objective                 -2 ▁")


def test_spark_lines_average_parts():
    assert spark([0.0, 7.0, 3.5]) == "▁█▅" and spark([3.0, 3.0]) == "▁▁"
    assert spark([*4 * [1.0], *4 * [9.0], *4 * [5.0]], 3) == "▁█▅" and len(spark(list(range(25)))) == 24


def test_diverged_training_is_shown(tmp_path, capsys):
    """The objective first becomes infinite, then NaN; the other curves are shown as usual."""
    lines = courses(1)[:24]
    lines[-3:] = [{**line, "objective": value} for line, value in zip(lines[-3:], (-np.inf, np.nan, np.nan))]
    with stage_output(tmp_path / "exp/sound", {}, []) as scratch:
        write_metrics(scratch, courses(1))
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "exp/dnn", {}, []) as scratch:
        write_metrics(scratch, [*lines, {**EPOCHS[1], "heldout_objective": np.nan}, lines[-1]])
        raise KeyboardInterrupt
    run_here("show_progress.py", "--svg", tmp_path / "x.svg", tmp_path / "exp", folder="utils")
    shown = capsys.readouterr().out.splitlines()
    assert "epoch 2  objective nan" in shown[2]
    assert (
        shown[3]
        == f"objective                 -2 {spark([-1 - 1 / number for number in range(1, 21)])}×××× nan"
    )
    assert shown[4] == "held-out objective        -2 ▁× nan" and shown[5].startswith(
        "drift                   0.01 ▁"
    )
    plots = ElementTree.parse(tmp_path / "x.svg").getroot().findall(f"{SVG}svg")
    names = [
        [text.text for text in plot.findall(f"{SVG}text") if text.text and text.text.startswith("exp/")]
        for plot in plots
    ]
    assert names == [*2 * [["exp/sound", "exp/dnn (diverged)"]], *2 * [["exp/sound", "exp/dnn"]]]
    assert [len(plot.findall(f"{SVG}circle")) for plot in plots] == [60, 3, 64, 64]


def test_training_without_finite_values(tmp_path, capsys):
    with stage_output(tmp_path / "exp/dnn", {}, []) as scratch:
        write_metrics(scratch, [{**INTERVAL, "objective": np.nan}, {**INTERVAL, "objective": np.inf}])
    run_here("show_progress.py", "--svg", tmp_path / "x.svg", tmp_path / "exp/dnn", folder="utils")
    assert capsys.readouterr().out.splitlines()[1] == "objective                nan ×× inf"
    assert (
        ElementTree.parse(tmp_path / "x.svg").getroot().findall(f"{SVG}svg/{SVG}text")[0].text
        == "learning rate"
    )


def test_picture_of_all_trainings(tmp_path):
    """One plot per kind of curve, with a line for each training; also for RBMs, which have other metrics."""
    for name, lines in (
        ("a", courses(1)),
        ("b", courses(2)),
        ("rbm", [{**INTERVAL, "reconstruction_error": 0.5}]),
    ):
        with stage_output(tmp_path / "exp" / name, {}, []) as scratch:
            write_metrics(
                scratch,
                [
                    {key: value for key, value in line.items() if name != "rbm" or key != "objective"}
                    for line in lines
                ],
            )
    run_here("show_progress.py", "--svg", tmp_path / "new/x.svg", tmp_path / "exp", folder="utils")
    root = ElementTree.parse(tmp_path / "new/x.svg").getroot()
    plots = root.findall(f"{SVG}svg")
    assert [plot.findall(f"{SVG}text")[0].text for plot in plots] == [
        "objective",
        "held-out objective",
        "drift",
        "learning rate",
    ]
    assert [plot.get("y") for plot in plots] == ["0", "420", "840", "1260"] and root.get(
        "viewBox"
    ) == "0 0 760 1680"
    names = [
        [text.text for text in plot.findall(f"{SVG}text") if text.text and text.text.startswith("exp/")]
        for plot in plots
    ]
    assert names == [
        ["exp/a", "exp/b", "exp/rbm"],
        ["exp/a", "exp/b"],
        ["exp/a", "exp/b"],
        ["exp/a", "exp/b", "exp/rbm"],
    ]
    assert [len(plot.findall(f"{SVG}circle")) for plot in plots] == [81, 4, 80, 81]
    run_here("show_progress.py", "--svg", tmp_path / "new/x.svg", tmp_path / "exp", folder="utils")


def test_impossible_pictures_are_refused(tmp_path):
    with stage_output(tmp_path / "exp/mono", {}, []):
        pass
    with pytest.raises(UserError, match="exp: no training to plot; give a directory that contains one"):
        run_here("show_progress.py", "--svg", tmp_path / "x.svg", tmp_path / "exp", folder="utils")
    for number in range(21):
        with stage_output(tmp_path / f"exp/dnn{number}", {}, []) as scratch:
            write_metrics(scratch, [INTERVAL])
    with pytest.raises(
        UserError,
        match="exp: 21 trainings, but a figure shows at most 20; give a directory with fewer trainings",
    ):
        run_here("show_progress.py", "--svg", tmp_path / "x.svg", tmp_path / "exp", folder="utils")
    (tmp_path / "x.svg").write_text("<svg>mine</svg>")
    with pytest.raises(
        UserError,
        match=(
            "x.svg exists and is not a figure drawn by this program; give another name, or --force to "
            "replace it"
        ),
    ):
        run_here("show_progress.py", "--svg", tmp_path / "x.svg", tmp_path / "exp/dnn1", folder="utils")


def test_first_failed_job_is_named(tmp_path, capsys):
    """Jobs that were stopped because of a failed one are not named. Logs of requeued jobs do not count as
    further jobs."""
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "x", {}, []) as scratch:
        for name in ("a.1", "a.2", "a.3", "a.3.requeued-1", "train", "train.1"):
            (scratch / f"log/{name}.log").touch()
        for job, stopped, end in ((1, True, 2.0), (2, False, 1.9), (3, False, 1.5)):
            write_status(
                scratch / f"log/a.{job}.log",
                JobStatus(job, 143 if stopped else 1, None, stopped, "here", 0.0, end, 1.0, "true"),
            )
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path, folder="utils")
    assert (
        f"2 of 4 started jobs have ended, 2 of them failed, see {scratch}/log/a.3.log, 1 was stopped\n"
        in capsys.readouterr().out
    )


STEP = """
import signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from pyasr.base.errors import UserError
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import output_of, run_step

@dataclass(frozen=True)
class Step:
    out: Path = argument("output")

def main(options):
    with output_of(options, options.out, []) as scratch:
        (scratch / "metrics.jsonl").write_text('{INTERVAL}\\n')
        if options.out.name == "fails":
            raise UserError("data/train: no frames; make its features first")
        print("begun", flush=True)
        time.sleep(300)

run_step(Step, main, "")
"""


def hear_signals() -> None:
    """Enable signals in a process, also if the tests run in the background and ignore them."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    "number, expected_text, continues",
    [
        (None, r"in progress, last written to \d+ s ago", True),
        (signal.SIGTERM, r"stopped by SIGTERM \d+ s ago", False),
        (signal.SIGINT, r"stopped by SIGINT \d+ s ago", False),
        (signal.SIGHUP, r"stopped by SIGHUP \d+ s ago", False),
        (
            signal.SIGKILL,
            r"was killed without a record \(kill -9, out of memory, or a crash\), last written to \d+ s ago",
            False,
        ),
    ],
)
def test_state_of_a_step(number, expected_text, continues, tmp_path, capsys, monkeypatch):
    """The remaining time is shown only for steps that continue."""
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "step.py").write_text(STEP.replace("{INTERVAL}", json.dumps(INTERVAL)))
    with subprocess.Popen(
        [sys.executable, "step.py", "exp/x"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=hear_signals,
    ) as step:
        while step.stdout.readline() != "begun\n":
            assert step.poll() is None
        if number:
            step.send_signal(number)
            assert step.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
        run_here("show_progress.py", tmp_path / "exp", folder="utils")
        step.kill()
    line, bar = capsys.readouterr().out.splitlines()[:2]
    assert re.fullmatch(rf"{tmp_path}/exp/x: begun \S+ \S+, {expected_text}", line), line
    assert (" left" in bar) == continues and " 40%  epoch 2" in bar


def test_failed_step_is_shown_with_its_error(tmp_path, capsys):
    (tmp_path / "step.py").write_text(STEP.replace("{INTERVAL}", json.dumps(INTERVAL)))
    subprocess.run([sys.executable, "step.py", "exp/fails"], cwd=tmp_path, capture_output=True, timeout=60)
    run_here("show_progress.py", tmp_path / "exp", folder="utils")
    assert re.search(
        r"exp/fails: begun \S+ \S+, failed \d+ s ago: data/train: no frames; make its features first\n",
        capsys.readouterr().out,
    )


@pytest.mark.parametrize(
    "runs, message",
    [
        (
            "1000.000 on node7",
            "in progress on node7 or killed there (not visible from this machine), last written to ",
        ),
        ("1000.000", "was killed without a record "),
        ("1000.000 1030.000\n", "stopped "),
        (
            "1000.000 on node7 1030.000\n2000.000 on node7 2030.000 stopped by SIGTERM\n",
            "stopped by SIGTERM ",
        ),
    ],
)
def test_runs_on_other_hosts_and_of_earlier_versions(runs, message, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "x", {}, []) as scratch:
        raise KeyboardInterrupt
    (scratch / RUNS).write_text(runs)
    run_here("show_progress.py", tmp_path, folder="utils")
    assert f", {message}" in capsys.readouterr().out


def test_truncated_metrics_of_killed_run(tmp_path, capsys):
    """The truncated line is kept when the training continues."""
    cut = json.dumps(INTERVAL)[:30] + "\n"
    for name, last in (("cut", [cut]), ("whole", [])):
        with stage_output(tmp_path / name, {}, []) as scratch:
            (scratch / "metrics.jsonl").write_text(
                "".join([json.dumps(EPOCHS[0]) + "\n", cut, json.dumps(EPOCHS[1]) + "\n", *last])
            )
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "x", {}, []) as scratch:
        (scratch / "metrics.jsonl").write_text(json.dumps(INTERVAL) + "\n" + cut)
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path, folder="utils")
    shown = capsys.readouterr().out
    assert (
        shown.count("epoch 2: objective of held-out frames -1.0000") == 2
        and " 40%  epoch 2  objective -1.5000" in shown
    )


def test_kept_copies_of_outputs_are_not_shown(tmp_path, capsys):
    for name in ("dnn", ".dnn.old"):
        with stage_output(tmp_path / name, {}, []):
            pass
    (tmp_path / "dnn" / STARTED).touch()
    run_here("show_progress.py", tmp_path, folder="utils")
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [f"{tmp_path}/dnn"]


def test_output_finished_meanwhile_is_shown(tmp_path, capsys, monkeypatch):
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "mono", {}, [], resume=True):
        raise KeyboardInterrupt
    (tmp_path / "mono.tmp" / RUNS).unlink()
    is_held = lock.is_held

    def finished_before(scratch):
        with stage_output(tmp_path / "mono", {}, [], resume=True):
            pass
        return is_held(scratch)

    monkeypatch.setattr(lock, "is_held", finished_before)
    run_here("show_progress.py", tmp_path, folder="utils")
    assert f"{tmp_path}/mono: done " in capsys.readouterr().out


def test_unfinished_output_has_its_final_name(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), stage_output(tmp_path / "exp/dnn.v2", {}, []):
        raise KeyboardInterrupt
    run_here("show_progress.py", tmp_path / "exp/dnn.v2", folder="utils")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{tmp_path}/exp/dnn.v2: begun ") and ", stopped by SIGINT " in line


def test_nothing_to_show_is_reported(tmp_path):
    with pytest.raises(UserError, match="no finished or unfinished output; give the exp/ of a recipe"):
        run_here("show_progress.py", tmp_path, folder="utils")
    with pytest.raises(UserError, match="none: no such directory"):
        run_here("show_progress.py", tmp_path / "none", folder="utils")
