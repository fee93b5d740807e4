"""What the sums of a criterion over minibatches mean, for schedules, log lines and metrics. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Totals:
    """Sums over frames: loss (nats), correct frames, frames. A subclass gives them another meaning; the third counts what is learned."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @property
    def objective(self) -> float:
        """Mean log probability of the targets (nats a frame). Higher is better."""
        return float(-self.sums[0] / max(self.sums[2], 1.0))

    @property
    def accuracy(self) -> float:
        """Share of frames whose target is the most probable pdf."""
        return float(self.sums[1] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """For log lines."""
        return f"objective {self.objective:.4f}  accuracy {self.accuracy:.2%}" if self.sums[2] else "no frames"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        return {"objective": round(self.objective, 6), "accuracy": round(self.accuracy, 6)} if self.sums[2] else {}


class SequenceTotals(Totals):
    """Sums of a criterion without an accuracy: its negative, a second sum, what it is counted in."""

    @property
    def accuracy(self) -> float:
        """The objective, because schedules and reports need a value."""
        return self.objective
