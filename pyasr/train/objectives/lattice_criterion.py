"""Lattice criteria (MMI, boosted MMI, sMBR, MPFE) for the training loop."""

from __future__ import annotations

import torch
from torch import nn

from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.sequence.lattices.lattice_objective import LatticeObjective, LatticeSupervision
from pyasr.train.sgd.criterion import SequenceCriterion
from pyasr.train.totals import SequenceTotals


class LatticeTotals(SequenceTotals):
    """Sums over frames: negated criterion, rejected frames, frames. The objective of sMBR and MPFE is the
    expected accuracy."""

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
        return {
            "objective": round(self.objective, 6),
            "rejected": round(float(self.sums[1] / self.sums[2]), 6),
        }


class LatticeCriterion(SequenceCriterion):
    """`objective` on whole utterances. Networks over time process one utterance at a time."""

    totals = LatticeTotals

    def __init__(self, objective: LatticeObjective):
        self.objective = objective

    def loss(
        self, network: nn.Module, x: torch.Tensor, targets: LatticeSupervision, number: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """-F / k, and (-F, rejected frames, frames)."""
        return self.objective.loss(_logits(network, x, targets), targets)

    def uses_layers_once(self, network: nn.Module) -> bool:
        """True for a feed-forward network, which processes all utterances of a minibatch at once."""
        return isinstance(network, FeedForward)


def _logits(network: nn.Module, x: torch.Tensor, supervision: LatticeSupervision) -> torch.Tensor:
    """Logits, float32 (T, num_pdfs)."""
    if isinstance(network, FeedForward):
        return network(x).float()
    utterances = x.split([len(reference) for reference in supervision.references])
    return torch.cat([network.of_utterance(utterance) for utterance in utterances]).float()
