"""The Amazon Queen recipe with steps that only record their calls: for any selection of models, each step
finds its inputs."""

import re
from pathlib import Path

import pytest
from recorded_calls import RECIPE, calls, recorded_recipe

from pyasr.train.steps.smbr_step import SmbrTraining

SCRIPT = (RECIPE / "run_models.sh").read_text(encoding="utf-8")
MODELS = re.search(r'^models="([^"]*)"', SCRIPT, re.M).group(1).split()
RESCORED = re.search(r"^rescored=.*\(one of ([^)]*)\)", SCRIPT, re.M).group(1).split()
PLACE_OF_OUTPUT = {
    "steps/paste_feats.py": -3
}  # position of the output among the paths of a command; for other programs it is the last
IN_PLACE = {
    "steps/make_mfcc.py",
    "steps/make_fbank.py",
    "steps/compute_cmvn.py",
    "steps/score.py",
    "utils/validate_data_dir.py",
}
SPLIT = "local/prepare_data.py"  # makes a directory for each part of the corpus
OF_ALL = {"utils/check_install.py", "utils/collect_results.py"}  # need none in particular


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    return recorded_recipe(tmp_path_factory.mktemp("queen") / "s5")


def follow(commands: list[list[str]], made: set[str]) -> set[str]:
    """Outputs of these commands. The inputs of each must be among the outputs of earlier ones."""
    made = set(made)
    for program, *words in commands:
        if program in OF_ALL:
            continue
        paths = [word for word in words if re.match("(corpus|conf|data|exp)(/|$)", word)]
        outputs = [] if program in IN_PLACE else [paths.pop(PLACE_OF_OUTPUT.get(program, -1))]
        missing = [path for path in paths if not is_there(path, made)]
        assert not missing, f"{program} {' '.join(words)}: {missing} were not made before"
        made |= (
            {f"{path}/{part}" for path in outputs for part in ("train", "dev", "test")}
            if program == SPLIT
            else set(outputs)
        )
    return made


def is_there(path: str, made: set[str]) -> bool:
    """Whether a path is an output, in an output directory, or a file of the recipe."""
    is_file = Path(path).suffix != "" or Path(path).name == "text"
    return path in made or is_file and (str(Path(path).parent) in made or (RECIPE / path).is_file())


@pytest.fixture(scope="module")
def made(recipe) -> set[str]:
    """Outputs of run.sh."""
    return follow(calls(recipe, "run.sh"), set())


@pytest.mark.parametrize("models", [*MODELS, " ".join(MODELS)])
def test_models_find_their_inputs(models, recipe, made):
    """Each model selected alone after run.sh, and all together."""
    after = follow(calls(recipe, "run_models.sh", "--models", models, "--seeds", "1"), made)
    new = {path.split("/")[2] for path in after - made if path.startswith("exp/models/")}
    assert {"lstm_lm" if model == "lm" else model for model in models.split()} <= new


@pytest.mark.parametrize("network", RESCORED)
def test_lattices_of_any_network_are_rescored(network, recipe, made):
    """The commands have the options that the network needs, and no others."""
    commands = calls(recipe, "run_models.sh", "--models", "lm", "--rescored", network, "--seeds", "1")
    after = follow(commands, made)
    decodings = [f"decode_test{suffix}" for suffix in ("", "_fourgram", "_lstm")]
    assert {f"exp/models/{network}/seed1/{name}" for name in decodings} <= after
    assert ("exp/models/chain_tree" in after) == (network == "lfmmi")
    assert ("data/train_sp" in after) == (network in ("lfmmi", "dnn_sp"))
    scored = [
        (Path(words[-1]).name, "--decode-mbr" in words)
        for program, *words in commands
        if program == "steps/score.py" and Path(words[-1]).parent == Path(f"exp/models/{network}/seed1")
    ]
    assert [way for way in scored if way[0].startswith("decode_test")] == [
        ("decode_test", False),
        ("decode_test", True),
        ("decode_test_fourgram", False),
        ("decode_test_lstm", False),
        ("decode_test_lstm", True),
    ]


def test_all_networks_on_recipe_graph_can_be_rescored():
    """All models except CTC, which has other units, and except the language models themselves."""
    assert [model for model in MODELS if model not in ("ctc", "lm")] == RESCORED


def test_missing_input_is_detected(recipe, made):
    commands = calls(recipe, "run_models.sh", "--models", "lm", "--seeds", "1", "--stage", "2")
    with pytest.raises(
        AssertionError,
        match="train_lfmmi.py .*'data/train_sp_fmllr', 'exp/tri3_ali_sp'.* were not made before",
    ):
        follow(commands, made)


def test_students_are_as_published(recipe):
    """arXiv:1504.01483: two layers of 512 without dropout, trained on hard targets and on soft targets of a
    small and of a large model."""
    commands = calls(recipe, "run_models.sh", "--models", "student", "--seeds", "1")
    trained = {words[-1]: words for program, *words in commands if program == "steps/train_dnn.py"}
    taught = {}
    for name in ("small", "small_of_lstmp", "student", "student_of_dnn"):
        words = trained[f"exp/models/{name}/seed1"]
        at = words.index("--hidden-layers")
        assert words[at : at + 6] == ["--hidden-layers", "2", "--hidden-dim", "512", "--dropout", "0"]
        taught[name] = (
            words[-2].removeprefix("exp/"),
            words[words.index("--teacher") + 1] if "--teacher" in words else None,
        )
    assert taught == {
        "small": ("tri3_ali", None),
        "small_of_lstmp": ("models/lstmp/seed1_ali", None),
        "student": ("tri3_ali", "exp/models/lstmp/seed1"),
        "student_of_dnn": ("tri3_ali", "exp/models/dnn/seed1"),
    }


@pytest.mark.parametrize("criterion", ["smbr", "mmi"])
def test_lattices_have_scale_of_training(criterion, recipe):
    commands = calls(recipe, "run_models.sh", "--models", criterion, "--seeds", "1")
    scales = [
        words[words.index("--acoustic-scale") + 1] for _, *words in commands if words[-1].endswith("_denlats")
    ]
    assert list(map(float, scales)) == 2 * [SmbrTraining().criterion.acoustic_scale]
