"""Compiled kernels where neither the installation nor the home directory can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processors import environment as seen_by

import pyasr

PACKAGE = Path(pyasr.__file__).parent
KERNEL = "from numba import njit\n\n@njit(cache=True)\ndef twice(x):\n    return 2 * x\n"
RUN = "import os, pyasr.hmm.kernel; print(os.environ.get('NUMBA_CACHE_DIR'), pyasr.hmm.kernel.twice(21))"


@pytest.fixture
def installation(tmp_path):
    """pyasr with one kernel; files stand in the way of __pycache__, which stops root too."""
    root = tmp_path / "installation"
    for package in ("", "base", "hmm"):
        (root / "pyasr" / package).mkdir(parents=True)
        shutil.copy(PACKAGE / package / "__init__.py", root / "pyasr" / package)
        (root / "pyasr" / package / "__pycache__").write_text("")
    (tmp_path / "tmp").mkdir()
    source = (PACKAGE / "base/kernel_cache.py").read_text().replace('Path("/tmp")', f'Path("{tmp_path}/tmp")')
    (root / "pyasr/base/kernel_cache.py").write_text(source)
    for name in ("complaints", "errors", "places", "system_errors"):
        shutil.copy(PACKAGE / f"base/{name}.py", root / "pyasr/base")
    (root / "pyasr/hmm/kernel.py").write_text(KERNEL)
    return root


def run(installation, processor="this", **variables):
    kept = {name: value for name, value in seen_by(processor).items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = kept | {"PYTHONPATH": str(installation), "HOME": "/dev/null"} | variables
    return subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=environment, cwd=installation)


def test_a_directory_of_the_users_own(installation, tmp_path):
    own = tmp_path / "tmp" / f"pyasr-numba-{os.getuid()}"
    first, second = run(installation), run(installation, NUMBA_CACHE_DIR=str(own))
    assert first.stdout == second.stdout == f"{own} 42\n", first.stderr + second.stderr
    assert own.stat().st_mode & 0o777 == 0o700 and len(list(own.rglob("*.nbc"))) == 1


def test_what_another_user_could_write_is_refused(installation, tmp_path):
    own = tmp_path / "tmp" / f"pyasr-numba-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    for make in (lambda: own.mkdir(), lambda: own.symlink_to(tmp_path / "elsewhere"), lambda: own.write_text("")):
        make()
        if own.is_dir() and not own.is_symlink():
            own.chmod(0o777)
        refused = run(installation)
        told = f"ImportError: {own}: no directory that is yours alone, to keep compiled kernels in; name one by NUMBA_CACHE_DIR\n"
        assert refused.returncode == 1 and refused.stderr.endswith(told)
        own.rmdir() if own.is_dir() and not own.is_symlink() else own.unlink()


@pytest.mark.parametrize("variables", [{"NUMBA_CACHE_DIR": "{}/given"}, {"HOME": "{}/home"}, {"XDG_CACHE_HOME": "{}/cache"}, {}])
def test_numbas_own_places_are_left_to_it(variables, installation, tmp_path):
    variables = {name: value.format(tmp_path) for name, value in variables.items()}
    if not variables:
        for package in ("base", "hmm"):
            (installation / "pyasr" / package / "__pycache__").unlink()
    found = run(installation, **variables)
    assert found.stdout == f"{variables.get('NUMBA_CACHE_DIR')} 42\n", found.stderr
    assert not list((tmp_path / "tmp").iterdir()) and len(list(tmp_path.rglob("*.nbc"))) == 1


def test_processors_that_share_a_home_have_kernels_of_their_own(installation, tmp_path):
    """A kernel that was compiled for a processor with AVX-512 would crash on one without."""
    for package in ("base", "hmm"):
        (installation / "pyasr" / package / "__pycache__").unlink()
    kernels = []
    for processor in ("this", "avx2", "this", "avx2", "sse"):
        assert run(installation, processor).stdout == "None 42\n"
        kernels.append(len(list(tmp_path.rglob("*.nbc"))))
    assert kernels == [1, 2, 2, 2, 3]
