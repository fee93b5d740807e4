"""Damaged files of every format are read or refused with one sentence that names the file, within memory and
time limits, without a crash."""

import random
import sys
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fuzz_child import examine
from fuzz_formats import FORMATS
from fuzz_mutations import mutate
from run import main, with_hypothesis

NUM_FILES = 60


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    format = FORMATS[name]
    path = format.write(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        format.read(path)
    valid, rng = path.read_bytes(), random.Random(name)
    files = [valid, *(mutate(rng, valid) for _ in range(NUM_FILES))]
    outcome = examine(format.read, path, files, str(tmp_path) if format.names else "")
    assert not outcome.findings, "\n".join(
        f"file {number}: {message}" for number, message in outcome.findings[:10]
    )
    assert bool(outcome.counts["refused"]) == format.refuses, "no damage was noticed"


@pytest.mark.parametrize("name", ["float.ark", "feats.scp", "lm.arpa", "vector.fst", "final.mdl"])
def test_hypothesis_finds_no_failure(name, tmp_path):
    counts, found = with_hypothesis(
        FORMATS[name], tmp_path, SimpleNamespace(seed=1, max_examples=10), time.time() + 600
    )
    assert not found and counts["refused"] and counts.total() == 10


def test_hypothesis_finds_planted_failure(tmp_path):
    """A reader that accepts the valid file once and fails in the child processes."""
    num_read = []

    def read(path):
        num_read.append(path)
        assert len(num_read) == 1

    counts, found = with_hypothesis(
        replace(FORMATS["symbols.txt"], read=read),
        tmp_path,
        SimpleNamespace(seed=1, max_examples=10),
        time.time() + 600,
    )
    assert len(found) == 1 and "AssertionError" in next(iter(found)) and counts.keys() == {"finding"}


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ["--engine", "atheris", "tree"],
            "atheris is not installed; give --engine seeded or hypothesis, or install it",
        ),
        (["--engine", "seeded", "treee"], "treee: no such format; there are final.mdl "),
    ],
)
def test_missing_fuzzers_are_reported(words, sentence, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "atheris", None)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path), *words])
    with pytest.raises(SystemExit, match=sentence):
        main()
