"""`--version` of programs, job runners and recipes; the version of the package."""

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pyasr

ROOT = Path(__file__).parents[2]
KINDS = [
    ["steps/train_dnn.py", "data/train", "--version"],
    ["utils/validate_data_dir.py", "--version"],
    ["utils/supervise.py", "--version"],
    ["utils/build_environment.py", "--version"],
    ["utils/run.pl", "--version"],
    ["utils/slurm.pl", "--version"],
    ["utils/queue.pl", "--version"],
    ["egs/toy/s5/run.sh", "--version"],
]


@pytest.mark.parametrize("words", KINDS, ids=lambda words: words[0])
def test_version_option_prints_version(words):
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pyasr {pyasr.__version__}\n", "")


def test_help_lists_version_option():
    done = subprocess.run(["steps/score.py", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"^  --version +show pyasr's version$", done.stdout, re.MULTILINE)


def test_changelog_names_current_version():
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == pyasr.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """The wheel of a copy of the sources."""
    place = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    shutil.copytree(ROOT / "pyasr", place / "pyasr", ignore=shutil.ignore_patterns("__pycache__"))
    words = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", place, place]
    subprocess.run([sys.executable, "-m", *words], check=True)
    return zipfile.ZipFile(place / f"pyasr-{pyasr.__version__}-py3-none-any.whl")


def test_wheel_contains_all_modules(wheel):
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "pyasr").rglob("*.py")}
    assert modules | {"pyasr/py.typed"} <= set(wheel.namelist())


def test_pinned_versions_are_in_ranges_of_wheel(wheel):
    text = wheel.read(f"pyasr-{pyasr.__version__}.dist-info/METADATA").decode()
    ranges = [Requirement(line) for line in email.message_from_string(text).get_all("Requires-Dist")]
    pinned = [line.partition("#")[0] for line in (ROOT / "requirements.txt").read_text().splitlines()]
    versions = {one.name: [*one.specifier][0].version for one in map(Requirement, filter(str.strip, pinned))}
    needed = [one for one in ranges if not one.marker]
    assert {one.name for one in needed} <= set(versions)
    assert all(one.specifier.contains(versions[one.name]) for one in needed)
