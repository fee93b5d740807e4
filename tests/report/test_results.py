"""The page of results: it has the scored results, and the same run gives the same table."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.base.outputs.output import stage_output
from pyasr.data.tables.datadir import DataDir, write_data_dir
from pyasr.report.results import best_on_dev, results_page, results_table, tables
from pyasr.report.seed_runs import read_seed_runs, seed_runs, write_seed_runs
from pyasr.report.systems import find_systems, paired
from pyasr.score.filters import TextFilter
from pyasr.score.score_dir import Chosen, read_params, read_summary, write_scoring

POINTS = ((7, 0.0), (8, 0.0))


def corrupt(text: str, rng, rate: float) -> str:
    return " ".join(word if rng.random() > rate else "wrong" for word in text.split())


def make_experiment(root: Path, rates: dict[str, float]) -> Path:
    """Systems with the given word error rates, at LM weight 7; 8 is worse."""
    texts = {f"s{i % 4}-{i:03d}": "a few words that were said" for i in range(200)}
    for name in ("dev", "test"):
        (root / name).mkdir(parents=True)
        write_data_dir(root / name, {"text": texts, "utt2spk": {utt: utt[:2] for utt in texts}})
    for system, rate in rates.items():
        with stage_output(root / "exp" / system, {"num_gauss": 10, "seed": 3}, [root / "test/text"]):
            pass
        for name in ("dev", "test"):
            decode, rng = root / "exp" / system / f"decode_{name}", np.random.default_rng(7)
            with stage_output(decode, {}, []) as out:
                (out / "totals.json").write_text(
                    json.dumps({"num_frames": 60000, "search_s": 30.0, "cpu_s": 60.0})
                )
            hypotheses = {
                point: {utt: corrupt(text, rng, rate + 0.05 * i) for utt, text in texts.items()}
                for i, point in enumerate(POINTS)
            }
            chosen = (
                Chosen(read_params(decode.with_name("decode_dev")), decode.with_name("decode_dev"))
                if name == "test"
                else None
            )
            with stage_output(decode / "scoring", {}, []) as out:
                write_scoring(out, DataDir(root / name), hypotheses, TextFilter(), chosen)
    return root / "exp"


def test_page_has_systems_and_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["steps/some_step.py", "--num-gauss", "10"])
    page = results_page(find_systems(make_experiment(tmp_path, {"mono": 0.5, "tri": 0.3})))
    rows = [line for line in page.splitlines() if line.startswith(("| mono", "| tri"))]
    assert len(rows) == 4 and rows[0].startswith("| mono") and "**" in rows[1] and "**" not in rows[0]
    assert "7, 0.0" in rows[0] and rows[2].split("|")[3:5] == [f" {'0.050':<36} ", f" {'0.100':<24} "]
    for needed in (
        "steps/some_step.py --num-gauss 10",
        "`wer|case:lower|drop:none|align:sclite|v1`",
        "commit:",
        "numpy",
        "mono 3",
        "200 utterances",
    ):
        assert needed in page


def test_best_system_is_chosen_on_dev(tmp_path):
    """The best system is chosen on the dev set; networks of several seeds count by their mean."""
    exp = make_experiment(tmp_path, {"mono": 0.5, "tri": 0.4, "dnn/seed1": 0.45, "dnn/seed2": 0.3})
    systems = find_systems(exp)
    single, (first, second) = [system for system in systems if not system.family], seed_runs(systems)
    line = best_on_dev(single, seed_runs(systems))
    dev, test = (first.dev_wer + second.dev_wer) / 2, (first.test_wer + second.test_wer) / 2
    assert line == f"Best system on dev: dnn (mean of 2), {dev:.2f} % on dev, {test:.2f} % on test."
    assert line in results_page(systems).splitlines() and tables(systems).splitlines()[-1] == line
    assert best_on_dev(single, []).startswith("Best system on dev: tri, ")
    assert "since no system has a dev set" in best_on_dev([], [])


def test_page_in_new_folder(tmp_path):
    exp, page = make_experiment(tmp_path, {"mono": 0.5}), tmp_path / "new/folder/RESULTS.md"
    run_here("collect_results.py", exp, page, folder="utils")
    assert page.read_text() == results_page(find_systems(exp))


def test_same_run_gives_same_table(tmp_path):
    rates = {"mono": 0.5, "tri": 0.48}
    tables = [results_table(find_systems(make_experiment(tmp_path / name, rates))) for name in ("one", "two")]
    assert tables[0] == tables[1]


def test_kept_copy_of_output_is_not_a_system(tmp_path):
    exp = make_experiment(tmp_path / "runs.tmp", {"mono": 0.5})
    names = [system.name for system in find_systems(exp)]
    for name in (".mono.old", "mono.old", "mono.tmp", "mono/.decode_test.changed"):
        shutil.copytree(exp / "mono/decode_test", exp / name)
    assert [system.name for system in find_systems(exp)] == names != []


@pytest.mark.parametrize("own_dev", [False, True])
def test_parameters_of_other_system_are_stated(own_dev, tmp_path, monkeypatch):
    """The page states that they were chosen neither on the test set nor on the system's own dev set."""
    exp = make_experiment(tmp_path, {"mono": 0.5, "tri": 0.3})
    summary = exp / "tri/decode_test/scoring/summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "params_from": "exp/mono/decode_dev"}))
    if not own_dev:
        shutil.rmtree(exp / "tri/decode_dev")
    monkeypatch.chdir(tmp_path)
    systems = {system.name: system for system in find_systems(Path("exp"))}
    tri = "tri decode_test" if own_dev else "tri"
    assert systems.keys() == {"mono", tri} | ({"tri decode_dev"} if own_dev else set())
    assert systems["mono"].dev and systems[tri].dev is None
    cells = {
        line.split("|")[1].strip(): line.split("|")[2:8:5]
        for line in results_table(list(systems.values())).splitlines()
    }
    assert [cell.strip() for cell in cells[tri]] == ["-", "7, 0.0 (on exp/mono/decode_dev)"]
    assert cells["mono"][1].strip() == "7, 0.0"
    assert not own_dev or cells["tri decode_dev"][1].strip() == "7, 0.0 (on test)"


