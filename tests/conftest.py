"""Shared configuration of all tests: paths, fixtures, and an environment like that of path.sh."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
# Groups of tests that use the same slow fixture, for which they wait most of their time.
SHARED = {
    "toy_run": "recipe",
    "grid_of_hosts": "training",
    "uninterrupted": "training",
    "librispeech_run": "slurm",
    "slurm": "slurm",
    "swbd_corpora": "swbd",
    "joint_corpora": "fisher_swbd",
    "fisher_corpora": "fisher",
    "own_recipe": "own",
    "grid": "grid",
}
# Groups to start with, the longest first. Only the first of them compiles the kernels of recipes; the others
# find them compiled.
ORDER = ("recipe", "training", "grid", "slurm", "swbd", "fisher_swbd", "fisher", "own")
# Files with few, slow tests. They come next, so that no process is left with only one of them at the end.
LONG = (
    "test_lost_ranks.py",
    "test_train_dnn.py",
    "test_environment.py",
    "test_injected_faults.py",
    "test_batch.py",
    "test_any_length.py",
    "test_published_trainings.py",
    "test_comm.py",
    "test_kernels.py",
    "test_kaldi_networks.py",
)
HELPERS = [
    path for path in sorted((ROOT / "tests").rglob("*/")) if not {"__pycache__", "fixtures"} & set(path.parts)
]
# test files may share names in different folders, helper modules may not
OF_A_RECIPE = ROOT / "egs/amazon_queen/s5/local"  # has a package that makes a page, `comparison`
for path in (ROOT, ROOT / "tests", *HELPERS, OF_A_RECIPE):
    if str(path) not in sys.path:
        sys.path.append(str(path))

# found by the paths above
from durations import keep_quick, pytest_addoption, pytest_configure  # noqa: E402, F401

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LC_ALL"] = "C"
os.environ["PYTHONUTF8"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), str(ROOT / "utils"), str(ROOT / "steps"), os.environ["PATH"]]
)
for name in ("PYASR_KEEP_DURATIONS", "PYASR_SUPERVISED", "PYASR_STEP", "PYASR_MPIEXEC", "PYASR_GPUS_HELD"):
    os.environ.pop(name, None)

# slow examples are allowed
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def group_of(item: pytest.Item) -> str:
    """Name of the group of tests that run in the same process: a group of `SHARED`, else the file."""
    return next((group for fixture, group in SHARED.items() if fixture in item.fixturenames), str(item.path))


@pytest.hookimpl(tryfirst=True)  # before xdist looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assign each test its group; with several processes, the groups of `ORDER` run first, then `LONG`, then
    groups by number of tests."""
    keep_quick(config, items, set(SHARED))
    groups = {item: group_of(item) for item in items}
    sizes = Counter(groups.values())
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        places = {group: (_place(group), -sizes[group], group) for group in sizes}
        items.sort(key=lambda item: places[groups[item]])


def _place(group: str) -> int:
    """Position of a group: groups of `ORDER` first, then those of `LONG`, then all others."""
    return ORDER.index(group) if group in ORDER else len(ORDER) + (Path(group).name not in LONG)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory):
    """Use separate GPU locks from other work on this machine."""
    os.environ["PYASR_LOCKS"] = str(tmp_path_factory.mktemp("locks"))


@pytest.fixture
def jobs_import_tests(monkeypatch) -> None:
    """The jobs and ranks of a test can import the helper modules of all tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, HELPERS), os.environ["PYTHONPATH"]]))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A finished run of the toy recipe on this machine: (its directory, its WER lines)."""
    import toy_recipe  # found by the paths above

    directory = tmp_path_factory.mktemp("toy")
    toy_recipe.run(directory)
    return directory, toy_recipe.wers(directory)


@pytest.fixture(scope="session")
def librispeech_run(tmp_path_factory) -> tuple[Path, str]:
    """A finished run of the LibriSpeech recipe at toy size: (directory of corpus, models and recipe; its
    output)."""
    import librispeech_recipe

    place = tmp_path_factory.mktemp("librispeech")
    librispeech_recipe.make(place)
    return place, librispeech_recipe.run(place)
