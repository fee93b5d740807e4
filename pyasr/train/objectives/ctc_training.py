"""CTC training of a network over time on a rank: its criterion, and from transcripts to the model file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from pyasr.feats.inputs import FeatureReader
from pyasr.nn.networks.acoustic import log_priors
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.sequence.ctc import BLANK, ctc_loss
from pyasr.train.data.data_shard import global_normaliser
from pyasr.train.minibatches.padded_utterances import CtcMinibatch, PaddedUtterances
from pyasr.train.objectives.rank_training import OnUtterances
from pyasr.train.sgd.criterion import Criterion, SequenceCriterion
from pyasr.train.sgd.network_seeds import initial_random
from pyasr.train.steps.ctc_step import CtcSpec
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.totals import SequenceTotals


class CtcTotals(SequenceTotals):
    """Sums over units: loss (nats), 0, number of units."""

    def text(self) -> str:
        """For log lines."""
        return f"objective {self.objective:.4f} per unit" if self.sums[2] else "no units"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        return {"objective": round(self.objective, 6)} if self.sums[2] else {}


class Ctc(SequenceCriterion):
    """Connectionist temporal classification of whole utterances."""

    totals = CtcTotals

    def loss(
        self, network: nn.Module, x: torch.Tensor, targets: CtcMinibatch, number: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and (loss, 0, units)."""
        loss, counts = ctc_loss(network(x, torch.from_numpy(targets.lengths).to(x.device)), targets)
        return loss, torch.tensor(
            [float(loss.detach()), 0.0, counts.num_labels], dtype=torch.float64, device=loss.device
        )


class CtcRank(OnUtterances[CtcSpec, PaddedUtterances]):
    """A network over time that learns the units of transcripts. The model has the priors of the units."""

    factor = ACOUSTIC_FACTOR

    def maker(self, reader: FeatureReader, keys: set[str]) -> Callable[..., PaddedUtterances]:
        """Padded utterances with their units."""
        return partial(PaddedUtterances, reader, self.targets)

    def normaliser(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The statistics of the training utterances."""
        self.statistics = global_normaliser(self.utterances[0], self.comm)
        mean, inverse_std = map(torch.from_numpy, self.statistics)
        return mean, inverse_std

    def terms(self) -> float:
        """Mean number of units of a minibatch."""
        return self.utterances[0].mean_units(self.comm)

    def make_network(self) -> LayeredNetwork:
        """The network of --network, which also tells the utterances how many outputs they have."""
        network = LayeredNetwork(read_network(self.spec.network), self.reader.dim, self.targets.num_pdfs)
        network.initialise(initial_random(self.options.loop.train_seed))
        for utterances in self.utterances:
            utterances.normalise_by(*self.statistics, network)
        return network

    def make_criterion(self) -> Criterion:
        """The criterion of the step."""
        return self.spec.loss.make()

    def log_priors(self, network: nn.Module) -> torch.Tensor:
        """From the transcripts."""
        return log_priors(counts_of_labels(self.targets))


def counts_of_labels(targets: Targets) -> np.ndarray:
    """Occurrences of each unit in the transcripts, with a blank before each unit and after the last, int64
    (num_units,): the counts from which the priors of units are computed (Y. Miao et al., ASRU 2015)."""
    counts = targets.counts()
    counts[BLANK] = counts.sum() + len(targets.keys)
    return counts
