"""The recipe for Fisher and Switchboard on small discs of the same layouts, from discs to word error rates,
with its smallest models."""

import os
import re
import subprocess
from pathlib import Path

import fisher_discs
import hub5_discs
import pytest
import swbd_discs
from recorded_calls import calls, recorded_recipe
from steps_here import run_here, step_of

from pyasr.base.cli.options import parse
from pyasr.lang.lexicons.dict_dir import read_dict_dir

RECIPE = Path(__file__).parents[2] / "egs" / "fisher_swbd" / "s5"


def run(directory: Path, places: dict, *words: object, status: int = 0) -> str:
    """Output of the recipe with these options, for data and models below `directory`."""
    sizes = ["--sizes", "toy", "--nj", "1", "--num-ranks", "2", "--dir", str(directory)]
    command = [
        "./run.sh",
        *sizes,
        *(str(word) for option in places.items() for word in option),
        *map(str, words),
    ]
    done = subprocess.run(
        command,
        cwd=RECIPE,
        capture_output=True,
        text=True,
        timeout=3000,
        env={**os.environ, "PYASR_NO_PIPES": "1"},
    )
    assert done.returncode == status, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def joint_corpora(tmp_path_factory) -> dict:
    """{option: location} of all corpora."""
    root = tmp_path_factory.mktemp("corpora")
    swbd = swbd_discs.make_discs(root / "swbd")
    fisher = fisher_discs.make_discs(root / "fisher", with_speech=True, num_lines=8)
    eval2000 = hub5_discs.make_eval2000(root / "eval2000")
    return {
        "--swbd": swbd.root,
        "--fisher": ":".join(fisher.places),
        "--eval2000-audio": eval2000.audio,
        "--eval2000-text": eval2000.text,
    }


def test_joint_dictionary(joint_corpora, tmp_path):
    """Words of either text, acronyms of Switchboard's dictionary with phones of the CMU dictionary, noises of
    both."""
    (tmp_path / "text").write_text("a i know [vocalized-noise] i._b._m.\nb c._n._n. moon [laughter] zzxq\n")
    places = joint_corpora["--swbd"], tmp_path / "text", tmp_path / "dict"
    run_here("prepare_joint_dict.py", "--swbd", *places, folder="egs/fisher_swbd/s5/local")
    found = read_dict_dir(tmp_path / "dict")
    assert {
        "i",
        "know",
        "moon",
        "i._b._m.",
        "c._n._n.",
        "t._v.s",
        "w.",
    } <= found.lexicon.entries.keys() and "zzxq" not in found.lexicon
    assert ("d", "ah", "b", "ah", "l", "y", "uw") in found.lexicon.pronunciations("w.")
    assert found.lexicon.pronunciations("[vocalized-noise]") == [("noise",)]
    assert {"ax", "en", "el"}.isdisjoint(found.lexicon.phones())
    assert [phone for group in found.silence for phone in group] == ["sil", "laughter", "noise", "oov"]


@pytest.mark.parametrize(
    "batch, ranks, minibatch, rate", [(8192, 16, 10752, 3.2), (2560, 16, 3360, 1.0), (256, 1, 5376, 0.1)]
)
def test_network_learns_at_published_rate(batch, ranks, minibatch, rate, tmp_path):
    """0.1 for 256 segments in torch; a tenth of it at first; ten times more here, where steps are 1 - 0.9
    times torch's."""
    found = calls(
        recorded_recipe(tmp_path / "s5", RECIPE),
        "run.sh",
        "--stage",
        "9",
        "--batch",
        str(batch),
        "--num-ranks",
        str(ranks),
    )
    (command,) = [words for words in found if words[0] == "steps/train_dnn.py"]
    options, _ = parse(
        step_of("train_dnn.py")[1],
        [str(RECIPE / word) if word.startswith("conf/") else word for word in command[1:]],
    )
    training = options.training
    assert (training.learner.minibatch, training.mixing.parallel) == (minibatch, "adpsgd")
    assert (
        training.schedule.learning_rate,
        training.schedule.warm_up_factor,
        training.schedule.lr_scaling,
    ) == (rate, 10, "none")
    assert (training.learner.momentum, training.over_time.chunk, training.schedule.num_epochs) == (
        0.9,
        21,
        16,
    )


def test_network_on_a_ring(tmp_path):
    """Its directory is named after the topology."""
    found = calls(
        recorded_recipe(tmp_path / "s5", RECIPE), "run.sh", "--stage", "9", "--topology", "random-ring"
    )
    (command,) = [words for words in found if words[0] == "steps/train_dnn.py"]
    assert command[command.index("--parallel") : command.index("--parallel") + 4] == [
        "--parallel",
        "adpsgd",
        "--topology",
        "random-ring",
    ]
    assert command[-1].endswith("/blstm_adpsgd_random-ring")


def test_recipe_runs_from_discs_to_word_error_rates(joint_corpora, tmp_path):
    run(tmp_path, joint_corpora)
    results = (tmp_path / "exp/RESULTS.md").read_text()
    for system, most in (("tri6a", 80), ("blstm_adpsgd", 90)):
        for test in ("train_dev", "eval2000"):
            wer = re.search(
                r"WER ([\d.]+)", (tmp_path / "exp" / system / f"decode_{test}" / "best_wer").read_text()
            )[1]
            assert float(wer) < most, (system, test, wer)
        assert f"| {system} " in results
    assert (tmp_path / "exp/blstm_adpsgd/decode_eval2000_4g/best_wer").exists()


def test_wrong_and_missing_discs_are_reported(joint_corpora, tmp_path):
    (tmp_path / "empty").mkdir()
    for option, sentence in (
        ("--swbd", "prepare_swbd.py: error: Switchboard-1 Release 2 (LDC97S62): no sw0NNNN.sph"),
        (
            "--fisher",
            (
                "prepare_fisher.py: error: Fisher English speech (LDC2004S13, LDC2005S13): no "
                "audio/NNN/fe_03_NNNNN.sph"
            ),
        ),
    ):
        output = run(tmp_path / "run", {**joint_corpora, option: tmp_path / "empty"}, status=1)
        assert sentence in output and f" below {tmp_path}/empty; give its directory with {option}" in output


def test_plan_runs_no_program_of_other_recipes(tmp_path):
    output = run(tmp_path / "run", {"--swbd": tmp_path}, "--plan", "true", status=1)
    assert (
        "no sw0NNNN.sph" not in output
        and "data/swbd/train does not exist" in output
        and "then plan" in output
    )
