"""How long tests take: recorded if PYASR_KEEP_DURATIONS names a file, used by `--fast`, which runs the quick
tests alone.

tests/durations.json has the seconds of each test function, over all of its parameters, and of each fixture
of a module, for which its first test waits; fixtures of all tests are in `SHARED` of conftest.py. What takes
less than LISTED_S is not listed, nor is what is new. A test is quick if it takes less than QUICK_S, and each
of its fixtures does.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
LISTED_S, QUICK_S = 0.5, 1.0
KEPT = os.environ.get("PYASR_KEEP_DURATIONS")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help=f"only tests that take, with each of their fixtures, less than {QUICK_S:g} s by {FILE.name}",
    )


def function_of(nodeid: str) -> str:
    """The test function of a test: `tests/x/test_y.py::test_z` of `tests/x/test_y.py::test_z[1-a]@group`."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.partition('[')[0].partition('@')[0]}"


def fixture_of(nodeid: str, name: str) -> str:
    """A fixture of the module of a test: `tests/x/test_y.py::name`."""
    return f"{nodeid.partition('::')[0]}::{name}"


def is_quick(item: pytest.Item, listed: dict[str, float], shared: set[str]) -> bool:
    """Whether a test is quick; one that uses any of the fixtures `shared` is not."""
    waits = [function_of(item.nodeid), *(fixture_of(item.nodeid, name) for name in item.fixturenames)]
    return all(listed.get(name, 0.0) < QUICK_S for name in waits) and not shared & set(item.fixturenames)


def keep_quick(config: pytest.Config, items: list[pytest.Item], shared: set[str]) -> None:
    """Deselect all other tests if --fast is given."""
    if config.getoption("fast"):
        listed = json.loads(FILE.read_text()) if FILE.exists() else {}
        slow = [item for item in items if not is_quick(item, listed, shared)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if is_quick(item, listed, shared)]


class FixtureTimer:
    """Adds to the report on the set-up of a test the seconds of the fixtures of its module, {name: seconds},
    that it was the first to use: `fixture_seconds`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "module" and fixturedef.baseid.endswith(".py"):
                self._seconds[fixturedef.argname] = time.perf_counter() - begin

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "setup":
            report.fixture_seconds, self._seconds = self._seconds, {}
        return report


class Recorder:
    """Adds up the seconds of the tests and fixtures of a run, of all processes, and writes them to `path` at
    its end."""

    def __init__(self, path: Path):
        self.path, self.seconds = path, Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        of_fixtures = getattr(report, "fixture_seconds", {})
        self.seconds[function_of(report.nodeid)] += report.duration - sum(of_fixtures.values())
        for name, seconds in of_fixtures.items():
            self.seconds[fixture_of(report.nodeid, name)] += seconds

    def pytest_sessionfinish(self) -> None:
        listed = {
            name: round(seconds, 1) for name, seconds in sorted(self.seconds.items()) if seconds >= LISTED_S
        }
        self.path.write_text(json.dumps(listed, indent=0) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FixtureTimer())
    if KEPT and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(KEPT)))
