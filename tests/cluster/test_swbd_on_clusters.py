"""The Switchboard recipe under each scheduler. Grid Engine runs all jobs from feature extraction to a DNN on
two ranks, then Slurm those of some of the outputs (all jobs: test_librispeech_on_clusters.py)."""

import os
import re
import shutil
import subprocess

import pytest
import swbd_discs
from recipe_case import RUNNERS, WAIT_S, digests, log_of, outputs_of_jobs, without
from runner_case import ROOT

RECIPE = ROOT / "egs" / "swbd" / "s5"
CALL = "sw04519"
MODELS = ("mono", "tri1", "tri2", "tri3", "tri4", "dbn", "dnn")
ON_SLURM = ("data/train_dev_fmllr", "exp/tri1", "exp/dbn", "exp/dnn")


def start(place, discs, *words, environment=None):
    """Start the recipe in its own process group, with output in PLACE/recipe.log."""
    command = ["./run.sh", "--toy", "true", "--nj", "1", "--dir", place, "--swbd", discs, *words]
    with (place / "recipe.log").open("w") as log:
        return subprocess.Popen(
            command,
            cwd=RECIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**(environment or os.environ), "PYASR_NO_PIPES": "1"},
        )


@pytest.fixture(scope="module")
def discs(tmp_path_factory):
    return swbd_discs.make_discs(tmp_path_factory.mktemp("swbd")).root


@pytest.fixture(scope="module")
def places(discs, tmp_path_factory):
    """{scheduler: directory}, each with the data and lang directories that were prepared without a
    scheduler."""
    first = tmp_path_factory.mktemp("prepared")
    process = start(first, discs, "--stop-stage", "2")
    assert process.wait(WAIT_S) == 0, (first / "recipe.log").read_text()
    return {name: shutil.copytree(first, first.with_name(f"swbd_{name}")) for name in RUNNERS}


@pytest.fixture(scope="module")
def run(slurm, grid, places, discs):
    """Function (words, status) that runs the recipe under both schedulers concurrently; returns {scheduler:
    log}."""
    environments = {"slurm": slurm.environment, "grid": grid.environment}

    def run(*words, status=0):
        running = {
            name: start(place, discs, *words, environment=environments[name])
            for name, place in places.items()
        }
        try:
            return {name: log_of(name, process, places[name], status) for name, process in running.items()}
        finally:
            for process in running.values():
                process.kill()

    return run


@pytest.fixture(scope="module")
def failed(run, discs):
    """Logs of runs with two jobs, one of which finds a truncated recording. The recording is restored
    afterwards."""
    [recording] = discs.rglob(f"{CALL}.sph")
    content = recording.read_bytes()
    recording.write_bytes(content[:-1000])
    logs = run("--stage", "3", "--stop-stage", "3", "--nj", "2", status=1)
    recording.write_bytes(content)
    return logs


@pytest.fixture(scope="module")
def finished(failed, places, discs, slurm, grid, tmp_path_factory):
    """{scheduler: directory} of all stages from features to the DNN. Slurm finds what Grid Engine has made,
    except `ON_SLURM`."""
    place, kept = places["grid"], tmp_path_factory.mktemp("kept") / "grid"
    for name, cluster in (("grid", grid), ("slurm", slurm)):
        words = ("--stage", "3", "--stop-stage", "11")
        process = start(place, discs, *words, environment=cluster.environment)
        try:
            log_of(name, process, place)
        finally:
            process.kill()
        if name == "grid":
            shutil.copytree(place, kept)
            without(place, ON_SLURM)
    return {"slurm": place, "grid": kept}


@pytest.mark.parametrize("name", RUNNERS)
def test_failing_job_is_reported_in_one_sentence(name, failed, places):
    """The report has the log, which contains the same sentence, then the recipe's stage and command."""
    said, runner = failed[name], RUNNERS[name][0]
    log = rf"{places[name]}/data/train/feats\.tmp/log/extract\.2\.log"
    reason = rf"{CALL}-[AB]: \S+/{CALL}\.sph: cut short, .*; replace the file or remove its utterances"
    assert re.search(rf"(?m)^make_plp\.py: error: job 2 of 2 failed: {reason} \(log: {log}\)$", said), said
    assert said.count("cut short") == 1 and said.count(f"{runner}: 1 / 2 failed, log is in ") == 1
    assert re.search(
        r"(?m)^run\.sh: error: stage 3 \(Features\): 'steps/make_plp\.py .*' failed with status 1 \(.*\)$",
        said,
    )


def test_schedulers_run_all_jobs(finished):
    made = {name: outputs_of_jobs(place) for name, place in finished.items()}
    wanted = {"data/train/feats", *(f"exp/{model}" for model in MODELS), "exp/dnn/decode_train_dev"}
    assert made["grid"] >= wanted
    again = tuple(f"{made}/" for made in ON_SLURM)
    assert made["slurm"] == {name for name in made["grid"] if f"{name}/".startswith(again)}


def test_both_schedulers_give_same_models(finished):
    made = {name: digests(place / "exp") for name, place in finished.items()}
    assert made["slurm"] == made["grid"] and set(MODELS) <= {str(path.parent) for path in made["grid"]}


@pytest.mark.parametrize("name", RUNNERS)
def test_network_recognises_speech(name, finished):
    found = (finished[name] / "exp/dnn/decode_train_dev/best_wer").read_text()
    assert float(re.search(r"WER ([\d.]+)", found)[1]) < 60
