"""Cache directories of compiled kernels: one per kind of processor, also if only /tmp is writable."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processors import environment as seen_by

import pyasr
from pyasr.base.compiled import kernel_cache

PACKAGE = Path(pyasr.__file__).parent
KERNEL = "from numba import njit\n\n@njit(cache=True)\ndef twice(x):\n    return 2 * x\n"
RUN = "import os, pyasr.hmm.kernel; print(os.environ.get('NUMBA_CACHE_DIR'), pyasr.hmm.kernel.twice(21))"


@pytest.fixture
def installation(tmp_path):
    """pyasr with one kernel; files in the place of __pycache__, which also stop root."""
    root = tmp_path / "installation"
    for package in ("", "base", "base/compiled", "base/files", "hmm"):
        (root / "pyasr" / package).mkdir(parents=True)
        shutil.copy(PACKAGE / package / "__init__.py", root / "pyasr" / package)
        (root / "pyasr" / package / "__pycache__").write_text("")
    (tmp_path / "tmp").mkdir()
    source = (
        (PACKAGE / "base/compiled/kernel_cache.py")
        .read_text()
        .replace('Path("/tmp")', f'Path("{tmp_path}/tmp")')
    )
    (root / "pyasr/base/compiled/kernel_cache.py").write_text(source)
    for name in ("complaints", "errors", "files/places", "system_errors", "version"):
        shutil.copy(PACKAGE / f"base/{name}.py", root / f"pyasr/base/{name}.py")
    (root / "pyasr/hmm/kernel.py").write_text(KERNEL)
    return root


def run(installation, processor="this", **variables):
    kept = {
        name: value
        for name, value in seen_by(processor).items()
        if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment = kept | {"PYTHONPATH": str(installation), "HOME": "/dev/null"} | variables
    return subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, env=environment, cwd=installation
    )


def place_in(run) -> Path:
    """The directory of this processor used by a run of `RUN`."""
    assert run.returncode == 0, run.stderr
    place, number = run.stdout.split()
    assert (
        number == "42"
        and re.fullmatch("cpu-[0-9a-f]{8}", Path(place).name)
        and list(Path(place).rglob("*.nbc"))
    )
    return Path(place)


def test_cache_directory_belongs_to_user(installation, tmp_path):
    own = tmp_path / "tmp" / f"pyasr-numba-{os.getuid()}"
    first, second, third = run(installation), run(installation, NUMBA_CACHE_DIR=str(own)), run(installation)
    assert place_in(first) == place_in(second) == place_in(third) and place_in(first).parent == own
    assert own.stat().st_mode & 0o777 == 0o700 and len(list(own.rglob("*.nbc"))) == 1


def test_cache_directory_writable_by_others_is_refused(installation, tmp_path):
    own = tmp_path / "tmp" / f"pyasr-numba-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    for make in (
        lambda: own.mkdir(),
        lambda: own.symlink_to(tmp_path / "elsewhere"),
        lambda: own.write_text(""),
    ):
        make()
        if own.is_dir() and not own.is_symlink():
            own.chmod(0o777)
        refused = run(installation)
        report = (
            f"ImportError: {own}: not a private directory, which the cache of compiled kernels needs; "
            "set NUMBA_CACHE_DIR to one\n"
        )
        assert refused.returncode == 1 and refused.stderr.endswith(report)
        own.rmdir() if own.is_dir() and not own.is_symlink() else own.unlink()


@pytest.mark.parametrize(
    "variables, place",
    [
        ({"NUMBA_CACHE_DIR": "{}/given"}, "given"),
        ({"HOME": "{}/home"}, "home/.cache/pyasr-numba"),
        ({"XDG_CACHE_HOME": "{}/cache"}, "cache/pyasr-numba"),
        ({}, "installation/pyasr/__pycache__"),
    ],
)
def test_cache_falls_back_to_writable_place(variables, place, installation, tmp_path):
    if not variables:
        (installation / "pyasr/__pycache__").unlink()
    found = run(installation, **{name: value.format(tmp_path) for name, value in variables.items()})
    assert place_in(found).parent == tmp_path / place
    assert not list((tmp_path / "tmp").iterdir()) and len(list(tmp_path.rglob("*.nbc"))) == 1


def test_processors_sharing_a_home_have_separate_directories(installation, tmp_path):
    """Also if one of them starts the other, which finds the variable set: they never share an index of
    kernels."""
    places = []
    for processor in ("this", "avx2", "this", "avx2", "sse"):
        given = (
            {"NUMBA_CACHE_DIR": str(places[-1])} if places else {"NUMBA_CACHE_DIR": str(tmp_path / "given")}
        )
        places.append(place_in(run(installation, processor, **given)))
    assert places[0] == places[2] and places[1] == places[3] and len(set(places)) == 3
    assert {place.parent for place in places} == {tmp_path / "given"} and len(
        list(tmp_path.rglob("*.nbi"))
    ) == 3


def test_processor_key_ignores_changing_values(monkeypatch, tmp_path):
    """The entry of the first processor without values that change between readings, and the target given to
    numba."""
    entry = (
        "processor\t: 0\nvendor_id\t: X\nmodel\t\t: 85\ncpu MHz\t\t: {}\nflags\t\t: fpu {}\n\n"
        "processor\t: 1\nflags\t\t: {}\n"
    )
    monkeypatch.setattr(kernel_cache, "_PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))

    def place(*words, **variables) -> str:
        (tmp_path / "cpuinfo").write_text(entry.format(*words))
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            kernel_cache.find_a_place()
        return os.environ["NUMBA_CACHE_DIR"]

    one = place("2000", "avx2", "avx2")
    assert (
        place("2100", "avx2", "other") == one == place("2100", "avx2", "")
        and Path(one).parent == tmp_path / "given"
    )
    assert (
        len(
            {
                one,
                place("2000", "avx512f", "avx2"),
                place("2000", "avx2", "", NUMBA_CPU_NAME="haswell"),
                place("2000", "avx2", "", NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES="+avx"),
            }
        )
        == 4
    )
