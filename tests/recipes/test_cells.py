"""The scripts of published experiments run each training that the claims use once, and record the results."""

import json
from pathlib import Path

import pytest
from comparison.claims import read_claims
from recorded_calls import RECIPE, calls, recorded_recipe

EXPERIMENTS = RECIPE / "local" / "experiments"
TRAINERS = ("steps/simulate_parallel.py", "steps/train_dnn.py")
WORKS = sorted(path.stem for path in EXPERIMENTS.glob("*.sh") if path.stem not in ("cells", "page"))


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> dict[str, list[list[str]]]:
    """Trainings of each script, as lists of arguments."""
    recipes = {work: recorded_recipe(tmp_path_factory.mktemp(work) / "s5") for work in WORKS}
    commands = {
        work: calls(recipe, f"local/experiments/{work}.sh", "--seeds", "1 2")
        for work, recipe in recipes.items()
    }
    return {work: [words for words in found if words[0] in TRAINERS] for work, found in commands.items()}


@pytest.mark.parametrize("work", WORKS)
def test_every_cell_is_trained_once_per_seed(work, cells):
    made = [words[-1] for words in cells[work]]
    assert len(set(made)) == len(made) and all(name.startswith(f"exp/experiments/{work}/") for name in made)
    first, second = (
        {name.removesuffix(seed) for name in made if name.endswith(seed)} for seed in ("/seed1", "/seed2")
    )
    assert second <= first  # some cells are trained with seed 1 only


def test_claims_refer_to_trained_cells(cells):
    made = {
        name.removeprefix("exp/experiments/").rpartition("/")[0]
        for found in cells.values()
        for *_, name in found
    }
    assert {name for claim in read_claims(EXPERIMENTS / "claims.tsv") for name in claim.cells} <= made


def test_learning_rates_equal_published_ones(cells):
    """A rate of 0.1 for a batch of 256 segments in torch is 10 here; a batch of 8192 on 16 learners is 8
    segments of 21 frames per learner."""
    (words,) = [words for words in cells["ibm"] if words[-1].endswith("/batch/adpsgd-fixed-ring/8192/seed1")]
    given = dict(zip(words, words[1:]))
    assert (given["--learning-rate"], given["--minibatch"], given["--topology"]) == (
        "3.200000",
        str(8 * 21),
        "fixed-ring",
    )
    assert "--warm-up-factor=10\n" in (RECIPE / given["--config"]).read_text()


def test_recorded_trainings_are_skipped(tmp_path):
    recipe = recorded_recipe(tmp_path / "s5")
    options = ("local/experiments/ibm.sh", "--seeds", "1", "--stage", "2", "--stop-stage", "2")
    first, second, *rest = kept = [
        words for words in calls(recipe, *options) if words[0] == "local/keep_training.py"
    ]
    commands = [words[words.index("--command") + 1] for words in kept]
    assert commands[0].startswith("steps/simulate_parallel.py --train-seed 1 ") and len(rest) > 20
    (recipe / "parallel").mkdir()
    lines = [
        {"command": commands[0], "loss": 3.0, "wer": 50.0},
        {"command": commands[1], "loss": 3.0, "wer": None},
        {"command": commands[2], "loss": None, "wer": None},
    ]
    (recipe / "parallel" / "ibm.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = [words for words in calls(recipe, *options) if words[0] == "local/keep_training.py"]
    # the second has no word error rate, the third has no model
    assert again == [second, *rest[1:]]


def test_cell_with_single_learner_model_needs_both_word_error_rates(tmp_path):
    recipe = recorded_recipe(tmp_path / "s5")
    options = ("local/experiments/su_chen.sh", "--seeds", "1", "--stage", "5", "--stop-stage", "5")
    commands = [
        words[words.index("--command") + 1]
        for words in calls(recipe, *options)
        if words[0] == "local/keep_training.py"
    ]
    assert all("--save-learner true" in command for command in commands)
    (recipe / "parallel").mkdir()
    lines = [
        {"command": command, "loss": 3.0, "wer": 50.0, "learner_wer": wer}
        for command, wer in zip(commands, (None, 51.0))
    ]
    (recipe / "parallel" / "su_chen.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = [
        words[words.index("--command") + 1]
        for words in calls(recipe, *options)
        if words[0] == "local/keep_training.py"
    ]
    assert again == [commands[0], *commands[2:]]


def test_single_learner_model_is_decoded_too(tmp_path):
    recipe = recorded_recipe(tmp_path / "s5")
    out = Path("exp/experiments/su_chen/poster-10/ring/16/seed1")
    for model in (out, out / "learner"):
        (recipe / model).mkdir(parents=True)
        (recipe / model / "final.nnet").touch()
    found = calls(recipe, "local/experiments/su_chen.sh", "--seeds", "1", "--stage", "5")
    decoded = [
        (words[words.index("--model-dir") + 1], words[-1]) for words in found if words[0] == "steps/decode.py"
    ]
    assert decoded == [(str(model), f"{model}/decode_test") for model in (out, out / "learner")]
    scored = [words[-1] for words in found if words[0] == "steps/score.py"]
    assert scored == [place for _, place in decoded]


def test_plan_lists_cells_without_training(tmp_path, cells):
    """The list has the trainings of the script in order."""
    for work in ("su_chen", "povey"):
        recipe = recorded_recipe(tmp_path / work)
        assert list_of(recipe, work, "--seeds", "1 2") == [
            words[-1].removeprefix("exp/experiments/") for words in cells[work]
        ]


def list_of(recipe: Path, work: str, *options: str) -> list[str]:
    """Output of --list. Raises an error if a program is called."""
    with pytest.raises(FileNotFoundError):
        calls(recipe, f"local/experiments/{work}.sh", *options, "--list", str(recipe / "planned"))
    return (recipe / "planned").read_text().splitlines()


def test_stop_file_ends_script(tmp_path):
    recipe = recorded_recipe(tmp_path / "s5")
    (recipe / "stop").touch()
    assert [words[0] for words in calls(recipe, "local/experiments/ibm.sh")] == ["utils/subset_data_dir.py"]


def test_networks_get_their_features(cells):
    """The CNN and the DNN that is compared with it are trained on log mel energies."""
    data = {Path(words[-1]).parts[-3]: words[-4] for words in cells["chan"]}
    assert (data["cnn"], data["dnn"], data["lstm"]) == tuple(
        f"exp/experiments/data_1260_{kind}" for kind in ("fbank", "fbank", "fmllr")
    )


def test_only_named_cells_are_trained(tmp_path):
    recipe = recorded_recipe(tmp_path / "s5")
    (recipe / "rate").mkdir()  # names are not file names
    (recipe / "rate" / "gradient").touch()
    found = calls(
        recipe,
        "local/experiments/ibm.sh",
        "--seeds",
        "1 2",
        "--only",
        "batch/gradient/8192 rate/*/1-8",
        "--decode",
        "false",
    )
    cells = {words[-1].removeprefix("exp/experiments/ibm/") for words in found if words[0] in TRAINERS}
    schemes = ("gradient", "dpsgd-fixed-ring")
    assert cells == {f"batch/gradient/8192/seed{seed}" for seed in (1, 2)} | {
        *(f"rate/{scheme}/1-8/seed{seed}" for scheme in schemes for seed in (1, 2)),
        *(f"rate/{scheme}/1-8/seed1" for scheme in ("dpsgd-random-ring", "adpsgd")),
    }