@pytest.mark.parametrize("model", ["mono", "renamed/seed1"])
def test_moved_or_renamed_directory(model, tmp_path):
    exp = make_experiment(tmp_path, {"mono": 0.5, "tri/seed1": 0.3})
    (tmp_path / "moved/renamed").mkdir(parents=True)
    (exp / "mono").rename(tmp_path / "moved" / model)
    (exp / "tri").rename(tmp_path / "moved/tri")
    systems = {system.name: system for system in find_systems(tmp_path / "moved")}
    assert systems.keys() == {model, "tri/seed1"}
    assert all(
        system.dev == read_summary(system.model_dir / "decode_dev", False) for system in systems.values()
    )


def test_insignificant_difference_is_not_bold(tmp_path):
    assert "**" not in results_table(find_systems(make_experiment(tmp_path, {"one": 0.50, "two": 0.499})))


def test_numbers_equal_scoring(tmp_path):
    (system,) = find_systems(make_experiment(tmp_path, {"mono": 0.4}))
    line = (system.decode_dir / "scoring/best_wer").read_text().splitlines()[0]
    assert f"{system.test['chosen']['wer']:.2f}" == line.split()[1] and system.dev["chosen"]["point"] == [
        7,
        0.0,
    ]


def test_directory_without_scores_is_refused(tmp_path):
    with pytest.raises(UserError, match="nothing below it has been scored"):
        find_systems(tmp_path)


def test_simulations_are_not_on_page(tmp_path):
    exp = make_experiment(tmp_path, {"mono": 0.5, "parallel/ring_4": 0.4})
    (exp / "parallel" / "ring_4" / "simulation.json").write_text("{}")
    assert [system.name for system in find_systems(exp)] == ["mono"]


