"""CTC training of a network over time on MPI ranks: from transcripts to the model file."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn

from pyasr.nn.networks.acoustic import log_priors
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import make_strategy
from pyasr.sequence.ctc import BLANK, ctc_loss
from pyasr.train.data.data_shard import global_normaliser
from pyasr.train.job.rank_job import open_utterances, run_on_utterances, write_model
from pyasr.train.minibatches.padded_utterances import CtcMinibatch, PaddedUtterances
from pyasr.train.sgd.criterion import SequenceCriterion
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import initial_random, seed_dropout
from pyasr.train.steps.ctc_step import CtcSpec
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets
from pyasr.train.targets.rank_reader import rank_reader
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


def train_rank(spec: CtcSpec, comm: Comm) -> None:
    """Train on this rank's utterances together with all other ranks; rank 0 writes final.nnet, with the
    priors of the units."""
    options, targets = spec.training, Targets.load(spec.out / TARGETS_FILE)
    strategy, seed = make_strategy(comm, options.mixing), options.loop.train_seed
    parts = targets.parts(strategy.share, comm.rank, comm.size)
    reader = rank_reader(spec.out, spec.data, spec.input, targets, [*parts[0], *parts[1]])
    training, heldout = open_utterances(spec, parts, strategy, partial(PaddedUtterances, reader, targets))
    mean, inverse_std = global_normaliser(training, comm)
    network = LayeredNetwork(read_network(spec.network), reader.dim, targets.num_pdfs)
    network.initialise(initial_random(seed))
    for utterances in (training, heldout):
        utterances.normalise_by(mean, inverse_std, network)
    seed_dropout(seed, comm.rank)
    learner = Learner(
        network, options.learner, comm.size, strategy.sum_gradients(of_any_size=True), spec.loss.make()
    )
    run_on_utterances(learner, (training, heldout), strategy, spec, training.mean_units(comm))
    normaliser = torch.from_numpy(mean), torch.from_numpy(inverse_std)
    write_model(
        comm,
        spec.out,
        learner.trained_network(),
        normaliser,
        log_priors(counts_of_labels(targets)),
        ACOUSTIC_FACTOR,
    )


def counts_of_labels(targets: Targets) -> np.ndarray:
    """Occurrences of each unit in the transcripts, with a blank before each unit and after the last, int64
    (num_units,): the counts from which the priors of units are computed (Y. Miao et al., ASRU 2015)."""
    counts = targets.counts()
    counts[BLANK] = counts.sum() + len(targets.keys)
    return counts
