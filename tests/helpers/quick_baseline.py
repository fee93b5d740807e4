"""The measurement of the single-rank throughput at the beginning of each training, shortened for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_baseline() -> Iterator[None]:
    """Trainings in this process measure it in one cycle of minibatches, not in up to ten."""
    from pyasr.train.job import calibration  # not at the top, because it imports numpy

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibration, "_MAX_CYCLES", 1)
        yield
