"""Kernels that are compiled at their first call."""

import ast
import fcntl
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyasr.base.compiled import kernel_turns
from pyasr.base.compiled.kernels import njit


@njit(inline="always")
def doubled(x):
    return 2 * x


@njit(nogil=True)
def added(x, y):
    return x + doubled(y)


@njit(nogil=True)
def total(values):
    result = 0.0
    for value in values:
        result = added(result, value)
    return result


def test_kernels_call_kernels():
    assert total(np.array([1.0, 2.0, 4.0])) == 14.0
    assert added(1, 2) == 5 and added.__wrapped__.__name__ == added.__name__ == "added"


def test_record_of_arrays_is_one_argument():
    """Kernels take records of arrays instead of long argument lists."""
    for path in sorted((Path(__file__).parents[3] / "pyasr").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(part).startswith("njit") for part in node.decorator_list
            ):
                assert len(node.args.args) <= 9, (
                    f"{path}:{node.lineno}: {node.name} takes {len(node.args.args)} arguments"
                )


def test_numba_is_imported_at_first_compiled_call(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = (
        "import sys, pyasr.decode.search.beam_search, pyasr.hmm.align.viterbi, "
        "pyasr.lang.grammars.backoff_lm; from pyasr.score.word_alignment import count; before = 'numba' in "
        "sys.modules; count(['a'], ['b']); print(before, 'numba' in sys.modules)"
    )
    for expected in ("False True\n", "False False\n"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == expected, done.stderr


RECORDS = """
from typing import NamedTuple
from pyasr.base.compiled.kernels import njit

class {name}(NamedTuple):
    number: int

@njit(cache=True)
def inner(record):
    return record.number * {factor}

@njit(cache=True)
def outer(record):
    return inner(record)

def run():
    return outer({name}(4))
"""
OF_CACHE = """
import sys, numpy as np
from kept import norms, of_row
from pyasr.base.compiled.kernels import njit
rows = np.array([[3.0, 4.0], [6.0, 8.0]])
print(of_row(rows[0]), "numba.np.npyimpl" in sys.modules)
print(norms(rows, ("a", "b")))
if sys.argv[1:]:
    print(njit()(lambda row: of_row(row) + 1.0)(rows[1]))
"""
KEPT = """
import numpy as np
from pyasr.base.compiled.kernels import njit

@njit(cache=True)
def of_row(row):
    total = 0.0
    for value in row:
        total += value * value
    return total**0.5

@njit(nogil=True, cache=True)
def norms(rows, names):
    found, hashes = {}, 0
    for name in names:
        hashes += hash(name) != 0
    for i in range(len(rows)):
        found[i] = of_row(rows[i])
    return sorted([*found.values()]), hashes, np.random.random() < 1.0
"""


def test_cached_kernels_load_without_compiler(tmp_path, monkeypatch):
    """Also those with dictionaries, random numbers and hashes of strings, which use numba's runtime. Another
    kernel that calls a loaded one can be compiled."""
    (tmp_path / "kept.py").write_text(KEPT)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    first, second = (
        subprocess.run([sys.executable, "-c", OF_CACHE, *words], capture_output=True, text=True)
        for words in ([], ["another"])
    )
    assert first.stdout == "5.0 True\n([5.0, 10.0], 2, True)\n", first.stderr
    assert second.stdout == "5.0 False\n([5.0, 10.0], 2, True)\n11.0\n", second.stderr


TWO = """
from pyasr.base.compiled.kernels import njit

@njit(cache=True)
def twice(x):
    return 2 * x

@njit(cache=True)
def four_times(x):
    return twice(twice(x))
"""
AT_ONCE = """
import sys, time
from pathlib import Path
from kept import four_times, twice
import numba
Path(sys.argv[1]).touch()
while not Path("go").exists():
    time.sleep(0.01)
assert four_times(3) == 12 and twice(3) == 6
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in (four_times, twice)))
"""


def test_renamed_argument_record_is_compiled_again(tmp_path, monkeypatch):
    """The cache names the class of a record; an earlier name does not prevent the kernel from being
    compiled."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for name, factor in (("First", 2), ("Other", 3)):
        (tmp_path / "records.py").write_text(RECORDS.format(name=name, factor=factor))
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", "import records; print(records.run())"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            assert done.stdout == f"{4 * factor}\n", done.stderr


def test_concurrent_processes_compile_each_kernel_once(tmp_path, monkeypatch):
    (tmp_path / "kept.py").write_text(TWO)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    names = ["first", "second", "third"]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, name], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    while not all((tmp_path / name).exists() for name in names):
        assert all(process.poll() is None for process in running)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    compiled = [int(process.communicate()[0]) for process in running]
    assert sum(compiled) == 2 and not list(tmp_path.rglob("*.lock"))


def test_wait_for_suspended_compiler_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_turns, "_PATIENCE_S", 0.1)
    turn = kernel_turns.CompileTurn(tmp_path / "kernel.lock")
    with (tmp_path / "kernel.lock").open("w") as of_another:
        fcntl.flock(of_another, fcntl.LOCK_EX)
        turn.take()
    turn.end()


def test_kernels_compile_where_lock_cannot_be_created(tmp_path):
    turn = kernel_turns.CompileTurn(tmp_path / "nowhere/kernel.lock")
    turn.take()
    turn.end()


@pytest.mark.parametrize("folder", ["steps", "utils"])
def test_programs_and_their_jobs_share_kernels(folder, root):
    """A program finds pyasr through a link in its folder; numba's cache identifies kernels by the path of
    their source."""
    code = (
        f"import sys; sys.path.insert(0, {str(root / folder)!r}); import pyasr.score.word_alignment; "
        "print(pyasr.score.word_alignment.count.__code__.co_filename)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert Path(done.stdout.strip()) == root / "pyasr/score/word_alignment.py", done.stderr
