"""How long tests take: recorded if PYASR_KEEP_DURATIONS names a file, used by `--fast`, which runs the quick
tests alone.

tests/durations.json has the seconds of each test function, over all of its parameters, with the fixtures that
it is the first to use. Functions that take less than LISTED_S are not listed, nor are new ones; both are
quick.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
LISTED_S, QUICK_S = 0.5, 1.0
KEPT = os.environ.get("PYASR_KEEP_DURATIONS")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help=f"only tests that take less than {QUICK_S:g} s by {FILE.name}"
    )


def function_of(nodeid: str) -> str:
    """The test function of a test: `tests/x/test_y.py::test_z` of `tests/x/test_y.py::test_z[1-a]@group`."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.partition('[')[0].partition('@')[0]}"


def is_quick(item: pytest.Item, listed: dict[str, float], shared: set[str]) -> bool:
    """Whether a test is quick; one that uses any of the fixtures `shared` is not."""
    return listed.get(function_of(item.nodeid), 0.0) < QUICK_S and not shared & set(item.fixturenames)


def keep_quick(config: pytest.Config, items: list[pytest.Item], shared: set[str]) -> None:
    """Deselect all other tests if --fast is given."""
    if config.getoption("fast"):
        listed = json.loads(FILE.read_text()) if FILE.exists() else {}
        slow = [item for item in items if not is_quick(item, listed, shared)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if is_quick(item, listed, shared)]


class Recorder:
    """Adds up the seconds of the tests of a run, of all processes, and writes them to `path` at its end."""

    def __init__(self, path: Path):
        self.path, self.seconds = path, Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        listed = {
            name: round(seconds, 1) for name, seconds in sorted(self.seconds.items()) if seconds >= LISTED_S
        }
        self.path.write_text(json.dumps(listed, indent=0) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if KEPT and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(KEPT)))
