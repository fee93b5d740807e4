"""A program started with a Python without pyasr's packages, for example without `. ./path.sh`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("program", ["steps/train_dnn.py", "utils/validate_data_dir.py"])
def test_missing_environment_gives_one_sentence(program, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-S", ROOT / program, "--help"]  # -S: without site-packages
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: ") and ". ./path.sh" in ended.stderr and "numpy" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
