"""Kernels that are compiled when they are called."""

import subprocess
import sys

import numpy as np

from pyasr.base.kernels import njit


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


def test_numba_is_imported_with_the_first_call():
    code = ("import sys, pyasr.decode.search, pyasr.hmm.viterbi, pyasr.lang.backoff_lm; from pyasr.score.align import count; "
            "before = 'numba' in sys.modules; count(['a'], ['b']); print(before, 'numba' in sys.modules)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False True\n", done.stderr


OF_CACHE = """
import sys, llvmlite.binding, numpy as np
from kept import norms, of_row
from pyasr.base.kernels import njit
parsed, parse = [], llvmlite.binding.parse_bitcode
llvmlite.binding.parse_bitcode = lambda code: parsed.append(code) or parse(code)
rows = np.array([[3.0, 4.0], [6.0, 8.0]])
print(of_row(rows[0]), "numba.np.npyimpl" in sys.modules)
print(norms(rows, ("a", "b")))
if sys.argv[1:]:
    before = len(parsed)
    print(before, njit()(lambda row: of_row(row) + 1.0)(rows[1]), len(parsed) > before)
"""
KEPT = """
import numpy as np
from pyasr.base.kernels import njit

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


def test_kernels_come_from_the_cache_without_the_compiler(tmp_path, monkeypatch):
    """Also those with dictionaries, random numbers and hashes of strings, in which numba's runtime takes part. Their
    bitcode is parsed when another kernel, which is compiled, calls them."""
    (tmp_path / "kept.py").write_text(KEPT)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    first, second = (subprocess.run([sys.executable, "-c", OF_CACHE, *words], capture_output=True, text=True) for words in ([], ["another"]))
    assert first.stdout == "5.0 True\n([5.0, 10.0], 2, True)\n", first.stderr
    assert second.stdout == "5.0 False\n([5.0, 10.0], 2, True)\n0 11.0 True\n", second.stderr
