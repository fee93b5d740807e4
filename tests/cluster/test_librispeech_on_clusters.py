"""The LibriSpeech recipe under each scheduler, from feature extraction to a DNN on two ranks: the WERs are those of this machine alone."""

import shutil

import librispeech_recipe
import pytest

RUNNERS = {"slurm": ("slurm.pl", "slurm.pl"), "grid": ("queue.pl", "queue.pl --gpu 1")}
MADE_THERE = ("data_mini/train_clean_5/feats", "data_mini/dev_clean_2/feats", "data_mini/dev_clean_2_fmllr_mini", "exp_mini/dnn_mini")


@pytest.fixture(scope="module")
def recipes(librispeech_run, slurm, grid, tmp_path_factory):
    """Both at once, on copies of a finished run that have lost features and network: {scheduler: (process, place)}."""
    found = {}
    for name, cluster in (("slurm", slurm), ("grid", grid)):
        place = tmp_path_factory.mktemp(name)
        shutil.copytree(librispeech_run[0] / "s5", place / "s5", symlinks=True)
        for made in MADE_THERE:
            shutil.rmtree(place / "s5" / made)
        found[name] = librispeech_recipe.start(place, "--stage", "3", environment=cluster.environment), place
    yield found
    for process, _ in found.values():
        process.kill()


@pytest.mark.parametrize("name", RUNNERS)
def test_features_and_a_network_are_made_by_the_scheduler(name, recipes, librispeech_run):
    process, place = recipes[name]
    said = place / "recipe.log"
    assert process.wait(600) == 0, said.read_text()[-4000:]
    assert "jobs are run by {}, those that train networks by {} (cmd.sh)".format(*RUNNERS[name]) in said.read_text()
    assert all(list((place / "s5" / made / "q").glob("*.sh")) for made in MADE_THERE)
    assert librispeech_recipe.wers(place) == librispeech_recipe.wers(librispeech_run[0])
