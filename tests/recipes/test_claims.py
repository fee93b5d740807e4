"""Recorded trainings confirm or refute claims. The record is only appended to; the page shows both."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from comparison.claims import CONFIRMED, NOT_SHOWN, NOT_TRIED, REFUTED, difference, read_claims, seconds_to
from comparison.comparison_page import page
from comparison.experiment_pictures import experiment_pictures
from comparison.experiments import Experiments, kept_cells, spread
from comparison.kept_runs import KeptRun, keep, read_kept, write_kept

from pyasr.base.errors import UserError

MADE_BY = {
    "command": "steps/x",
    "ended": "2026-01-01",
    "commit": "abc",
    "machine": "EPYC",
    "versions": {"torch": "2"},
}
RUN = KeptRun(
    "batch/a/8/seed1",
    "learns",
    3.0,
    30.0,
    6.0,
    None,
    None,
    None,
    100.0,
    4.0,
    ((0.0, 7.0, 1.0), (100.0, 3.0, 30.0)),
    (0.1,),
    "steps/simulate_parallel.py x",
    MADE_BY,
)


def trained(directory: Path, **losses) -> None:
    """Write ibm.jsonl with the cells batch/NAME/8, each with seeds 1, 2, ... and these losses. None means
    non-finite."""
    runs = [
        replace(
            RUN,
            name=f"batch/{name}/8/seed{seed}",
            loss=loss,
            verdict="not a number" if loss is None else "learns" if loss < 5.9 else "stuck",
        )
        for name, of_seeds in losses.items()
        for seed, loss in enumerate(of_seeds, 1)
    ]
    write_kept(directory / "ibm.jsonl", runs)


def judged(directory: Path, test: str) -> str:
    (directory / "claims.tsv").write_text(f"# comment\nit is so\tpaper\t1.0\t{test}\n")
    (claim,) = read_claims(directory / "claims.tsv")
    return claim.verdict(kept_cells(directory))


@pytest.mark.parametrize("test, verdict", [
    ("loss ibm/batch/good/8 < ibm/batch/bad/8", CONFIRMED),
    ("loss ibm/batch/bad/8 < ibm/batch/good/8", REFUTED),
    ("loss ibm/batch/good/8 < ibm/batch/wide/8", NOT_SHOWN),
    ("loss ibm/batch/good/8 < 0.5 ibm/batch/bad/8", REFUTED),
    ("loss ibm/batch/bad/8 < 1.2 ibm/batch/good/8", CONFIRMED),
    ("loss ibm/batch/good/8 < 1.2 ibm/batch/good/8", CONFIRMED),
    ("loss ibm/batch/good/8 = ibm/batch/near/8", CONFIRMED),
    ("loss ibm/batch/good/8 = ibm/batch/bad/8", REFUTED),
    ("loss ibm/batch/good/8 = ibm/batch/wide/8", NOT_SHOWN), ("learns ibm/batch/good/8", CONFIRMED),
    ("diverges ibm/batch/good/8", REFUTED), ("diverges ibm/batch/stuck/8", CONFIRMED),
    ("learns ibm/batch/half/8", NOT_SHOWN), ("loss ibm/batch/good/8 < ibm/batch/nan/8", CONFIRMED),
    ("loss ibm/batch/nan/8 = ibm/batch/nan/8", CONFIRMED),
    ("loss ibm/batch/nan/8 < ibm/batch/good/8", REFUTED),
    ("loss ibm/batch/good/8 < ibm/batch/none/8", NOT_TRIED), ("learns ibm/batch/none/8", NOT_TRIED),
    ("none too large", NOT_TRIED), ("wer ibm/batch/good/8 < ibm/batch/bad/8", NOT_TRIED),
    ("learns ibm/batch/good/8 and diverges ibm/batch/stuck/8", CONFIRMED),
    ("learns ibm/batch/good/8 and learns ibm/batch/stuck/8", REFUTED),
    ("learns ibm/batch/stuck/8 and learns ibm/batch/none/8", NOT_TRIED),
    ("loss ibm/batch/good/8 < ibm/batch/few/8", CONFIRMED)])  # fmt: skip
def test_verdicts_of_claims(test, verdict, tmp_path):
    trained(
        tmp_path,
        good=[3.0, 3.1, 3.05],
        near=[3.01, 3.1, 3.06],
        bad=[3.3, 3.4, 3.36],
        wide=[2.5, 3.3, 3.4],
        stuck=[6.0, 6.0],
        half=[3.0, 6.0],
        few=[3.3],
        nan=[None, None, None],
    )
    assert judged(tmp_path, test) == verdict


def test_time_to_accuracy_is_interpolated(tmp_path):
    curve = [(0.0, 7.0, 1.0), (100.0, 4.0, 21.0), (200.0, 3.5, 20.0), (300.0, 3.0, 30.0)]
    assert [seconds_to(accuracy, replace(RUN, curve=curve)) for accuracy in (11.0, 21.0, 25.0, 30.1)] == [
        50.0,
        100.0,
        250.0,
        math.inf,
    ]
    later = [(2 * seconds, *rest) for seconds, *rest in curve]
    write_kept(
        tmp_path / "ibm.jsonl",
        [
            replace(RUN, name=f"batch/{name}/8/seed1", curve=c)
            for name, c in (("fast", curve), ("slow", later))
        ],
    )
    assert judged(tmp_path, "to-25 ibm/batch/fast/8 < 0.52 ibm/batch/slow/8") == CONFIRMED
    assert judged(tmp_path, "to-25 ibm/batch/fast/8 < 0.45 ibm/batch/slow/8") == REFUTED


def test_time_to_fraction_of_accuracy(tmp_path):
    """80 % of the slow cell's 25 % is 20 %, which it reaches after 80 s and the fast one after 25 s. The slow
    one never reaches 80 % of 50 %."""
    cells = {
        "fast": (50.0, ((0.0, 7.0, 0.0), (62.5, 3.0, 50.0))),
        "slow": (25.0, ((0.0, 7.0, 0.0), (100.0, 3.0, 25.0))),
        "nan": (None, ()),
    }
    write_kept(
        tmp_path / "ibm.jsonl",
        [
            replace(RUN, name=f"batch/{name}/8/seed1", accuracy=end, curve=curve)
            for name, (end, curve) in cells.items()
        ],
    )
    assert judged(tmp_path, "to-80% ibm/batch/fast/8 < 0.32 ibm/batch/slow/8") == CONFIRMED
    assert judged(tmp_path, "to-80% ibm/batch/fast/8 < 0.30 ibm/batch/slow/8") == REFUTED
    assert (
        judged(
            tmp_path,
            "to-80% ibm/batch/fast/8 < ibm/batch/slow/8 and to-80% ibm/batch/slow/8 < ibm/batch/fast/8",
        )
        == REFUTED
    )
    assert judged(tmp_path, "to-80% ibm/batch/fast/8 < ibm/batch/nan/8") == NOT_TRIED


def test_intervals_use_student_t_with_enough_seeds():
    """By hand: logs 0.1, 0.2, 0.3 have a mean of 0.2 and a standard deviation of 0.1; t for two degrees of
    freedom is 4.303."""
    low, high = difference([(math.exp(x), 1.0) for x in (0.1, 0.2, 0.3)], 0.01)
    assert (low, high) == pytest.approx((0.2 - 4.303 * 0.1 / math.sqrt(3), 0.2 + 4.303 * 0.1 / math.sqrt(3)))
    assert difference([(1.1, 1.0)], 0.01) == pytest.approx((math.log(1.1) - 0.01, math.log(1.1) + 0.01))


@pytest.mark.parametrize(
    "line",
    [
        "a\tb\tc",
        "a\tb\tc\tloss x",
        "a\tb\tc\tbeauty x < y",
        "a\tb\tc\tloss x < 0 y",
        "a\t\tc\tlearns x",
        "a\tb\tc\tlearns x or learns y",
    ],
)
def test_invalid_claims_are_refused(line, tmp_path):
    (tmp_path / "claims.tsv").write_text(f"# comment\n{line}\n")
    with pytest.raises(UserError, match="claims.tsv:2: "):
        read_claims(tmp_path / "claims.tsv")


def simulation(directory: Path, loss: float | None) -> Path:
    directory.mkdir(parents=True)
    content = {
        "epoch_frames": 1000,
        "num_parameters": 10,
        "epoch_s": 50.0,
        "diverged": None if loss else "diverged",
        "apart": [],
        "verdict": "learns" if loss else "not a number",
        "guessing": {"priors": 6.0, "uniform": 7.0},
        "history": [[0.0, -7.0, 0.01], [50.0, -(loss or 9.0), 0.251]],
        "seconds": {"computing": 1.0, "waiting": 0.0, "mixing": 0.0},
        "virtual": {"num_learners": 4, "compute_s": 1.0},
        "training": {
            "loop": {"train_seed": 1},
            "mixing": {"parallel": "d1d"},
            "learner": {"minibatch": 10, "natural_gradient": {"natural_gradient": "none"}},
        },
    }
    (directory / "simulation.json").write_text(json.dumps(content))
    (directory / ".done.json").write_text(json.dumps(MADE_BY | {"options": {}, "inputs": {}}))
    return directory


def test_simulations_are_recorded(tmp_path):
    results = tmp_path / "kept" / "ibm.jsonl"
    for name, loss in (("b/x/2/seed1", 3.5), ("b/x/1/seed1", None), ("b/x/2/seed1", 3.25)):
        place = tmp_path / str(loss) / name
        keep(simulation(place, loss), results, f"command of {name}")
    diverged, run = read_kept(results)
    assert (diverged.name, diverged.loss, diverged.verdict) == ("b/x/1/seed1", None, "not a number")
    assert (run.name, run.cell, run.loss, run.accuracy, run.priors, run.speed_up) == (
        "b/x/2/seed1",
        "b/x/2",
        3.25,
        25.1,
        6.0,
        2.0,
    )
    assert run.command == "command of b/x/2/seed1" and run.made_by == MADE_BY


def test_trainings_on_ranks_are_recorded(tmp_path):
    place = tmp_path / "whole" / "dbn" / "2" / "seed1"
    (scoring := place / "decode_test" / "scoring").mkdir(parents=True)
    (place / ".done.json").write_text(json.dumps(MADE_BY | {"options": {}, "inputs": {}}))
    entry = {"wer": 48.123}
    (scoring / "summary.json").write_text(
        json.dumps({"data": "data/test", "signature": "wer", "chosen": entry, "best": entry})
    )
    epochs = [(True, -3.1, 0.3, 0.02), (True, -2.9, 0.325, 0.01), (False, -3.0, 0.31, 0.03)]
    lines = [
        {"epoch": 1, "objective": -3.0},
        *(
            {
                "accepted": accepted,
                "heldout_objective": objective,
                "heldout_accuracy": share,
                "consensus_distance": distance,
            }
            for accepted, objective, share, distance in epochs
        ),
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = keep(place, tmp_path / "systems.jsonl")
    assert (run.name, run.verdict, run.loss, run.accuracy, run.wer) == (
        "whole/dbn/2/seed1",
        "learns",
        2.9,
        32.5,
        48.12,
    )
    assert (run.distances, run.curve, run.epoch_s) == ((0.02, 0.01), (), None)
    assert read_kept(tmp_path / "systems.jsonl")[0].wer == 48.12
    (place / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n")
    with pytest.raises(UserError, match="no complete epoch"):
        keep(place, tmp_path / "systems.jsonl")


def test_final_model_is_that_of_last_accepted_epoch(tmp_path):
    """The initial model has an objective of -7, the model after the epoch -3."""
    place = simulation(tmp_path / "b/x/2/seed1", 3.0)
    for accepted, loss, accuracy in ((True, 3.0, 25.1), (False, 7.0, 1.0)):
        (place / "metrics.jsonl").write_text(json.dumps({"epoch": 1, "accepted": accepted}) + "\n")
        run = keep(place, tmp_path / "ibm.jsonl")
        assert (run.loss, run.accuracy) == (loss, accuracy)


def test_word_error_rates_of_both_models_are_recorded(tmp_path):
    place = simulation(tmp_path / "poster/ring/16/seed1", 3.0)
    assert (run := keep(place, tmp_path / "x.jsonl")).wer is None and run.learner_wer is None
    for model, wer in (("", 20.0), ("learner", 22.1)):
        (scoring := place / model / "decode_test" / "scoring").mkdir(parents=True)
        entry = {"wer": wer}
        (scoring / "summary.json").write_text(
            json.dumps({"data": "data/test", "signature": "wer", "chosen": entry, "best": entry})
        )
    run = keep(place, tmp_path / "x.jsonl")
    assert (run.wer, run.learner_wer) == (20.0, 22.1)


def test_invalid_records_are_refused(tmp_path):
    place = simulation(tmp_path / "short" / "seed1", 3.0)
    with pytest.raises(UserError, match="TABLE/ROW/COLUMN/seedN"):
        keep(place.rename(tmp_path / "other"), tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"name": "a/b/c/seed1"}\n')
    with pytest.raises(UserError, match="x.jsonl:1: "):
        read_kept(tmp_path / "x.jsonl")


def test_claims_page(tmp_path):
    trained(tmp_path, good=[3.0, 3.1], stuck=[6.0, 6.0])
    (tmp_path / "claims.tsv").write_text(
        "it learns\tpaper\t1.66\tlearns ibm/batch/good/8\nit is fast\tpaper\t2 h\tnone no clock\n"
    )
    with open(tmp_path / "claims.tsv", "a") as f:
        f.write(
            "it is better\tpaper\t1.5\tloss ibm/batch/good/8 < ibm/batch/stuck/8\nit is "
            "first\tpaper\t1\tlearns ibm/batch/none/8\n"
        )
    found = Experiments(read_claims(tmp_path / "claims.tsv"), kept_cells(tmp_path))
    text = page(found)
    claims = {
        cells[0]: cells[1:]
        for line in text.splitlines()
        if line.startswith("| it ")
        for cells in [[cell.strip() for cell in line.split("|")][1:-1]]
    }
    assert claims["it learns"] == [
        "paper",
        "1.66",
        "batch/good/8 learns (3.050 (3.000 to 3.100)), 2 seeds",
        "**confirmed**",
        '`local/experiments/ibm.sh --only "batch/good/8"`',
    ]
    ours = "loss batch/good/8 3.050 (3.000 to 3.100), batch/stuck/8 6.000: -49.2% (-49.7% to -48.7%), 2 seeds"
    assert claims["it is better"][2:4] == [ours, "**confirmed**"] and claims["it is first"][2:4] == [
        "missing: batch/none/8",
        "**not tried**",
    ]
    assert (
        "not tried: no clock" in text
        and "## ibm: batch" in text
        and "| stuck |" in text
        and "* machine: EPYC" in text
    )
    assert experiment_pictures(found.cells) == {}  # one batch and one epoch give no curve
    longer = replace(
        RUN,
        name="batch/good/16/seed1",
        curve=[(100.0 * k, 4.0 - k, 20.0) for k in range(3)],
        distances=[0.2, 0.1],
    )
    write_kept(tmp_path / "ibm.jsonl", [*read_kept(tmp_path / "ibm.jsonl"), longer])
    assert list(experiment_pictures(kept_cells(tmp_path))) == ["ibm_batch_loss"]
    write_kept(tmp_path / "ibm.jsonl", [replace(longer, name=f"batch/{row}/16/seed1") for row in "ab"])
    drawn = experiment_pictures(kept_cells(tmp_path))
    # and the legend's
    assert (
        list(drawn) == ["ibm_batch_time", "ibm_batch_drift"]
        and drawn["ibm_batch_time"].count("<polyline") == 4
    )


def test_numbers_over_seeds():
    assert [spread(values, ".1f") for values in ([], [None], [1.0], [1.0, 2.0, None])] == [
        "-",
        "-",
        "1.0",
        "1.5 (1.0 to 2.0)",
    ]
