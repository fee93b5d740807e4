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
from pyasr.report.parallel import page  # noqa: E402
from pyasr.report.parallel_pictures import pictures  # noqa: E402
from pyasr.report.parallel_runs import find_real_runs, find_runs  # noqa: E402
from pyasr.report.svg import COLOURS, line_plot  # noqa: E402
from pyasr.report.verdicts import agreement, chance, learns_longer, losses  # noqa: E402


def make_run(root: Path, name: str, learners: int, loss: float, hours: float = 1.0, parallel: str = "allreduce", minibatch: int = 100,
             period: int = 1000, straggler: float = 1.0, diverged: bool = False, gradient: str = "none", seed: int = 777,
             errors: list[int] | None = None, verdict: str | None = None, errors_of_learner: list[int] | None = None,
             scheme: dict | None = None) -> None:  # fmt: skip
    """A run of 2 epochs of 360,000 frames: on one learner, which takes a second for 100 of them, an hour each.

    errors  of each utterance of the test set, which have ten words
    errors_of_learner  the same of the model of one learner, whose loss is greater by a fifth
    scheme  options of the scheme, as recorded by the present version
    """
    seconds = 3600 * hours
    content = {
        "epoch_frames": 360_000, "num_parameters": 1000, "epoch_s": None if diverged else seconds, "diverged": "has diverged" if diverged else None,
        "history": [[0.0, -7.0, 0.01], [seconds, -1.1 * loss, 0.2], [2 * seconds, -loss, 0.25]],
        "seconds": {"computing": 1.2 * seconds, "waiting": 0.6 * seconds, "mixing": 0.2 * seconds},
        "virtual": {"num_learners": learners, "straggler": straggler, "compute_s": 1.0, "model_mb": 160.0, "bandwidth_mb": 690.0,
                    "learners_per_host": 4},
        "training": {"loop": {"train_seed": seed},
                     "mixing": {"parallel": parallel, "topology": "fixed-ring", "period_frames": period} | ({"scheme": scheme} if scheme else {}),
                     "learner": {"minibatch": minibatch, "natural_gradient": {"natural_gradient": gradient}}}}  # fmt: skip
    content |= {"verdict": verdict} if verdict else {}
    if errors_of_learner is not None:
        content["learner"] = [-1.2 * loss, 0.2]
        write_scores(root / name / "learner" / "decode_test", errors_of_learner)
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "simulation.json").write_text(json.dumps(content))
    if errors is not None:
        write_scores(root / name / "decode_test", errors)
    if diverged:  # before the first line
        return
    lines = [{"frames": 360_000 * k, "drift": 0.01 * k} for k in (1, 2)]
    lines += [{"epoch": k, "heldout_objective": -1.0, "frames": 360_000 * k, "consensus_distance": 0.1 / k} for k in (1, 2)]
    (root / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_scores(decode_dir: Path, errors: list[int]) -> None:
    scoring = decode_dir / "scoring"
    scoring.mkdir(parents=True)
    entry = {"wer": 10 * sum(errors) / len(errors)}
    (scoring / "summary.json").write_text(json.dumps({"data": "data/test", "signature": "wer", "chosen": entry, "best": entry}))
    (scoring / "per_utt").write_text("".join(f"a-{i:04d} #csid {10 - num} {num} 0 0\n" for i, num in enumerate(errors)))


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
    assert rows(text, "**Time in comm")["ring"][1] == "10 / 30" and rows(text, "**Distance from the own")["ring"][1] == "0.015"
    assert rows(text, "**Distance from the cons")["ring"][1] == "0.100 / 0.050"
    assert "* 16 learners, held-out loss: agrees on allreduce < ring." in text and "learners, WER:" not in text
    assert "* 8 learners, loss of single learners: disagrees on allreduce < ring." in text
    assert "* allreduce, arXiv:1507.01239: agrees, at most +0% (8 learners)." in text
    assert "* ring, poster: disagrees, at most -27% (16 learners)." in text
    for absent in ("slow learner", "Minibatch\n", "Growing", "natural"):
        assert absent not in text


def test_stragglers_and_batches(tmp_path):
    for factor, hours in ((1, 0.1), (100, 9.0)):
        make_run(tmp_path, f"straggler_gradient_{factor}", 16, 2.0, hours, "gradient", straggler=float(factor))
        make_run(tmp_path, f"straggler_adpsgd_{factor}", 16, 2.0, 0.1 if factor == 1 else 0.11, "adpsgd", straggler=float(factor))
        make_run(tmp_path, f"straggler_adpsgd_random-ring_{factor}", 16, 2.0, 0.1 if factor == 1 else 0.13, "adpsgd", straggler=float(factor),
                 scheme={"topology": "random-ring"})
        make_run(tmp_path, f"straggler_dpsgd_{factor}", 16, 2.0, hours, "dpsgd", straggler=float(factor), scheme={"topology": "random-ring"})
    for minibatch, diverged in ((128, False), (256, True)):
        make_run(tmp_path, f"batch_gradient_{minibatch}", 16, 2.0, parallel="gradient", minibatch=minibatch, diverged=diverged)
        make_run(tmp_path, f"batch_dpsgd_fixed-ring_{minibatch}", 16, 2.0, parallel="dpsgd", minibatch=minibatch)
    text = page(find_runs(tmp_path))
    assert rows(text, "## One slow learner")["gradient"] == ["1.00", "90.00"] and rows(text, "## One slow learner")["adpsgd"] == ["1.00", "1.10"]
    assert "gradient, arXiv:1904.04956: agrees that it waits for a learner 100 times as slow; 90.0, published 53.0." in text
    assert "adpsgd, arXiv:1904.04956: agrees that it does not wait for a learner 100 times as slow; 1.1, published 1.1." in text
    assert "adpsgd random-ring, arXiv:2110.11199: agrees that it does not wait for a learner 100 times as slow; 1.3, published 1.2." in text
    assert rows(text, "## One slow learner")["dpsgd random-ring"] == ["1.00", "90.00"] and "* dpsgd random-ring, " not in text
    assert rows(text, "## Speed-up on hosts")["adpsgd"][2:] == ["10.9", "68", "16", "10.0", "62"]
    assert rows(text, "## Growing")["gradient"] == ["2.000 / 25.0", "diverged"]
    assert "where synchronous SGD diverges): agrees; of 2048, 4096 it diverges at none of these, synchronous SGD at 4096." in text
    assert "Batches of 2048, held-out loss: published as equal within 1.5%; ours agree, within 0.0%." in text
    assert "Batches of 4096, held-out loss: agrees on dpsgd fixed-ring < gradient." in text


def test_networks_that_do_not_learn_are_called_what_they_are(tmp_path):
    """Those count as diverged of which the papers say so; a network of an earlier version ended where it was worse than guessing."""
    for minibatch, verdict in ((128, "learns"), (256, "stuck at the priors"), (512, "worse than guessing")):
        make_run(tmp_path, f"batch_gradient_{minibatch}", 16, 2.0, parallel="gradient", minibatch=minibatch, verdict=verdict)
        make_run(tmp_path, f"batch_d1d_{minibatch}", 16, 2.0, parallel="d1d", minibatch=minibatch, verdict="learns" if minibatch < 512 else None)
    make_run(tmp_path, "batch_d1d_1024", 16, 2.0, parallel="d1d", minibatch=1024, diverged=True, verdict="not a number")
    make_run(tmp_path, "batch_d1d_2048", 16, 2.0, parallel="d1d", minibatch=2048, diverged=True)
    table = rows(text := page(find_runs(tmp_path)), "## Growing")
    assert table["gradient"][:3] == ["2.000 / 25.0", "2.000 / 25.0, stuck at the priors", "2.000 / 25.0, worse than guessing"]
    assert table["d1d"][1:] == ["2.000 / 25.0", "2.000 / 25.0", "not a number", "diverged"]
    assert "where synchronous SGD diverges): agrees; of 2048, 4096, 8192 it diverges at none of these, synchronous SGD at 4096." in text
    assert "*stuck at the priors* with a loss of 98 %" in text


def test_models_of_one_learner_stand_beside_those_of_all(tmp_path):
    for scheme, errors in (("allreduce", [2] * 200), ("ring", [3] * 200)):
        make_run(tmp_path, f"{scheme}_16", 16, 2.0, parallel=scheme, errors=[2] * 200, errors_of_learner=errors)
    make_run(tmp_path, "butterfly_16", 16, 2.0, parallel="butterfly", errors=[2] * 200)
    table = rows(text := page(find_runs(tmp_path)), "## The poster")
    assert table["ring, WER %"] == ["20.0"] and table["ring, WER % of one learner"] == ["30.0"]
    assert table["butterfly, WER % of one learner"] == ["-"] and table["ring, loss of single learners"] == ["2.400"]
    assert "* 16 learners, WER of one learner: agrees on allreduce < ring." in text


def test_periods_minibatches_and_gradients(tmp_path):
    make_run(tmp_path, "allreduce_16", 16, 2.0)
    make_run(tmp_path, "period_10", 16, 2.0)
    make_run(tmp_path, "period_20", 16, 2.2, period=2000)
    make_run(tmp_path, "minibatch_25_16", 16, 2.001, minibatch=25)
    make_run(tmp_path, "natural_16", 16, 1.5, gradient="online")
    text = page(find_runs(tmp_path))
    assert rows(text, "## Minibatches between")["20"] == ["2.200 / 25.0", "-", "15.8", "1.00", "10"]
    assert "Averages after so many minibatches, held-out loss: agrees on 10 < 20." in text
    assert "held-out loss: does not show the larger < the smaller." in text
    assert rows(text, "## Plain and natural")["natural gradient"] == ["16", "1.500 / 25.0", "-", "15.1"]
    assert "Gradient and learners, held-out loss: agrees on natural gradient 16 < SGD 16." in text


def test_schemes_that_mix_rarely(tmp_path):
    make_run(tmp_path, "period_100", 16, 2.3, period=10_000)
    for scheme, often, rarely in (("bmuf", 2.2, 2.4), ("diloco", 2.2, 2.105)):
        make_run(tmp_path, f"{scheme}_16", 16, often, parallel=scheme)
        make_run(tmp_path, f"rarely_{scheme}_16", 16, rarely, parallel=scheme, period=10_000)
    make_run(tmp_path, "gradient_16", 16, 2.1, parallel="gradient")
    text = page(find_runs(tmp_path))
    table = rows(text, "## Schemes that are made to mix rarely")
    assert list(table) == ["scheme", "---------", "allreduce", "bmuf", "diloco"] and table["bmuf"][:2] == ["2.200 / 25.0", "2.400 / 25.0"]
    assert "There are 2.2 mixings an epoch then, 4 in all;" in text
    assert "bmuf, mixing, held-out loss: published as equal within 1.5%; ours disagree, within 9.1%." in text
    assert "diloco, mixing rarely, held-out loss: published as equal within 1.5%; ours agree, within 0.2%." in text


def test_word_errors_come_first_and_differ_beyond_chance(tmp_path):
    """Of 200 utterances: 20 % WER; 24 %, all over the set; 20.8 %, from two bad utterances, which chance may have brought."""
    even = [2] * 200
    for scheme, loss, errors in (("allreduce", 2.0, even), ("butterfly", 1.0, [3] * 80 + [2] * 120), ("ring", 2.5, [10] * 2 + even[2:])):
        make_run(tmp_path, f"{scheme}_16", 16, loss, parallel=scheme, errors=errors)
    text = page(find_runs(tmp_path))
    assert rows(text, "**Test WER")["butterfly"] == ["24.0"] and rows(text, "## The poster")["ring, WER %"] == ["20.8"]
    first, second = re.findall(r"\* 16 learners, (?:WER|held-out loss): .*", text)
    assert first == "* 16 learners, WER: disagrees on butterfly < ring; does not show allreduce < ring; agrees on allreduce < butterfly."
    assert second == "* 16 learners, held-out loss: disagrees on allreduce < butterfly; agrees on allreduce < ring, butterfly < ring."


def test_what_seeds_do_is_what_counts_as_chance(tmp_path):
    """Ring is worse than all-reduce by 1 % with each seed, whatever the seed does to both."""
    for scheme, factor in (("allreduce", 1.0), ("ring", 1.01)):
        make_run(tmp_path, f"{scheme}_16", 16, 2.0 * factor, parallel=scheme)
        make_run(tmp_path, f"seed_1_{scheme}_16", 16, 2.2 * factor, parallel=scheme, seed=1)
    runs = find_runs(tmp_path)
    assert runs.noise == pytest.approx(0.0, abs=1e-9) and "by what other seeds did here" in page(runs)
    assert chance({1: {"a": 1.0, "b": 1.0}, 2: {"a": math.exp(0.02), "b": 1.0}}) == pytest.approx(1.96 * math.sqrt(2) * 0.01)
    assert math.isnan(chance({1: {"a": 1.0, "b": 1.0}})) and math.isnan(chance({}))


def test_the_model_in_the_end_is_that_of_the_last_epoch_that_was_accepted(tmp_path):
    make_run(tmp_path, "allreduce_1", 1, 2.0)
    path = tmp_path / "allreduce_1" / "metrics.jsonl"
    for accepted, loss, accuracy in (([True, True], 2.0, 25.0), ([True, False], 2.2, 20.0), ([False, False], 7.0, 1.0)):
        path.write_text("".join(f"{json.dumps({'epoch': k, 'heldout_objective': -1.0, 'accepted': good})}\n" for k, good in enumerate(accepted, 1)))
        (run,) = find_runs(tmp_path).all
        assert (run.loss, run.accuracy) == (pytest.approx(loss), pytest.approx(accuracy))
    (tmp_path / "real" / "allreduce_2").mkdir(parents=True)
    (tmp_path / "real" / "allreduce_2" / "final.nnet").touch()
    lines = [{"heldout_objective": -2.0, "heldout_accuracy": 0.3, "accepted": True}, {"heldout_objective": -2.5, "heldout_accuracy": 0.2, "accepted": False}]
    (tmp_path / "real" / "allreduce_2" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (real,) = find_real_runs(tmp_path / "real")
    assert (real.loss, real.accuracy) == (2.0, 30.0)


def test_what_was_kept_of_a_run_is_none(tmp_path):
    for name in ("runs.tmp/allreduce_2", "runs.tmp/.allreduce_2.changed", "runs.tmp/.allreduce_2.old"):
        make_run(tmp_path, name, 2, 2.0)
    assert [run.directory.name for run in find_runs(tmp_path / "runs.tmp").all] == ["allreduce_2"]


def test_trainings_by_mpi_ranks_stand_beside_those_by_virtual_learners(tmp_path):
    make_run(tmp_path, "allreduce_2", 2, 2.0)
    for name in ("allreduce_2", "butterfly_2", "gradient_4.tmp"):  # there is no such simulation; it is not complete
        directory = tmp_path / "real" / name
        directory.mkdir(parents=True)
        (directory / "final.nnet").touch()
        lines = [{"frames": frames, "frames_per_s": speed, "waiting": waiting, "communication": 0.2}
                 for frames, speed, waiting in ((100, 100, 0.0), (300, 50, 0.5))]  # fmt: skip
        lines += [{"epoch": 1, "heldout_objective": -3.0}, {"heldout_objective": -2.01, "heldout_accuracy": 0.3}]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    real = find_real_runs(tmp_path / "real")
    assert [run.scheme for run in real] == ["allreduce", "butterfly"]
    table = rows(page(find_runs(tmp_path), real), "## MPI ranks")
    assert table["allreduce"] == ["2", "2.0100 / 30.00", "2.0000 / 25.00", "+0.50%", "60", "-", "20 / 40"] and "butterfly" not in table


def test_pictures_have_no_more_schemes_than_colours(tmp_path):
    for number in range(12):
        make_run(tmp_path, f"scheme{number}_4", 4, 2.0, parallel=f"scheme{number}")
    make_run(tmp_path, "asgd_4", 4, 2.0, parallel="asgd")
    drawn = pictures(find_runs(tmp_path))["speed_up"]
    assert "asgd" in drawn and sum(f"scheme{number}<" in drawn for number in range(12)) == len(COLOURS) - 1


def test_order_of_errors():
    def told(theirs: dict, ours: dict) -> str:
        return agreement("x", theirs, losses(ours, 0.005))

    assert told({"a": 1.0}, {"a": 1.0, "b": 2.0}) == ""
    assert told({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": math.inf}) == "x: agrees on a < b."
    assert told({"a": 1.0, "b": 2.0}, {"a": math.inf, "b": math.inf}) == "x: does not show a < b."
    assert told({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 3.0, "b": 2.0, "c": 3.01}) == "x: disagrees on a < b; does not show a < c; agrees on b < c."
    assert told({"a": 1.0, "b": 1.01}, {"a": 3.0, "b": 2.99}) == "x: published as equal within 1.5%; ours agree, within 0.3%."
    assert told({"a": 1.0, "b": 1.01}, {"a": 3.0, "b": 2.0}) == "x: published as equal within 1.5%; ours disagree, within 50.0%."
    assert told({"a": 1.0, "b": 1.01}, {"a": math.inf, "b": 2.0}).endswith("ours disagree: some have diverged.")


def test_who_learns_with_greater_batches():
    """One scheme that survives is no witness for another; nor is a batch that only one of them was run with."""
    small, large = {1: False, 2: True}, {1: False, 2: False, 4: True}
    assert learns_longer("x", large, small) == "x: agrees; of 1, 2 it diverges at none of these, synchronous SGD at 2."
    assert learns_longer("x", small, large) == "x: disagrees; of 1, 2 it diverges at 2, synchronous SGD at none of these."
    assert learns_longer("x", small, small).startswith("x: does not show it;") and learns_longer("x", small, {8: True}) == ""


def test_the_program_writes_page_and_pictures(tmp_path):
    make_run(tmp_path / "exp", "allreduce_1", 1, 2.0)
    make_run(tmp_path / "exp", "bmuf & co_4", 4, 2.0, 0.3, "bmuf & co")
    run_here("collect_parallel.py", tmp_path / "exp", tmp_path / "page" / "RESULTS.md", folder="utils")
    linked = re.findall(r"\((\w+\.svg)\)", (tmp_path / "page" / "RESULTS.md").read_text())
    assert sorted(linked) == ["consensus.svg", "loss.svg", "speed_up.svg"]
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
