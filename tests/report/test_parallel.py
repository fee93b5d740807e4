"""The page of parallel schemes: numbers come from the runs, sentences say what agrees with what was published, pictures are SVG."""

import json
import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from steps_here import run_here  # noqa: E402

from pyasr.base.errors import UserError  # noqa: E402
from pyasr.report.parallel import agreement, page, pictures  # noqa: E402
from pyasr.report.parallel_runs import find_real_runs, find_runs  # noqa: E402
from pyasr.report.svg import COLOURS, line_plot  # noqa: E402


def make_run(root: Path, name: str, learners: int, loss: float, hours: float = 1.0, parallel: str = "allreduce", minibatch: int = 100,
             period: int = 1000, straggler: float = 1.0, diverged: bool = False, gradient: str = "none") -> None:  # fmt: skip
    """A run of 2 epochs of 360,000 frames: on one learner, which takes a second for 100 of them, an hour each."""
    seconds = 3600 * hours
    content = {
        "epoch_frames": 360_000, "num_parameters": 1000, "epoch_s": None if diverged else seconds, "diverged": "has diverged" if diverged else None,
        "history": [[0.0, -7.0, 0.01], [seconds, -1.1 * loss, 0.2], [2 * seconds, -loss, 0.25]],
        "seconds": {"computing": 1.2 * seconds, "waiting": 0.6 * seconds, "mixing": 0.2 * seconds},
        "virtual": {"num_learners": learners, "straggler": straggler, "compute_s": 1.0, "model_mb": 160.0, "bandwidth_mb": 690.0},
        "training": {"mixing": {"parallel": parallel, "topology": "fixed-ring", "period_frames": period},
                     "learner": {"minibatch": minibatch, "natural_gradient": {"natural_gradient": gradient}}}}  # fmt: skip
    (root / name).mkdir(parents=True)
    (root / name / "simulation.json").write_text(json.dumps(content))
    if diverged:  # before the first line
        return
    lines = [{"frames": 360_000 * k, "drift": 0.01 * k} for k in (1, 2)] + [{"epoch": 2, "heldout_objective": -1.0, "frames": 720_000}]
    (root / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """First cell -> other cells of the first table after a heading."""
    lines = text[text.index(heading) :].split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin : lines.index("", begin)]]
    return {cells[0]: cells[1:] for cells in table}


def test_tables_and_verdicts(tmp_path):
    make_run(tmp_path, "allreduce_1", 1, 2.0)
    for number, loss, hours in ((8, 2.1, 0.2), (16, 2.2, 1 / 9.32)):
        make_run(tmp_path, f"allreduce_{number}", number, loss, hours)
        make_run(tmp_path, f"ring_{number}", number, loss + 0.5 if number == 16 else loss - 0.5, hours, "ring")
    make_run(tmp_path, "bmuf_16", 16, 2.0, parallel="bmuf", diverged=True)
    text = page(find_runs(tmp_path))
    assert rows(text, "**Held-out loss")["bmuf"][2] == "diverged" and rows(text, "**Speed-up**")["bmuf"] == ["-", "-", "-"]
    assert rows(text, "**Speed-up**")["allreduce"] == ["1.00", "5.00", "9.32"]
    assert rows(text, "**Held-out loss")["ring"] == ["-", "1.600 / 25.0", "2.700 / 25.0"]
    assert rows(text, "**Time in comm")["ring"][1] == "10 / 30" and rows(text, "**Drift")["ring"][1] == "0.015"
    assert "* 16 learners, consensus: published error allreduce < ring; ours agrees." in text
    assert "* 8 learners, single learners: published error allreduce < ring; ours disagrees: ring is better than allreduce." in text
    assert "* allreduce, arXiv:1507.01239: ours agrees, at most +0% (8 learners)." in text
    assert "* ring, poster: ours disagrees, at most -27% (16 learners)." in text
    for absent in ("slow learner", "Minibatch\n", "Growing", "natural"):
        assert absent not in text


def test_stragglers_and_batches(tmp_path):
    for factor, hours in ((1, 0.1), (100, 9.0)):
        make_run(tmp_path, f"straggler_gradient_{factor}", 16, 2.0, hours, "gradient", straggler=float(factor))
        make_run(tmp_path, f"straggler_adpsgd_{factor}", 16, 2.0, 0.1 if factor == 1 else 0.11, "adpsgd", straggler=float(factor))
    for minibatch, diverged in ((128, False), (256, True)):
        make_run(tmp_path, f"batch_gradient_{minibatch}", 16, 2.0, parallel="gradient", minibatch=minibatch, diverged=diverged)
        make_run(tmp_path, f"batch_dpsgd_fixed-ring_{minibatch}", 16, 2.0, parallel="dpsgd", minibatch=minibatch)
    text = page(find_runs(tmp_path))
    assert rows(text, "## One slow learner")["gradient"] == ["1.00", "90.00"] and rows(text, "## One slow learner")["adpsgd"] == ["1.00", "1.10"]
    assert "gradient: a learner 100 times as slow makes an epoch 90.0 times as long, published 53.0; agrees that it waits for it." in text
    assert "adpsgd: a learner 100 times as slow makes an epoch 1.1 times as long, published 1.1; agrees that it does not wait for it." in text
    assert rows(text, "## Growing")["gradient"] == ["2.000 / 25.0", "diverged"]
    assert "Diverges: dpsgd fixed-ring at none of these, gradient at 4096; ours agrees" in text
    assert "Minibatches of 2048: published errors are equal within 1.5%; ours agree, within 0.0%." in text
    assert "Minibatches of 4096: published error dpsgd fixed-ring < gradient; ours agrees." in text


