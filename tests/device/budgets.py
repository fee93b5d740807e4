"""Limits on the cost of one step of a learner on a GPU. Update this table when a step becomes cheaper."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from unittest.mock import patch

from gpu_counts import Counts
from mock_gpu import MockGpu

from pyasr.train.sgd.captured_step import CapturedStep
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.rbm_learner import RbmLearner


@dataclass(frozen=True)
class Budget:
    """Upper limits for any step.

    launches  operations on the device
    megabytes  read and written by these
    syncs     places where the host waits for the device, blocking copies among them
    copies    those of them that are blocking copies
    """

    launches: int
    megabytes: float
    syncs: int = 0
    copies: int = 0


# For the small networks of the tests: launches and waits depend on the number of layers and, for loops over
# time, on the number of frames, not on the widths of layers.
BUDGETS: dict[str, Budget] = {
    "captured sgd": Budget(6, 7.9),
    "sgd with momentum, l2 and limits": Budget(140, 10.0),
    "captured natural gradient": Budget(6, 17.3),
    "ctc": Budget(88, 0.54, 5, 3),
    "lf-mmi": Budget(648, 1.5, 12, 10),
    "smbr": Budget(55, 0.1, 5, 5),
    "mmi": Budget(55, 0.1, 5, 5),
    "rbm": Budget(87, 0.46),
}


@contextlib.contextmanager
def counted_steps(gpu: MockGpu) -> Iterator[list[Counts]]:
    """Cost of each learner step in the block, except steps in which a CUDA graph is captured."""
    steps: list[Counts] = []
    captures: list[CapturedStep] = []

    def counted(step):
        def call(*args, **kwargs):
            with gpu.counting() as counts:
                num_captures, result = len(captures), step(*args, **kwargs)
            if len(captures) == num_captures:
                steps.append(counts)
            return result

        return call

    capture = CapturedStep._captured
    with (
        patch.object(
            CapturedStep, "_captured", lambda step, shape: captures.append(step) or capture(step, shape)
        ),
        patch.object(Learner, "step", counted(Learner.step)),
        patch.object(RbmLearner, "step", counted(RbmLearner.step)),
    ):
        yield steps


def check(name: str, steps: list[Counts]) -> None:
    """Fail with the most expensive places, unless all steps are within the budget of this name."""
    budget = BUDGETS[name]
    assert steps
    for counts in steps:
        assert counts.num_launches <= budget.launches, (
            f"{name}: {counts.num_launches} launches, most {counts.launches.most_common(10)}"
        )
        assert counts.num_bytes <= 1e6 * budget.megabytes, f"{name}: {counts.num_bytes / 1e6:.3f} MB"
        assert len(counts.syncs) <= budget.syncs, (
            f"{name}: {len(counts.syncs)} waits, most {_most(counts.syncs)}"
        )
        copies = counts.blocking_copies
        assert len(copies) <= budget.copies, f"{name}: {len(copies)} blocking copies, most {_most(copies)}"


def _most(syncs: list[str]) -> list[tuple[str, int]]:
    return Counter(syncs).most_common(10)
