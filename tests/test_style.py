"""The code passes the formatter, the linter and the type checker with the settings of pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "words",
    [["ruff", "check", "--no-cache", "."], ["ruff", "format", "--no-cache", "--check", "."], ["mypy"]],
    ids=["lint", "format", "types"],
)
def test_style(words, tmp_path):
    cache = ["--cache-dir", str(tmp_path)] if words == ["mypy"] else []
    done = subprocess.run([sys.executable, "-m", *words, *cache], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_no_pragma_is_without_its_rule():
    """`# noqa` and `# type: ignore` name what they permit."""
    blanket = [
        f"{path}:{number}"
        for folder in ("pyasr", "steps", "utils", "egs", "benchmarks", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.rstrip().endswith(("# noqa", "# type: ignore"))
    ]
    assert not blanket
