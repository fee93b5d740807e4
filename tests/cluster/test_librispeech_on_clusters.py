"""The LibriSpeech recipe under each scheduler. Slurm runs all jobs from feature extraction to a DNN on two
ranks, Grid Engine those of features, the last GMM and the DNN (all jobs: test_swbd_on_clusters.py)."""

import shutil
from dataclasses import dataclass

import librispeech_recipe
import pytest
from recipe_case import RUNNERS, digests, log_of, outputs_of_jobs, without


@dataclass(frozen=True)
class Part:
    """What a scheduler makes: outputs that are removed before, and those of its jobs."""

    removed: tuple[str, ...]
    jobs: tuple[str, ...]


PARTS = {
    "slurm": Part(
        removed=(
            "data_mini/train_clean_5/feats",
            "data_mini/dev_clean_2/feats",
            "data_mini/train_clean_5_fmllr_mini",
            "data_mini/dev_clean_2_fmllr_mini",
            "data_mini/local/dict_prons",
            "data_mini/lang_prons",
            "data_mini/lang_prons_test",
            "exp_mini",
        ),
        jobs=(
            "data_mini/train_clean_5/feats",
            "data_mini/dev_clean_2/feats",
            "data_mini/train_clean_5_fmllr_mini",
            "data_mini/dev_clean_2_fmllr_mini",
            "exp_mini/mono",
            "exp_mini/mono_ali",
            "exp_mini/tri1",
            "exp_mini/tri1_ali",
            "exp_mini/tri2b",
            "exp_mini/tri2b_ali",
            "exp_mini/tri3b",
            "exp_mini/tri3b_ali_counted",
            "exp_mini/tri3b_ali_train_clean_5",
            "exp_mini/dnn_mini",
            "exp_mini/tri2b/decode_dev_clean_2",
            "exp_mini/tri3b/decode_dev_clean_2",
            "exp_mini/dnn_mini/decode_dev_clean_2",
        ),
    ),
    "grid": Part(
        removed=(
            "data_mini/dev_clean_2/feats",
            "data_mini/dev_clean_2_fmllr_mini",
            "exp_mini/mono_ali",
            "exp_mini/tri3b",
            "exp_mini/dnn_mini",
        ),
        jobs=(
            "data_mini/dev_clean_2/feats",
            "data_mini/dev_clean_2_fmllr_mini",
            "exp_mini/mono_ali",
            "exp_mini/tri3b",
            "exp_mini/dnn_mini",
            "exp_mini/tri3b/decode_dev_clean_2",
            "exp_mini/dnn_mini/decode_dev_clean_2",
        ),
    ),
}
DECODED = ("tri2b/decode_dev_clean_2", "tri3b/decode_dev_clean_2", "dnn_mini/decode_dev_clean_2")


@pytest.fixture(scope="module")
def recipes(librispeech_run, slurm, grid, tmp_path_factory):
    """Both runs concurrently, on copies of a finished run without the outputs to be made again: {scheduler:
    (process, place)}."""
    found = {}
    for name, cluster in (("slurm", slurm), ("grid", grid)):
        place = tmp_path_factory.mktemp(name)
        shutil.copytree(librispeech_run[0] / "s5", place / "s5", symlinks=True)
        without(place / "s5", PARTS[name].removed)
        words = ("--stage", "3", "--stop-stage", "9", "--rescoring", "")
        found[name] = librispeech_recipe.start(place, *words, environment=cluster.environment), place
    yield found
    for process, _ in found.values():
        process.kill()


@pytest.mark.parametrize("name", RUNNERS)
def test_scheduler_runs_all_jobs_with_equal_results(name, recipes, librispeech_run):
    process, place = recipes[name]
    log_of(name, process, place)
    made, part = outputs_of_jobs(place / "s5"), PARTS[name]
    assert made >= set(part.jobs), set(part.jobs) - made
    here, there = librispeech_recipe.wers(librispeech_run[0]), librispeech_recipe.wers(place)
    assert there == {name: here[name] for name in DECODED}
    models = digests(place / "s5/exp_mini")
    assert len(models) >= 6 and models == digests(librispeech_run[0] / "s5/exp_mini")
