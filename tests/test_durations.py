"""Recorded durations of tests, by which --fast selects."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from durations import FILE, LISTED_S, QUICK_S, Recorder, function_of, is_quick

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "nodeid",
    [
        "tests/x/test_y.py::test_z",
        "tests/x/test_y.py::test_z[a::b-1]",
        "tests/x/test_y.py::test_z[a@b]@tests/x/test_y.py",
    ],
)
def test_parameters_and_groups_map_to_one_function(nodeid):
    assert function_of(nodeid) == "tests/x/test_y.py::test_z"


def test_durations_of_phases_and_parameters_are_summed(tmp_path):
    recorder = Recorder(tmp_path / "seconds.json")
    for nodeid, seconds in [
        ("t.py::slow[1]", 0.4),
        ("t.py::slow[2]", 0.3),
        ("t.py::slow[2]", 0.25),
        ("t.py::quick", LISTED_S / 2),
    ]:
        recorder.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))
    recorder.pytest_sessionfinish()
    assert json.loads((tmp_path / "seconds.json").read_text()) == {"t.py::slow": pytest.approx(0.9, abs=0.06)}


PAIR = """
import time, pytest

@pytest.fixture(scope="module", params=[1, 2])
def slow(request):
    time.sleep(0.3)

@pytest.fixture(scope="module")
def slower(slow):
    time.sleep(0.4)

def test_first(slower):
    pass

def test_second(slow):
    pass
"""


def test_fixtures_of_modules_are_recorded_apart(tmp_path):
    """Without the first test, the second one waits for them."""
    shutil.copy(FILE.with_suffix(".py"), tmp_path / "conftest.py")
    (tmp_path / "test_pair.py").write_text(PAIR)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    kept = tmp_path / "kept.json"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env=os.environ | {"PYASR_KEEP_DURATIONS": str(kept)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert json.loads(kept.read_text()).keys() == {"test_pair.py::slow", "test_pair.py::slower"}


@pytest.mark.parametrize(
    "seconds, fixtures, quick", [(QUICK_S - 0.1, [], True), (QUICK_S, [], False), (0.0, ["slurm"], False)]
)
def test_quick_tests_are_short_and_use_no_slow_fixture(seconds, fixtures, quick):
    item = SimpleNamespace(nodeid="t.py::test[1]", fixturenames=fixtures)
    assert is_quick(item, {"t.py::test": seconds}, {"slurm"}) == quick


def test_quick_tests_have_quick_fixtures():
    item = SimpleNamespace(nodeid="t.py::test[1]", fixturenames=["made", "tmp_path"])
    assert is_quick(item, {"u.py::made": QUICK_S}, set()) and not is_quick(
        item, {"t.py::made": QUICK_S}, set()
    )


def test_listed_functions_exist():
    """A renamed test would count as quick."""
    listed = json.loads(FILE.read_text())
    texts = {
        path: (ROOT / path).read_text() if (ROOT / path).exists() else ""
        for path in {name.partition("::")[0] for name in listed}
    }
    lost = [
        name
        for name in listed
        if not re.search(rf"^ *def {name.rpartition('::')[2]}\(", texts[name.partition("::")[0]], re.M)
    ]
    assert listed and not lost, f"{FILE.name} lists {lost[:5]}; tests/run.sh records it again"


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("pyasr/*/__init__.py")))
def test_every_package_has_quick_tests(package):
    slow = {name for name, seconds in json.loads(FILE.read_text()).items() if seconds >= QUICK_S}
    quick = [
        name
        for path in (ROOT / "tests" / package).rglob("test_*.py")
        for name, arguments in re.findall(r"(?m)^def (test_\w+)\(([^)]*)\)", path.read_text())
        if not slow & {f"{path.relative_to(ROOT)}::{used.strip()}" for used in [name, *arguments.split(",")]}
    ]
    assert quick
