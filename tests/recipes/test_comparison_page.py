"""The page of parallel schemes: numbers come from the recorded trainings, missing ones are marked, figures
are SVG."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[2]))
from comparison.comparison_page import page  # noqa: E402
from comparison.experiment_pictures import read_curves  # noqa: E402
from comparison.experiments import Experiments, kept_cells, read_planned  # noqa: E402
from comparison.kept_runs import KeptRun, write_kept  # noqa: E402
from steps_here import run_here  # noqa: E402
from test_claims import RUN  # noqa: E402

from pyasr.base.errors import UserError  # noqa: E402
from pyasr.report.svg import line_plot  # noqa: E402

STUCK = "stuck at the priors"
LOCAL = "egs/amazon_queen/s5/local"


def run(name: str, loss: float | None = 3.0, **changes) -> KeptRun:
    """A training with one seed. A loss above 6 means that the network does not learn."""
    verdict = "not a number" if loss is None else "learns" if loss < 6 else STUCK
    return replace(RUN, name=f"{name}/seed1", loss=loss, verdict=verdict, **changes)


def written(directory: Path, planned: Sequence[str] = (), **works: list[KeptRun]) -> str:
    """The page of these trainings, WORK=[...]."""
    for work, runs in works.items():
        write_kept(directory / f"{work}.jsonl", runs)
    return page(Experiments([], kept_cells(directory), [f"{name}/seed1" for name in planned]))


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """{first cell: other cells} of the first table after a heading."""
    lines = text[text.index(heading) :].split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[begin : lines.index("", begin)]
    ]
    return {cells[0]: cells[1:] for cells in table}


def test_planned_cells_are_missing_until_trained(tmp_path):
    planned = [f"ibm/batch/{scheme}/{batch}" for scheme in ("d1d", "gradient") for batch in (64, 8)] + [
        "povey/rates/sgd/1"
    ]
    text = written(
        tmp_path, planned, ibm=[run("batch/d1d/8"), run("batch/gradient/64", 2.5), run("batch/other/16", 2.0)]
    )
    assert rows(text, "**Held-out loss**")[""] == ["8", "16", "64"]
    assert rows(text, "**Held-out loss**")["d1d"] == ["3.000", "", "missing"]
    assert rows(text, "**Held-out loss**")["gradient"] == ["missing", "", "2.500"]
    assert rows(text, "**Held-out loss**")["other"] == ["", "2.000", ""]
    assert "3 trainings have results; 3 of 5 planned trainings are missing." in text
    overview = rows(text, "## Trainings")
    assert overview["ibm"] == ["batch", "5", "3", "4", "`local/experiments/ibm.sh`"] and overview["povey"][
        :4
    ] == ["rates", "1", "0", "1"]
    assert "## povey: rates" not in text and "**Test WER" not in text


def test_stability_limits_of_schemes(tmp_path):
    ibm = [
        run("batch/d1d/2048", 2.0),
        run("batch/d1d/4096", 2.5),
        run("batch/d1d/8192", 6.5),
        run("batch/gradient/8192", None),
        run("batch/one/256"),
        run("rate/d1d/1-4", 2.25),
        run("rate/gradient/1-4", 6.5),
        run("rate/gradient/4", 7.0),
    ]
    planned = ["ibm/batch/gradient/2048", "ibm/batch/adpsgd/8192", "ibm/batch/adpsgd/4096"]
    borne = rows(written(tmp_path, planned, ibm=ibm), "## Limits of batch and learning rate")
    assert borne["d1d"] == ["4096 (2.500)", "8192", "1/4 (2.250)", "1"]
    assert borne["gradient"] == ["none", "8192", "none", "1/4"]
    assert borne["adpsgd"] == ["missing"] * 2 + [""] * 2 and "one" not in borne
    assert "Limits of batch and learning rate" not in written(tmp_path / "other", povey=[run("rates/sgd/1")])


def test_loss_threshold_missed_by_intermediate_batch(tmp_path):
    """The limit is the largest batch that learns, and larger ones that fail."""
    borne = rows(
        written(tmp_path, ibm=[run("batch/a/1", 6.5), run("batch/a/2", 2.0), run("batch/a/4", 2.5)]),
        "## Limits of batch and learning rate",
    )
    assert borne["a"][:2] == ["4 (2.500)", "none"]


def test_time_to_frame_accuracy_with_efficiencies(tmp_path):
    """One shard reaches 40 % after 2 hours, linearly. Four shards are three times as fast, and 16 never reach
    it."""

    def course(hours: float, end: float) -> tuple:
        return ((0.0, 7.0, 0.0), (3600 * hours, 3.0, end))

    runs = [
        run(f"shards/cnn/{num}", accuracy=end, curve=course(hours, end))
        for num, hours, end in ((1, 2, 40.0), (4, 2 / 3, 40.0), (16, 1, 30.0))
    ]
    text = written(tmp_path, ["chan/shards/cnn/2"], chan=runs)
    assert rows(text, "**Virtual hours until frame accuracy is 90 %")["cnn, 36.0 %"] == [
        "1.8 (100)",
        "missing",
        "0.6 (75)",
        "never",
    ]
    assert "Virtual hours until" not in written(tmp_path / "other", chan=[run("many/alone/8")])


def test_row_with_diverged_first_training_has_no_time_to_accuracy(tmp_path):
    diverged = run("shards/cnn/1", None, accuracy=None, curve=((0.0, 7.0, 0.0),))
    course = ((0.0, 7.0, 0.0), (3600.0, 3.0, 40.0))
    others = [run(f"shards/{row}", accuracy=40.0, curve=course) for row in ("cnn/4", "dnn/1", "dnn/4")]
    text = written(tmp_path, chan=[diverged, *others])
    timed = rows(text, "**Virtual hours until frame accuracy is 90 %")
    assert list(timed)[2:] == ["dnn, 36.0 %"] and rows(text, "**Outcome**")["cnn"][0] == "not a number"


def test_failed_networks_are_labelled(tmp_path):
    text = written(tmp_path, ibm=[run("batch/a/1"), run("batch/a/2", 6.5), run("batch/a/4", None)])
    assert rows(text, "**Outcome**")["a"] == ["learns", STUCK, "not a number"]
    assert rows(text, "**Held-out loss**")["a"] == ["3.000", "6.500", "-"]


def test_single_learner_models_have_separate_tables(tmp_path):
    text = written(tmp_path, su_chen=[run("poster/ring/16", wer=20.0, learner_wer=30.0, learner_loss=2.4)])
    assert rows(text, "**Test WER % of the model of one learner**")["ring"] == ["30.0"]
    assert rows(text, "**Loss of the model of one learner**")["ring"] == ["2.400"] and rows(
        text, "**Test WER %**"
    )["ring"] == ["20.0"]


@pytest.mark.parametrize("line", ["ibm/batch/a/8", "batch/a/8/seed1", "ibm/batch/a/8/seed", ""])
def test_invalid_plan_lines_are_refused(line, tmp_path):
    (tmp_path / "planned").write_text(f"ibm/batch/a/8/seed1\n{line}\n")
    with pytest.raises(UserError, match="planned:2: "):
        read_planned(tmp_path / "planned")


def test_program_writes_page_and_pictures(tmp_path):
    curve = tuple((100.0 * k, 4.0 - k, 20.0) for k in range(3))
    write_kept(
        tmp_path / "ibm.jsonl", [run("batch/a & b/1", curve=curve), run("batch/a & b/2", 2.5, curve=curve)]
    )
    (tmp_path / "planned").write_text("ibm/batch/c/1/seed1\n")
    run_here(
        "collect_parallel.py",
        "--planned",
        tmp_path / "planned",
        tmp_path,
        tmp_path / "page" / "RESULTS.md",
        folder=LOCAL,
    )
    text = (tmp_path / "page" / "RESULTS.md").read_text()
    linked = re.findall(r"\((\w+\.svg)\)", text)
    assert (
        sorted(linked) == ["ibm_batch_loss.svg", "ibm_batch_time.svg"]
        and "| c " in text
        and "* machine: EPYC" in text
    )
    for name in linked:
        ElementTree.parse(tmp_path / "page" / name)
    with pytest.raises(UserError, match="no kept trainings"):
        run_here("collect_parallel.py", tmp_path / "page", tmp_path / "RESULTS.md", folder=LOCAL)


def test_overview_has_named_curves(tmp_path):
    """Curves of the file, without cells that have no training."""
    curve = ((0, 7.0, 0.0), (3600, 3.0, 0.0), (7200, 2.0, 0.0))
    write_kept(tmp_path / "schemes.jsonl", [replace(run(f"every/{name}/16"), curve=curve) for name in "ab"])
    curves = tmp_path / "curves.tsv"
    curves.write_text("scheme A\tschemes/every/a/16\nscheme C\tschemes/every/c/16\n")
    run_here("collect_parallel.py", "--curves", curves, tmp_path, tmp_path / "page.md", folder=LOCAL)
    texts = [e.text for e in ElementTree.parse(tmp_path / "overview.svg").iter() if e.tag.endswith("text")]
    assert "scheme A" in texts and "scheme C" not in texts and "hours" in texts


@pytest.mark.parametrize("line", ["schemes/every/a/16", "A\tschemes/every/a", "A\tschemes/every/a/16\tB"])
def test_invalid_curve_lines_are_refused(line, tmp_path):
    (tmp_path / "curves.tsv").write_text(f"A\tschemes/every/a/16\n{line}\n")
    with pytest.raises(UserError, match="curves.tsv:2: .*expected LABEL, a tab and WORK/TABLE/ROW/COLUMN"):
        read_curves(tmp_path / "curves.tsv")


def test_curves_pass_through_their_points():
    """Positions are linear in the numbers, and tick marks are at the positions of their labels."""
    drawn = ElementTree.fromstring(
        line_plot({"one": [(0, 10), (5, 20), (10, 30)], "two": [(2, 12)]}, "t", "x", "y")
    )
    one = [
        tuple(map(float, point.split(","))) for point in drawn.findall("{*}polyline")[0].get("points").split()
    ]
    assert one[1] == pytest.approx(((one[0][0] + one[2][0]) / 2, (one[0][1] + one[2][1]) / 2), abs=0.1)
    labels = {
        element.text: (float(element.get("x")), float(element.get("y")) - 4)
        for element in drawn.findall("{*}text")
    }
    assert labels["20"][1] == pytest.approx(one[1][1], abs=0.1)
    logarithmic = ElementTree.fromstring(
        line_plot({"one": [(1, 1), (4, 4), (16, 16)]}, "t", "x", "y", log2=True)
    )
    points = [
        tuple(map(float, point.split(","))) for point in logarithmic.find("{*}polyline").get("points").split()
    ]
    assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.1)
