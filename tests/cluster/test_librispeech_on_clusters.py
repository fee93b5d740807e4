"""The LibriSpeech recipe under each scheduler: all jobs from feature extraction to a DNN on two ranks."""

import shutil

import librispeech_recipe
import pytest
from recipe_case import RUNNERS, log_of, outputs_of_jobs

MADE_THERE = (
    "data_mini/train_clean_5/feats",
    "data_mini/dev_clean_2/feats",
    "data_mini/train_clean_5_fmllr_mini",
    "data_mini/dev_clean_2_fmllr_mini",
    "data_mini/local/dict_prons",
    "data_mini/lang_prons",
    "data_mini/lang_prons_test",
    "exp_mini",
)
MODELS = (
    "mono",
    "mono_ali",
    "tri1",
    "tri1_ali",
    "tri2b",
    "tri2b_ali",
    "tri3b",
    "tri3b_ali_counted",
    "tri3b_ali_train_clean_5",
    "dnn_mini",
)
DECODED = ("tri2b/decode_dev_clean_2", "tri3b/decode_dev_clean_2", "dnn_mini/decode_dev_clean_2")


@pytest.fixture(scope="module")
def recipes(librispeech_run, slurm, grid, tmp_path_factory):
    """Both runs concurrently, on copies of a finished run without the outputs after the dictionary:
    {scheduler: (process, place)}."""
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
def test_scheduler_runs_all_jobs_with_equal_results(name, recipes, librispeech_run):
    process, place = recipes[name]
    log_of(name, process, place)
    wanted = {*MADE_THERE[:4], *(f"exp_mini/{made}" for made in (*MODELS, *DECODED))}
    assert outputs_of_jobs(place / "s5") >= wanted, wanted - outputs_of_jobs(place / "s5")
    here, there = librispeech_recipe.wers(librispeech_run[0]), librispeech_recipe.wers(place)
    assert there == {name: here[name] for name in DECODED}
