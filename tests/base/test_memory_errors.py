"""Failed allocations in libraries end with one sentence that names the utterance; other errors are
unchanged."""

import numpy as np
import pytest
import torch
from numba import njit

from pyasr.base.errors import UserError
from pyasr.base.memory_errors import computed, is_for_want_of_memory

TOO_MANY = 10**15  # float32 numbers, more than a process can address


@njit
def in_compiled_code(num):
    return np.empty(num, np.float32)


FAILURES = {
    "numpy": lambda x: np.empty(TOO_MANY, np.float32),
    "torch": lambda x: torch.empty(TOO_MANY),
    "numba": lambda x: in_compiled_code(TOO_MANY),
    "Python": lambda x: bytearray(TOO_MANY),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=list(FAILURES))
def test_memory_error_names_utterance(fail):
    sentence = (
        r"^a-1: memory is not enough for its 7 frames: .+; cut it into shorter utterances, or leave it out$"
    )
    with pytest.raises(UserError, match=sentence) as caught:
        computed("a-1", fail, np.zeros((7, 3)))
    assert caught.value.__cause__ is None and "\n" not in str(caught.value)
    with pytest.raises(UserError, match="; take another$"):
        computed("a-1", fail, np.zeros((7, 3)), "take another")


def test_gpu_memory_errors_are_recognised():
    """Messages of torch's errors, which cannot be produced without a GPU."""
    for error in (
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ):
        assert is_for_want_of_memory(error)


def test_results_and_other_exceptions_are_unchanged():
    x = np.arange(6.0).reshape(3, 2)
    assert computed("a-1", np.sum, x) == 15
    for error in (RuntimeError("shapes do not fit"), ValueError("DefaultCPUAllocator")):
        with pytest.raises(type(error)) as raised:
            computed("a-1", raising(error), x)
        assert raised.value is error


def raising(error: Exception):
    def function(_):
        raise error

    return function
