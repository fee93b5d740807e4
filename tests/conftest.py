"""What all tests share: where things are, and an environment like the one path.sh makes."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
HELPERS = [path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and path.name != "__pycache__"]
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


@pytest.hookimpl(tryfirst=True)  # before xdist looks at marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes run the tests, one has a file to itself, and one all that wait for schedulers, of which there is one each."""
    for item in items:
        clusters = item.path.parent.name == "cluster" or {"toy_run", "librispeech_run"} & set(item.fixturenames)
        item.add_marker(pytest.mark.xdist_group("clusters" if clusters else str(item.path)))


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
