"""Sequence-discriminative training of a network on lattices on a rank: the criteria (MMI, boosted MMI, sMBR,
MPFE), and from references and lattices to the model file."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from pyasr.feats.inputs import FeatureReader, matrix_of
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.parallel.communication.comm import Comm
from pyasr.sequence.lattices.hypotheses_store import HypothesesStore
from pyasr.sequence.lattices.lattice_objective import LatticeObjective, LatticeSupervision
from pyasr.sequence.lattices.tid_classes import TidClasses
from pyasr.train.minibatches.lattice_utterances import LatticeUtterances
from pyasr.train.objectives.rank_training import OnUtterances
from pyasr.train.sgd.criterion import SequenceCriterion
from pyasr.train.steps.smbr_step import HYPOTHESES_FILE, SmbrSpec
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


class SmbrRank(OnUtterances[SmbrSpec, LatticeUtterances]):
    """A network that is trained further. The model keeps its normalisation and priors."""

    def __init__(self, spec: SmbrSpec, comm: Comm):
        self.model, self.matrix = load_scorer(spec.dnn_dir), matrix_of(spec.dnn_dir)
        self.factor = self.model.factor
        super().__init__(spec, comm)

    def maker(self, reader: FeatureReader, keys: set[str]) -> Callable[..., LatticeUtterances]:
        """Utterances with their references and lattices."""
        store = HypothesesStore(self.spec.out / HYPOTHESES_FILE, keys)

        def make(keys: list[str], *arguments) -> LatticeUtterances:
            return LatticeUtterances(reader, self.model, self.targets, keys, store, *arguments)

        return make

    def normaliser(self) -> tuple[torch.Tensor, torch.Tensor]:
        """That of the initial network."""
        return self.model.mean, self.model.inverse_std

    def terms(self) -> float:
        """Mean number of frames of a minibatch."""
        return self.utterances[0].mean_minibatch(self.comm)

    def make_network(self) -> nn.Module:
        """The initial network."""
        return self.model.network

    def make_criterion(self) -> LatticeCriterion:
        """The criterion that --criterion names."""
        silence = LangDir(self.spec.lang).silence_phones
        classes = TidClasses.of(read_transitions(self.spec.dnn_dir / MODEL), silence)
        return LatticeCriterion(
            LatticeObjective(self.options.criterion, classes, self.model.log_priors, self.model.factor)
        )

    def log_priors(self, network: nn.Module) -> torch.Tensor:
        """Those of the initial network."""
        return self.model.log_priors
