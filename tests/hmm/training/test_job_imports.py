"""A job imports neither numba nor torch if its kernels are already compiled."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gmm_corpus import write_corpus
from startup import HEAVY

from pyasr.base.cli import options
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.model.gmm_update import GmmUpdateOptions
from pyasr.hmm.training.align_gmm import AlignSpec, parts_to_align
from pyasr.hmm.training.train_gmm import GmmScheduleOptions, TrainOptions
from pyasr.hmm.training.train_mono import MonoSpec, train_rank
from pyasr.parallel.communication.comm import SoloComm

NEEDED = {"llvmlite", "kaldiio"}  # they load kernels and read features
IN_VAIN = {
    *HEAVY,
    "importlib.metadata",
    "email.message",
    "difflib",
    "http",
    "asyncio",
    "multiprocessing",
    "unittest",
    "argparse",
} - NEEDED


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> AlignSpec:
    path = tmp_path_factory.mktemp("job")
    corpus = write_corpus(path / "corpus", num_utterances=8, seed=5, strength=0.25)
    for name in ("mono", "ali"):
        (path / name).mkdir()
    train = TrainOptions(
        GmmScheduleOptions(num_iters=2, num_gauss=20, realign_iters="1"),
        AlignOptions(),
        GmmUpdateOptions(min_count=5.0),
    )
    train_rank(MonoSpec(*corpus, path / "mono", train, InputOptions()), SoloComm())
    return AlignSpec(*corpus, path / "mono", path / "ali", 1, AlignOptions(), 1.0)


def imports_of_job(spec: AlignSpec) -> set[str]:
    """The modules that a job imports."""
    path: Path = spec.out / "align.spec.json"
    options.save(path, spec)
    words = [
        sys.executable,
        "-m",
        "pyasr.base.jobs.job",
        "pyasr.hmm.training.align_gmm:align_shard",
        str(path),
        "1",
    ]
    with parts_to_align(spec):
        environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "8 utterances aligned" in done.stdout
    return set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.M))


def test_jobs_import_only_what_they_need(spec):
    imports_of_job(spec)  # compiles the kernels that the training did not compile
    found = imports_of_job(spec)
    assert found >= NEEDED and not found & IN_VAIN
