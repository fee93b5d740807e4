"""Kernels whose object code is stored in a file: later processes call them without numba, with the same
results."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = """
from typing import NamedTuple
import numpy as np
from pyasr.base.compiled.kernels import njit

@njit(nogil=True, cache=True)
def inner(x, scale):
    return scale * x

@njit(nogil=True, cache=True)
def worked(rows, scale, pair):
    if scale < 0:
        raise ValueError("a negative scale")
    out = np.empty((rows.shape[0], 2), np.float32)
    found = [0]
    for t in range(len(rows)):
        out[t, 0], out[t, 1] = inner(rows[t, 0], scale), np.exp(rows[t, 1]) + pair[0][t]
        found.append(t)
    return out, len(found), scale > 1, None, pair[1], (out.sum(), np.sin(scale) ** 0.3)

class Box(NamedTuple):
    rows: np.ndarray
    scale: float

class Pair(NamedTuple):
    left: np.ndarray
    right: float

@njit(nogil=True, cache=True)
def swapped(one, other):
    return Pair(other.left * one.scale, one.rows.sum() * other.right)

@njit(nogil=True, cache=True)
def filled(rows):
    rows[:] = 7
    return rows

@njit(nogil=True, cache=True)
def with_default(x, step=2):
    return x + step

@njit(nogil=True, cache=True)
def number_of(values):
    return len(values)
"""
CALLS = """
import sys, threading, numpy as np, kept
rows = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
pair = np.arange(4.0), 5
found = [kept.worked(rows, 3.0, pair), kept.worked(rows.astype(np.float64), 3.0, pair),
         kept.worked(rows.T, np.float32(0.5), pair), kept.worked(rows[:, ::2], 1, pair),
         kept.worked(rows, True, (np.arange(4), -2.5))]
np.save("rows.npy", rows)
frozen = rows.copy()
frozen.flags.writeable = False
found += [kept.worked(frozen, 3.0, pair), kept.worked(np.load("rows.npy", mmap_mode="r"), 3.0, pair),
          kept.filled(rows.copy()), kept.swapped(kept.Box(rows, 3.0), kept.Pair(rows[0], 4.0)),
          kept.swapped(kept.Box(rows, 3), kept.Pair(rows[0], 4.0))]
def fill(): found.append(kept.filled(np.zeros((2, 2), np.int64)))
threads = [threading.Thread(target=fill) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
try: kept.worked(rows, -1.0, pair)
except ValueError as error: found.append(error)
print(repr(found), "NUMBA", "numba" in sys.modules)
"""
ALSO_NUMBA = """
from pyasr.base.compiled.kernels import njit
try: kept.filled(frozen)
except Exception as error: print(type(error).__name__)
print(kept.with_default(1), kept.with_default(1, step=5), kept.number_of(["a"]), kept.number_of([1.5, 2.5]))
print(njit()(lambda x: kept.inner(x, 3.0) + 1)(2.0), "numba" in sys.modules)
"""


def run(path: Path, code: str = CALLS, **variables) -> tuple[str, str]:
    """(output, whether numba was imported) of a process that calls the kernels of a directory."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": f"{path}/cache",
        "PYTHONPATH": f"{path}:{os.environ['PYTHONPATH']}",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results, _, numba = done.stdout.partition("NUMBA ")
    return results, numba


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, str]:
    """A directory whose kernels are compiled, and their results."""
    path = tmp_path_factory.mktemp("compiled")
    (path / "kept.py").write_text(KERNELS)
    results, numba = run(path)
    assert numba == "True\n"
    return path, results


def objects(path: Path) -> list[Path]:
    return [file for file in path.rglob("objects/*") if file.is_file()]


def test_second_process_loads_kernels_without_numba(compiled):
    """For arguments of all kinds: types, layouts, mapped and read-only arrays, tuples; from several
    threads."""
    path, results = compiled
    assert (
        run(path) == (results, "False\n")
        and "ValueError('a negative scale')" in results
        and len(objects(path)) == 10
    )


def test_arguments_unsupported_by_object_file_use_numba(compiled):
    """In a process that has loaded kernels from files: lists, defaults, kernels that call others, and type
    errors."""
    _, rest = run(compiled[0], CALLS + ALSO_NUMBA)
    assert rest == "False\nTypingError\n3 6 1 2\n7.0 True\n"


@pytest.mark.parametrize(
    "damaged", [lambda content: content[:2000], lambda content: b"", lambda content: b"N."]
)
def test_damaged_object_files_are_compiled_again(damaged, compiled):
    path, results = compiled
    for file in objects(path):
        file.write_bytes(damaged(file.read_bytes()))
    assert run(path) == (results, "True\n") and run(path) == (results, "False\n")


def test_numba_environment_variables_are_respected(compiled):
    path, results = compiled
    assert run(path, NUMBA_BOUNDSCHECK="0") == (results, "True\n")


def test_changed_source_is_compiled_again(compiled):
    path, results = compiled
    (path / "kept.py").write_text(KERNELS.replace("rows[:] = 7", "rows[:] = 8"))
    changed, numba = run(path)
    assert changed != results and numba == "True\n" and run(path) == (changed, "False\n")


def test_change_of_called_kernel_compiles_the_caller_again(tmp_path):
    """numba's own cache checks only the file of the calling kernel."""
    head = "from pyasr.base.compiled.kernels import njit\n"
    inner = f"{head}@njit(cache=True)\ndef inner(x):\n    return x + NUMBER\n"
    middle = f"{head}from inner import inner\n@njit(cache=True)\ndef middle(x):\n    return inner(x)\n"
    outer = f"{head}from middle import middle\n@njit(cache=True)\ndef outer(x):\n    return 2 * middle(x)\n"
    (tmp_path / "middle.py").write_text(middle)
    (tmp_path / "outer.py").write_text(outer)
    code = "import sys, outer; print(outer.outer(1), 'NUMBA', 'numba' in sys.modules)"
    for number, found in (
        (1, ("4 ", "True\n")),
        (1, ("4 ", "False\n")),
        (23, ("48 ", "True\n")),
        (23, ("48 ", "False\n")),
    ):
        (tmp_path / "inner.py").write_text(inner.replace("NUMBER", str(number)))
        assert run(tmp_path, code) == found
