"""Recorded durations of tests, by which --fast selects."""

import json
import re
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


@pytest.mark.parametrize(
    "seconds, fixtures, quick", [(QUICK_S - 0.1, [], True), (QUICK_S, [], False), (0.0, ["slurm"], False)]
)
def test_quick_tests_are_short_and_use_no_slow_fixture(seconds, fixtures, quick):
    item = SimpleNamespace(nodeid="t.py::test[1]", fixturenames=fixtures)
    assert is_quick(item, {"t.py::test": seconds}, {"slurm"}) == quick


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
    assert listed and not lost, f"{FILE.name} lists {lost[:5]}; record it again with PYASR_KEEP_DURATIONS"
