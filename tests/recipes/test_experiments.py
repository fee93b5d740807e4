"""The scripts of published experiments train the systems that the published tables list."""

from pathlib import Path

import pytest
from recorded_calls import ROOT, calls, recorded_recipe

from pyasr.report.published_experiment import NONE, page, read_experiment

RECIPE = ROOT / "egs" / "swbd" / "s5"
EXPERIMENTS = sorted(path.stem for path in (RECIPE / "local" / "experiments").glob("*.tsv"))


def tables(name: str):
    return read_experiment(RECIPE / "local" / "experiments" / f"{name}.tsv")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_script_trains_systems_of_tables(name, tmp_path):
    commands = calls(recorded_recipe(tmp_path / "s5", RECIPE), f"local/experiments/{name}.sh")
    below = Path("exp/experiments", name)
    made = {Path(words[-1]) for program, *words in commands if program.startswith("steps/")}
    trained = {Path(words[-1]).name for program, *words in commands if program == "steps/train_dnn.py"}
    compared = [cell for cell in tables(name).cells if cell.measure != NONE]
    assert {system for cell in compared for system in cell.systems} == trained
    assert {below / cell.of[0] for cell in compared if cell.measure == "wer"} <= made
    assert commands[-1] == [
        "utils/compare_published.py",
        f"local/experiments/{name}.tsv",
        f"./{below}",
        f"./{below}/RESULTS.md",
    ]


def test_systems_with_other_numbers_of_ranks_are_skipped(tmp_path):
    commands = calls(recorded_recipe(tmp_path / "s5", RECIPE), "local/experiments/su_chen.sh", "--gpus", "8")
    assert [words[-1] for words in commands if words[0] == "steps/train_dnn.py"] == [
        "./exp/experiments/su_chen/gpus_8",
        "./exp/experiments/su_chen/butterfly_8",
    ]


def test_ibm_systems_on_2000_hours(tmp_path):
    """The features, alignments and graph come from egs/fisher_swbd."""
    made = ("--stage", "2", "--dir", "/fsh", "--gmm", "tri6a", "--train-set", "train_all_nodup")
    commands = calls(
        recorded_recipe(tmp_path / "s5", RECIPE), "local/experiments/ibm.sh", "--gpus", "1", *made
    )
    out = "/fsh/exp/experiments/ibm/one_256"
    assert commands[0][-4:] == [
        "/fsh/data/train_all_nodup_streams",
        "/fsh/data/lang_prons",
        "/fsh/exp/tri6a_ali",
        out,
    ]
    assert ["/fsh/exp/tri6a/graph", "/fsh/data/eval2000_streams", f"{out}/decode_eval2000"] in [
        words[-3:] for words in commands
    ]


def test_ibm_rings_have_no_barrier(tmp_path):
    """Rings of arXiv:2110.11199; D-PSGD of arXiv:2112.01433 has a barrier."""
    commands = calls(recorded_recipe(tmp_path / "s5", RECIPE), "local/experiments/ibm.sh")
    schemes = {
        Path(words[-1]).name: tuple(words[words.index(flag) + 1] for flag in ("--parallel", "--topology"))
        for words in commands
        if "--topology" in words
    }
    rings = {
        f"{ring}_{num}": ("adpsgd", ring) for ring in ("fixed-ring", "random-ring") for num in (16, 32, 64)
    }
    assert schemes == rings | {f"dpsgd_{batch}": ("dpsgd", "fixed-ring") for batch in (2048, 4096, 8192)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_page_without_any_result(name, tmp_path):
    written = (RECIPE / "local" / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    assert written == page(tables(name), tmp_path) and "missing" in written


def test_ibm_learning_rate_is_proportional_to_batch(tmp_path):
    """0.1 at 256 segments in torch, a tenth of it before the warm-up. pyasr's rate is ten times torch's with
    a momentum of 0.9."""
    commands = calls(recorded_recipe(tmp_path / "s5", RECIPE), "local/experiments/ibm.sh")
    seen = set()
    for program, *words in commands:
        if program == "steps/train_dnn.py":
            ranks, rows = (int(words[words.index(flag) + 1]) for flag in ("--num-ranks", "--minibatch"))
            rate = float(words[len(words) - 1 - words[::-1].index("--learning-rate") + 1])
            factor = 1 if "--warm-up-factor" in words else 10
            assert factor * rate / 10 == pytest.approx(0.1 * ranks * rows / 21 / 256), words
            seen.add(ranks * rows // 21)
    assert seen == {256, 2048, 2560, 4096, 8192, 10240, 12288}
