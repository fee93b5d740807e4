"""One rank's network that learns by a criterion on lattices, and the training that it is part of."""

from __future__ import annotations

import torch

from pyasr.nn.feed_forward import FeedForward
from pyasr.parallel.strategies.gradient_sum import GradientSum
from pyasr.sequence.lattice_objective import LatticeObjective, LatticeSupervision
from pyasr.train.learner import Learner
from pyasr.train.options import LearnerOptions
from pyasr.train.utterance_training import ObjectiveTotals, UtteranceTraining


class LatticeTotals(ObjectiveTotals):
    """Sums over frames: the criterion's negative, rejected frames, frames. The objective of sMBR and MPFE is the expected accuracy."""

    def text(self) -> str:
        """For log lines."""
        if not self.sums[2]:
            return "no frames"
        rejected = f"  {self.sums[1] / self.sums[2]:.2%} of the frames rejected" if self.sums[1] else ""
        return f"objective {self.objective:.5f}{rejected}"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        if not self.sums[2]:
            return {}
        return {"objective": round(self.objective, 6), "rejected": round(float(self.sums[1] / self.sums[2]), 6)}


class LatticeLearner(Learner):
    """A learner whose minibatches are whole utterances, which networks over time answer one after the other."""

    def __init__(self, network: torch.nn.Module, options: LearnerOptions, num_ranks: int, objective: LatticeObjective,
                 gradient_sum: GradientSum | None = None):  # fmt: skip
        self.objective, self.uses_layers_once = objective, isinstance(network, FeedForward)
        super().__init__(network, options, num_ranks, gradient_sum)

    def loss(self, x: torch.Tensor, supervision: LatticeSupervision) -> tuple[torch.Tensor, torch.Tensor]:
        """(-F / k with a gradient, float64 (-F, rejected frames, frames)) of a minibatch."""
        return self.objective.loss(self._outputs(x, supervision), supervision)

    def _outputs(self, x: torch.Tensor, supervision: LatticeSupervision) -> torch.Tensor:
        """Logits, float32 (T, num_pdfs)."""
        if isinstance(self.network, FeedForward):
            return self.network(x).float()
        utterances = x.split([len(reference) for reference in supervision.references])
        return torch.cat([self.network.of_utterance(utterance) for utterance in utterances]).float()


class LatticeTraining(UtteranceTraining):
    """A training by a criterion on lattices."""

    totals = LatticeTotals
