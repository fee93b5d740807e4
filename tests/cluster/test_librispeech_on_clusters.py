"""The LibriSpeech recipe under each scheduler: features and a DNN on two ranks, to the WER of this machine alone."""

import shutil

import librispeech_recipe
import pytest
from recipe_case import RUNNERS, log_of

MADE_THERE = ("data_mini/train_clean_5/feats", "data_mini/dev_clean_2/feats", "data_mini/train_clean_5_fmllr_mini",
              "data_mini/dev_clean_2_fmllr_mini", "exp_mini/dnn_mini")  # fmt: skip
DECODED = "dnn_mini/decode_dev_clean_2"


@pytest.fixture(scope="module")
def recipes(librispeech_run, slurm, grid, tmp_path_factory):
    """Both at once, on copies of a finished run that have lost features and network: {scheduler: (process, place)}."""
    found = {}
    for name, cluster in (("slurm", slurm), ("grid", grid)):
        place = tmp_path_factory.mktemp(name)
        shutil.copytree(librispeech_run[0] / "s5", place / "s5", symlinks=True)
        for made in MADE_THERE:
            shutil.rmtree(place / "s5" / made)
        words = ("--stage", "3", "--stop-stage", "9", "--rescoring", "")
        found[name] = librispeech_recipe.start(place, *words, environment=cluster.environment), place
    yield found
    for process, _ in found.values():
        process.kill()


@pytest.mark.parametrize("name", RUNNERS)
def test_features_and_a_network_are_made_by_the_scheduler(name, recipes, librispeech_run):
    process, place = recipes[name]
    log_of(name, process, place)
    assert all(list((place / "s5" / made / "q").glob("*.sh")) for made in MADE_THERE)
    assert librispeech_recipe.wers(place)[DECODED] == librispeech_recipe.wers(librispeech_run[0])[DECODED]