def test_minimum_bayes_risk_has_its_own_row(tmp_path):
    exp = make_experiment(tmp_path, {"mono": 0.5})
    for name in ("dev", "test"):
        shutil.copytree(
            exp / "mono" / f"decode_{name}" / "scoring", exp / "mono" / f"decode_{name}" / "scoring_mbr"
        )
    systems = find_systems(exp)
    assert [system.name for system in systems] == ["mono", "mono decode_test mbr"]
    assert all(system.dev for system in systems) and paired(*systems) is not None


def test_several_seeds_share_one_row(tmp_path):
    rates = {"mono": 0.5, "dnn/seed1": 0.30, "dnn/seed2": 0.34, "dnn/seed3": 0.32}
    systems = find_systems(make_experiment(tmp_path, rates))
    wers = [system.test["chosen"]["wer"] for system in systems if system.name != "mono"]
    page = results_page(systems)
    assert tables(systems).splitlines()[0] == page.splitlines()[4]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| dnn")]
    assert len(rows) == 1
    name, num_seeds, _, average, spread, deviation = (cell.strip() for cell in rows[0][1:7])
    assert (name, num_seeds, average) == ("dnn", "3", f"{np.mean(wers):.2f}")
    assert spread == f"{min(wers):.2f} - {max(wers):.2f}" and deviation == f"{np.std(wers, ddof=1):.2f}"
    assert "seed1" not in page.split("## Made with")[0] and "dnn/seed2 3" in page


def test_seeds_share_a_row_if_one_was_decoded_twice(tmp_path):
    exp = make_experiment(tmp_path, {"dnn/seed1": 0.30, "dnn/seed2": 0.34})
    shutil.copytree(exp / "dnn/seed1/decode_test", exp / "dnn/seed1/decode_big")
    assert {(system.name, system.family) for system in find_systems(exp)} == {
        ("dnn/seed1 decode_test", "dnn decode_test"),
        ("dnn/seed2 decode_test", "dnn decode_test"),
        ("dnn/seed1 decode_big", "dnn decode_big"),
    }


def test_rescored_lattices_have_their_own_row(tmp_path):
    """For one of two seeds, as in run_models.sh: results of rescored lattices have names; unrescored ones are
    the model's own row."""
    exp = make_experiment(tmp_path, {"mono": 0.5, "dnn/seed1": 0.30, "dnn/seed2": 0.34})
    seed = exp / "dnn/seed1"
    for name in ("dev", "test"):
        for suffix, rate in (("_fourgram", 0.20), ("_lstm", 0.10)):
            other = (
                make_experiment(tmp_path / suffix / name, {"dnn/seed1": rate})
                / "dnn/seed1"
                / f"decode_{name}"
            )
            shutil.copytree(other, seed / f"decode_{name}{suffix}")
            summary = seed / f"decode_{name}{suffix}/scoring/summary.json"
            summary.write_text(summary.read_text().replace("decode_dev", f"decode_dev{suffix}"))
        for suffix in ("", "_lstm"):
            shutil.copytree(
                seed / f"decode_{name}{suffix}/scoring", seed / f"decode_{name}{suffix}/scoring_mbr"
            )
    lines = [line.split("|") for line in tables(find_systems(exp)).splitlines() if line.startswith("| dnn")]
    assert {cells[1].strip(): cells[2].strip() for cells in lines} == {
        "dnn": "2",
        "dnn decode_test mbr": "1",
        "dnn decode_test_fourgram": "1",
        "dnn decode_test_lstm": "1",
        "dnn decode_test_lstm mbr": "1",
    }
    assert all(
        system.dev["chosen"]["wer"] == pytest.approx(system.test["chosen"]["wer"])
        for system in find_systems(exp)
    )


