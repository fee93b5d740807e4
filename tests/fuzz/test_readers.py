"""Damaged files of every format: each is read, or refused with one sentence that names it; within memory and time, never with a crash."""

import random
import warnings

import pytest
from fuzz_child import examine
from fuzz_formats import FORMATS
from fuzz_mutations import mutate

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
    assert not outcome.findings, "\n".join(f"file {number}: {told}" for number, told in outcome.findings[:10])
    assert bool(outcome.counts["refused"]) == format.refuses, "no damage was noticed"
