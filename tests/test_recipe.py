"""The toy recipe from audio to WER: run once, run again, and killed during the run."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from startup import HEAVY
from steps_here import run_here
from toy_recipe import run, start, wers


def strays(directory: Path) -> list[str]:
    """Command lines of live processes that mention `directory`."""
    lines = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if str(directory) in line and "pytest" not in line]


def wait_until(condition, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


def test_smallest_corpus_accepted_by_recipe():
    toy = Path(__file__).parents[1] / "egs/toy/s5"
    output = re.search(r"^num_train=.*\(at least (\d+)\)", (toy / "run.sh").read_text(encoding="utf-8"), re.M)
    needed = re.search(
        r"^ *num_train: .*minimum=(\d+)", (toy / "local/make_corpus.py").read_text(encoding="utf-8"), re.M
    )
    assert output[1] == needed[1]


def test_recipe_ends_with_good_word_error_rates(toy_run):
    _, found = toy_run
    assert set(found) == {"mono", "tri3", "dnn"}
    for system, line in found.items():
        wer = float(re.search(r"WER ([\d.]+)", line).group(1))
        assert wer < 40, f"{system}: {line}"


def test_non_ascii_word_is_recognised(toy_run):
    directory, _ = toy_run
    lines = (directory / "exp/tri3/decode_test/scoring/per_utt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if " hyp " in line and "noël" in line]


def test_user_word_loop_is_decoded(toy_run, tmp_path):
    """A grammar in text form, processed by the recipe's programs for its n-gram model."""
    directory, _ = toy_run
    data, model = directory / "data", directory / "exp/mono"
    words = [line.split()[0] for line in (data / "lang/words.txt").read_text(encoding="utf-8").splitlines()]
    loop = "".join(
        f"0 0 {word} 2.5\n" for word in words if word not in ("<eps>", "<unk>", "#0", "<s>", "</s>")
    )
    (tmp_path / "loop.txt").write_text(f"{loop}0\n", encoding="utf-8")
    run_here("make_grammar.py", data / "lang", tmp_path / "loop.txt", tmp_path / "lang", folder="utils")
    run_here("make_graph.py", tmp_path / "lang", model, tmp_path / "graph", folder="utils")
    run_here(
        "decode.py", "--nj", 1, "--model-dir", model, tmp_path / "graph", data / "test", tmp_path / "decode"
    )
    run_here("score.py", "--nj", 1, data / "test", tmp_path / "lang", tmp_path / "decode")
    assert float(re.search(r"WER ([\d.]+)", (tmp_path / "decode/best_wer").read_text()).group(1)) < 20


RECORDER = """
import atexit, os, sys
def record():
    words = [os.path.basename(sys.argv[0]), *sorted(sys.modules)]
    open(os.environ["IMPORTED"], "a").write(" ".join(words) + "\\n")
atexit.register(record)
"""
STEPS = Path(__file__).parents[1] / "steps"


def test_second_run_is_up_to_date(toy_run, tmp_path):
    """Without importing libraries that only the work needs."""
    directory, found = toy_run
    made = {p: p.stat().st_mtime_ns for p in directory.glob("exp/**/final.*")}
    (tmp_path / "sitecustomize.py").write_text(RECORDER)
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    output = run(
        directory, 90, environment={**os.environ, "PYTHONPATH": paths, "IMPORTED": str(tmp_path / "imported")}
    )
    lines = [
        line
        for line in output.splitlines()
        if re.match(r"[\d:]{8} \w+\.py: ", line) and "validate_data_dir.py" not in line
    ]
    assert len(lines) > 30 and not [line for line in lines if not line.endswith(" is up to date")]
    imported = [line.split() for line in (tmp_path / "imported").read_text().splitlines()]
    of_steps = [words for words in imported if (STEPS / words[0]).is_file()]
    assert len(of_steps) > 20 and not [words[0] for words in of_steps if set(HEAVY) & set(words)]
    assert wers(directory) == found
    assert made == {p: p.stat().st_mtime_ns for p in directory.glob("exp/**/final.*")}


def test_lost_features_are_computed_again(toy_run):
    """By the same command."""
    archive = toy_run[0] / "data/test/feats/raw.2.ark"
    content = archive.read_bytes()
    archive.unlink()
    run(toy_run[0], 90, "--stop-stage", "3")
    assert archive.read_bytes() == content


def test_run_killed_at_random_moments_resumes_to_same_word_error_rates(toy_run, tmp_path):
    _, expected = toy_run
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    chance = random.Random(20)
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = start(tmp_path)
        try:
            process.wait(chance.uniform(5, 25))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, how)
            process.wait(10)
            wait_until(lambda: not strays(tmp_path), 10)
        assert not strays(tmp_path), "processes outlived the killed recipe"
    run(tmp_path)
    assert wers(tmp_path) == expected
    assert not list(tmp_path.glob("exp/**/*.tmp")), "incomplete outputs were left"