def test_periods_minibatches_and_gradients(tmp_path):
    make_run(tmp_path, "allreduce_16", 16, 2.0)
    make_run(tmp_path, "period_10", 16, 2.0)
    make_run(tmp_path, "period_20", 16, 2.2, period=2000)
    make_run(tmp_path, "minibatch_25_16", 16, 2.001, minibatch=25)
    make_run(tmp_path, "natural_16", 16, 1.5, gradient="online")
    text = page(find_runs(tmp_path))
    assert rows(text, "## Minibatches between")["20"] == ["2.200 / 25.0", "1.00", "10", "0.015", "15.8"]
    assert "Averages after so many minibatches: published error 10 < 20; ours agrees." in text
    assert "ours does not show it: the larger minibatch and the smaller minibatch are equal within 0.5%." in text
    assert rows(text, "## Plain and natural")["natural gradient"] == ["1.500 / 25.0"]
    assert "published error natural gradient < SGD; ours agrees." in text


def test_trainings_by_mpi_ranks_stand_beside_those_by_virtual_learners(tmp_path):
    make_run(tmp_path, "allreduce_2", 2, 2.0)
    for name in ("allreduce_2", "butterfly_2", "gradient_4.tmp"):  # there is no such simulation; it is not complete
        directory = tmp_path / "real" / name
        directory.mkdir(parents=True)
        (directory / "final.nnet").touch()
        lines = [{"epoch": 1, "frames": 5}, {"epoch": 1, "heldout_objective": -3.0}, {"heldout_objective": -2.01, "heldout_accuracy": 0.3}]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    real = find_real_runs(tmp_path / "real")
    assert [run.scheme for run in real] == ["allreduce", "butterfly"]
    table = rows(page(find_runs(tmp_path), real), "## MPI ranks")
    assert table["allreduce"] == ["2", "2.0100 / 30.00", "2.0000 / 25.00", "+0.50%"] and "butterfly" not in table


def test_pictures_have_no_more_schemes_than_colours(tmp_path):
    for number in range(12):
        make_run(tmp_path, f"scheme{number}_4", 4, 2.0, parallel=f"scheme{number}")
    make_run(tmp_path, "asgd_4", 4, 2.0, parallel="asgd")
    drawn = pictures(find_runs(tmp_path))["speed_up"]
    assert "asgd" in drawn and sum(f"scheme{number}<" in drawn for number in range(12)) == len(COLOURS) - 1


def test_order_of_errors():
    assert agreement("x", {"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 2.0}) == ""
    assert agreement("x", {"a": 1.0, "b": 2.0}, {"a": 3.0, "b": math.inf}).endswith("ours agrees.")
    assert agreement("x", {"a": 1.0, "b": 1.01}, {"a": 3.0, "b": 2.99}) == "x: published errors are equal within 1.5%; ours agree, within 0.3%."
    assert agreement("x", {"a": 1.0, "b": 1.01}, {"a": 3.0, "b": 2.0}).endswith("ours disagree, within 50.0%.")


def test_the_program_writes_page_and_pictures(tmp_path):
    make_run(tmp_path / "exp", "allreduce_1", 1, 2.0)
    make_run(tmp_path / "exp", "bmuf & co_4", 4, 2.0, 0.3, "bmuf & co")
    run_here("collect_parallel.py", tmp_path / "exp", tmp_path / "page" / "RESULTS.md", folder="utils")
    linked = re.findall(r"\((\w+\.svg)\)", (tmp_path / "page" / "RESULTS.md").read_text())
    assert sorted(linked) == ["drift.svg", "loss.svg", "speed_up.svg"]
    for name in linked:
        ElementTree.parse(tmp_path / "page" / name)
    with pytest.raises(UserError, match="no simulation in it"):
        find_runs(tmp_path / "page")


def test_lines_go_through_their_points():
    """Positions are linear in the numbers, and marks lie where their labels say."""
    drawn = ElementTree.fromstring(line_plot({"one": [(0, 10), (5, 20), (10, 30)], "two": [(2, 12)]}, "t", "x", "y"))
    one = [tuple(map(float, point.split(","))) for point in drawn.findall("{*}polyline")[0].get("points").split()]
    assert one[1] == pytest.approx(((one[0][0] + one[2][0]) / 2, (one[0][1] + one[2][1]) / 2), abs=0.1)
    labels = {element.text: (float(element.get("x")), float(element.get("y")) - 4) for element in drawn.findall("{*}text")}
    assert labels["20"][1] == pytest.approx(one[1][1], abs=0.1)
    logarithmic = ElementTree.fromstring(line_plot({"one": [(1, 1), (4, 4), (16, 16)]}, "t", "x", "y", log2=True))
    points = [tuple(map(float, point.split(","))) for point in logarithmic.find("{*}polyline").get("points").split()]
    assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.1)
