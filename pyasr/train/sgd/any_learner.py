"""A learner as the training loop, its checks and its checkpoints see it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from pyasr.parallel.mixing.flat import FlatParameters
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.sgd.nonfinite_guard import NonfiniteGuard


class AnyLearner(Protocol):
    """Common members of `pyasr.train.sgd.learner.Learner`, which describes them, and
    `pyasr.train.sgd.rbm_learner.RbmLearner`."""

    flat: FlatParameters
    velocity: torch.Tensor | None
    nonfinite_guard: NonfiniteGuard
    num_steps: int
    not_captured: str

    @property
    def network(self) -> nn.Module:
        """The network, or the RBM."""

    @property
    def criterion(self) -> Criterion:
        """Meaning of the sums of a step."""

    @property
    def gradient_sum(self) -> GradientSum | None:
        """What sums gradients over ranks."""

    def step(
        self, x: torch.Tensor, targets: torch.Tensor, rate: float, change_scale: float = 1.0
    ) -> torch.Tensor:
        """Learn from a minibatch."""

    def apply_others_gradient(self, rate: float) -> None:
        """Apply the update of the other ranks; for ranks without a minibatch."""

    def try_out(self, x: torch.Tensor, targets: torch.Tensor) -> None:
        """Compute a gradient and discard it."""

    def evaluate(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sums of a minibatch."""

    def skip_warm_up(self) -> int:
        """Skip the first minibatches, which take more work."""

    def set_progress(self, frames_seen: int, total_frames: int, learning: float = 1.0) -> None:
        """Set what depends on the progress of the training."""

    def state_dict(self) -> dict:
        """The state without the parameters."""

    def load_state_dict(self, state: dict) -> None:
        """Restore the state."""

    def resume_resized(self, state: dict) -> None:
        """Restore the state of a job with another number of ranks."""
