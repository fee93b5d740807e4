"""Failed memory allocations: recognising them, and error messages for utterances that are too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from pyasr.base.errors import UserError

_SAYS_SO = (
    "DefaultCPUAllocator",
    "can't allocate memory",
    "Cannot allocate memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
ADVICE = "cut it into shorter utterances, or leave it out"

Result = TypeVar("Result")


def is_for_want_of_memory(error: Exception) -> bool:
    """Whether an error of Python, numpy, numba or torch reports a failed allocation of host or GPU memory."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _SAYS_SO)


def first_line_of(error: Exception) -> str:
    """The first line of the message of such an error."""
    return str(error).strip().splitlines()[0] if str(error).strip() else "the allocation failed"


@contextmanager
def enough_for(name: str, what: str, advice: str) -> Iterator[None]:
    """Convert a failed allocation in the block into a UserError that begins with `name`, an utterance or
    recording, and mentions `what`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_for_want_of_memory(error):
            raise
        raise UserError(
            f"{name}: memory is not enough for {what}: {first_line_of(error)}; {advice}"
        ) from None


def computed(
    name: str, function: Callable[[np.ndarray], Result], features: np.ndarray, advice: str = ADVICE
) -> Result:
    """`function` of an utterance's features (T, dim). Raises UserError, beginning with the utterance's name,
    if memory runs out."""
    with enough_for(name, f"its {len(features)} frames", advice):
        return function(features)
