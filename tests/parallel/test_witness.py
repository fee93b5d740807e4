"""A witness ends as its rank does, and leaves a word on it as long as anybody wants to know."""

import signal
import subprocess
import sys

import pytest

from pyasr.base.last_words import first

RANK = """
import os, shutil, sys, time
from pathlib import Path
from pyasr.parallel.witness import Witness

words, hearts = map(Path, sys.argv[1:3])
witness = Witness(words, 60.0, hearts)
witness.introduce("rank 1 of 2 on node3")
while not [heart for heart in hearts.glob("*") if "node3" in heart.read_text()]:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("end, status, sentence", [
    ("os.abort()", -signal.SIGABRT, "rank 1 of 2 on node3 died without a word: "),
    ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "rank 1 of 2 on node3 died without a word: "),
    ("os._exit(0)", 0, "rank 1 of 2 on node3 died without a word: "),
    ("shutil.rmtree(hearts); os._exit(3)", 3, None),
    ("witness.dismiss()", 0, None),
    ("witness.dismiss(); os._exit(1)", 1, None),
])  # fmt: skip
def test_witness(end, status, sentence, tmp_path):
    words = tmp_path / "words"
    done = subprocess.run([sys.executable, "-c", RANK + end, words, tmp_path / "hearts"], stdout=subprocess.PIPE, timeout=300)
    assert done.returncode == status
    left = first(words)
    assert (left and left.sentence.startswith(sentence)) if sentence else left is None
    assert not list(tmp_path.glob("hearts/*"))
