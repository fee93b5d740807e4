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
