"""What all tests share: where things are, and an environment like the one path.sh makes."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
# Fixtures that take long to be made, and whose tests wait most of their time: the group of the tests that use them.
SHARED = {"toy_run": "recipe", "grid_of_hosts": "training", "undisturbed": "training", "librispeech_run": "slurm", "slurm": "slurm",
          "swbd_corpora": "swbd", "joint_corpora": "fisher_swbd", "fisher_corpora": "fisher", "own_recipe": "own", "grid": "grid"}
# The groups to begin with, the longest first. Only the first of them compiles the kernels of recipes; the others find them compiled.
ORDER = ("recipe", "training", "grid", "slurm", "swbd", "fisher_swbd", "fisher", "own")
# Files of few tests that take long. They come next, so that no process has only one of them left in the end.
LONG = ("test_lost_ranks.py", "test_train_dnn.py", "test_environment.py", "test_faults.py", "test_batch.py", "test_any_length.py",
        "test_published_trainings.py", "test_comm.py", "test_kernels.py", "test_kaldi_networks.py")  # fmt: skip
HELPERS = [path for path in sorted((ROOT / "tests").rglob("*/")) if not {"__pycache__", "fixtures"} & set(path.parts)]
for path in (ROOT, ROOT / "tests", *HELPERS):  # test files may share names in different folders, helper modules may not
    if str(path) not in sys.path:
        sys.path.append(str(path))

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LC_ALL"] = "C"
os.environ["PYTHONUTF8"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), str(ROOT / "utils"), str(ROOT / "steps"), os.environ["PATH"]])
for name in ("PYASR_SUPERVISED", "PYASR_STEP", "PYASR_MPIEXEC", "PYASR_GPUS_HELD"):
    os.environ.pop(name, None)

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a slow example is no fault
settings.load_profile("busy machine")


def group_of(item: pytest.Item) -> str:
    """The tests that one process runs where several run them: those of a group of `SHARED`, else those of a file."""
    return next((group for fixture, group in SHARED.items() if fixture in item.fixturenames), str(item.path))


@pytest.hookimpl(tryfirst=True)  # before xdist looks at marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its group; several processes begin with the groups of `ORDER`, then `LONG`, then those of the most tests."""
    sizes = Counter(map(group_of, items))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (_place(group_of(item)), -sizes[group_of(item)], group_of(item)))


def _place(group: str) -> int:
    """Among the groups of `ORDER`; those of `LONG` come after them, and all others last."""
    return ORDER.index(group) if group in ORDER else len(ORDER) + (Path(group).name not in LONG)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory):
    """Locks of GPUs apart from those of other work on this machine."""
    os.environ["PYASR_LOCKS"] = str(tmp_path_factory.mktemp("locks"))


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
    """A finished run of the LibriSpeech recipe at toy size: (the place of corpus, models and recipe, what it printed)."""
    import librispeech_recipe

    place = tmp_path_factory.mktemp("librispeech")
    librispeech_recipe.make(place)
    return place, librispeech_recipe.run(place)
