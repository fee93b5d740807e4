"""Sums of a criterion over minibatches, and the values that schedules, log lines and metrics derive from
them. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Totals:
    """Sums over frames: loss (nats), correct frames, frames. A subclass may give them another meaning; the
    third is always the count."""

    sums: np.ndarray = field(default_factory=lambda: np.zeros(3))

    @property
    def objective(self) -> float:
        """Mean log probability of the targets (nats per frame). Higher is better."""
        return float(-self.sums[0] / max(self.sums[2], 1.0))

    @property
    def accuracy(self) -> float:
        """Share of frames whose target is the most probable pdf."""
        return float(self.sums[1] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """Text for log lines."""
        return (
            f"objective {self.objective:.4f}  accuracy {self.accuracy:.2%}" if self.sums[2] else "no frames"
        )

    def metrics(self) -> dict[str, float]:
        """Values for metrics.jsonl."""
        return (
            {"objective": round(self.objective, 6), "accuracy": round(self.accuracy, 6)}
            if self.sums[2]
            else {}
        )


class SequenceTotals(Totals):
    """Sums of a criterion without an accuracy: negative criterion, a second sum, count."""

    @property
    def accuracy(self) -> float:
        """The objective, because schedules and reports need an accuracy."""
        return self.objective