def test_seeds_with_different_decodings_have_separate_rows(tmp_path):
    exp = make_experiment(tmp_path, {"dnn/seed1": 0.30, "dnn/seed2": 0.34})
    (exp / "dnn/seed2/decode_test").rename(exp / "dnn/seed2/decode_test_big")
    assert [system.family for system in find_systems(exp)] == ["dnn", "dnn decode_test_big"]


def test_page_with_only_seed_runs(tmp_path):
    systems = find_systems(make_experiment(tmp_path, {"dnn/seed1": 0.3}))
    assert tables(systems).splitlines()[2].startswith("| dnn ") and "## Cost" not in results_page(systems)


def collect(exp, page, kept):
    run_here("collect_results.py", "--kept", kept, exp, page, folder="utils")
    return {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("|") for line in page.read_text().splitlines() if line.startswith("| "))
    }


def test_seeds_of_several_runs_share_one_page(tmp_path, monkeypatch):
    """As if all had been in one experiment directory; for a network that was trained again, the new result
    counts."""
    parts = [
        {"dnn/seed1": 0.50, "lstm/seed1": 0.20},
        {"dnn/seed1": 0.30, "dnn/seed2": 0.34, "mono": 0.6},
        {"dnn/seed3": 0.32},
    ]
    page, kept = tmp_path / "RESULTS.md", tmp_path / "kept.json"
    for i, rates in enumerate(parts):
        monkeypatch.setattr(sys, "argv", ["steps/of_run.py", str(i)])
        exp = make_experiment(tmp_path / str(i), rates)
        rows = collect(exp, page, kept)
        shutil.rmtree(exp)
    whole = {"lstm/seed1": 0.20, "dnn/seed1": 0.30, "dnn/seed2": 0.34, "dnn/seed3": 0.32}
    expected = results_page(find_systems(make_experiment(tmp_path / "whole", whole)))
    table = expected[expected.index("| system") : expected.index("\n\n* LM")]
    assert table in page.read_text() and rows["dnn"][0] == "3"
    assert page.read_text().count("steps/of_run.py") == 3 and "mono" not in page.read_text()
    assert "dnn/seed2 3" in page.read_text()


def test_collected_results_are_written_once(tmp_path):
    exp = make_experiment(tmp_path, {"dnn/seed1": 0.3})
    page = tmp_path / "RESULTS.md"
    kept = tmp_path / "new/folder/kept.json"
    first = collect(exp, page, kept), kept.read_text()
    assert (collect(exp, page, kept), kept.read_text()) == first
    assert read_seed_runs(kept) == seed_runs(find_systems(exp))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"steps": [], "runs": [{"name": "dnn/seed1"}]}',
        "u1 words of a transcript\n",
        '{"steps": [], "runs": [7]}',
        '{"steps": {}, "runs": {"a": 1}}',
    ],
)
def test_other_file_in_place_of_results_is_refused(content, tmp_path):
    exp = make_experiment(tmp_path, {"dnn/seed1": 0.3})
    page = tmp_path / "RESULTS.md"
    kept = tmp_path / "kept.json"
    kept.write_text(content)
    with pytest.raises(UserError, match=f"^{kept}: not a file of results .* give another file with --kept$"):
        collect(exp, page, kept)
    assert kept.read_text() == content and not page.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda run: {**run, "made_by": [9999]},
        lambda run: {**run, "name": "dnn"},
        lambda run: {**run, "test_wer": "low"},
        lambda run: {**run, "made_by": None},
    ],
)
def test_damaged_results_are_refused(damage, tmp_path):
    kept = tmp_path / "kept.json"
    write_seed_runs(kept, seed_runs(find_systems(make_experiment(tmp_path, {"dnn/seed1": 0.3}))))
    whole = json.loads(kept.read_text())
    kept.write_text(json.dumps({**whole, "runs": [damage(whole["runs"][0])]}))
    with pytest.raises(UserError, match="not a file of results"):
        read_seed_runs(kept)
