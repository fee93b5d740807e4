"""A training on one rank, from the files that its step has prepared to the model file: `train_rank`.

A training is a subclass of `RankTraining` with its data, its criterion and its network; `OnFrames` and
`OnUtterances` open data of a kind. A spec names it as MODULE:CLASS (`TrainingSpec.objective`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import nn

from pyasr.base.jobs.job import resolve
from pyasr.feats.inputs import FeatureReader
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import make_strategy
from pyasr.train.data.rank_data import FrameSource, RankData, check_frames, open_corpus
from pyasr.train.draws import ALL
from pyasr.train.job.rank_job import JobData, make_job, write_model
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import seed_dropout
from pyasr.train.steps.training_step import TrainingSpec
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets
from pyasr.train.targets.rank_reader import rank_reader

Spec = TypeVar("Spec", bound=TrainingSpec)
TheirUtterances = TypeVar("TheirUtterances", bound=Utterances)


class RankTraining(Generic[Spec]):
    """What a training has of its own on one rank. Every rank calls the methods in the order in which they are
    listed here; those that communicate need all ranks.

    of_any_size  whether the sizes of minibatches differ, see `Strategy.sum_gradients`
    factor       factor on the log-likelihoods of the model, see `AcousticModel`
    """

    of_any_size = False
    factor = 1.0

    def __init__(self, spec: Spec, comm: Comm):
        self.spec, self.comm, self.options = spec, comm, spec.training
        self.targets = Targets.load(spec.out / TARGETS_FILE)
        self.strategy = make_strategy(comm, spec.training.mixing)

    def open_data(self) -> JobData:
        """This rank's training and held-out data."""
        raise NotImplementedError

    def make_network(self) -> nn.Module:
        """The network with its initial parameters, which are the same on all ranks."""
        raise NotImplementedError

    def make_criterion(self) -> Criterion:
        """The training criterion."""
        raise NotImplementedError

    def run(self, job: Trainer[Learner]) -> None:
        """Train the network."""
        job.run()

    def without_helpers(self, network: nn.Module) -> nn.Module:
        """The trained network without parts that only the training needs."""
        return network

    def log_priors(self, network: nn.Module) -> torch.Tensor:
        """The log priors of the model of a trained network, float32 (num_pdfs,)."""
        raise NotImplementedError

    def finish(self, job: Trainer[Learner], data: JobData) -> None:
        """Write OUT/final.nnet on rank 0."""
        network = self.without_helpers(job.learner.trained_network())
        write_model(self.comm, self.spec.out, network, data.normaliser, self.log_priors(network), self.factor)


class OnFrames(RankTraining[Spec]):
    """A training on frames or chunks in memory. The options have the groups of `source`.

    corpus  the frames, after `open_data`
    """

    corpus: RankData

    def source(self) -> FrameSource:
        """Where the frames come from."""
        spec, options = self.spec, self.options
        return FrameSource(
            spec.data,
            spec.input,
            self.targets,
            options.store,
            options.learner,
            options.loop.train_seed,
            perturb=options.perturb,
            over_time=options.over_time,
            directory=spec.out,
        )

    def open_data(self) -> JobData:
        """Frames or chunks, from memory or streamed."""
        self.corpus = open_corpus(self.source(), self.comm, self.strategy.share, self.strategy.draw)
        minibatch = self.corpus.packing.whole(self.options.learner.minibatch)
        return JobData(self.corpus.training, self.corpus.heldout, self.corpus.normaliser(), minibatch)


class OnUtterances(RankTraining[Spec], Generic[Spec, TheirUtterances]):
    """A training on whole utterances, which are read from disk in each epoch.

    matrix      transform of all frames of the reader, see `FeatureReader`
    utterances  (training, held-out) utterances, after `open_data`
    """

    of_any_size = True
    matrix: np.ndarray | None = None
    utterances: tuple[TheirUtterances, TheirUtterances]

    def maker(self, reader: FeatureReader, keys: set[str]) -> Callable[..., TheirUtterances]:
        """The function that makes utterances, some of `keys`, from their keys and the last arguments of
        `Utterances`."""
        raise NotImplementedError

    def normaliser(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and inverse standard deviation of the network's input, float32 (input_dim,)."""
        raise NotImplementedError

    def terms(self) -> float:
        """See `JobData`."""
        raise NotImplementedError

    def open_data(self) -> JobData:
        """Whole utterances, minibatch by minibatch."""
        spec, options, strategy, rank = self.spec, self.options, self.strategy, self.comm.rank
        parts = self.targets.parts(strategy.share, rank, self.comm.size)
        own = {*parts[0], *parts[1]}
        self.reader = rank_reader(spec.out, spec.data, spec.input, self.targets, own, self.matrix)
        make = self.maker(self.reader, own)
        training, heldout = (
            make(keys, options.learner, options.loop.train_seed, rank, draw)
            for keys, draw in zip(parts, (strategy.draw, ALL))
        )
        self.utterances = training, heldout
        check_frames(spec.data, training.num_frames, self.comm)
        return JobData(
            training,
            heldout,
            self.normaliser(),
            options.learner.minibatch,
            longest=training.longest,
            terms=self.terms(),
        )


def train_rank(
    spec: TrainingSpec, comm: Comm, kind: Callable[..., Trainer[Learner]] = Trainer, **settings
) -> None:
    """Train on this rank's data together with all other ranks; rank 0 writes final.nnet.

    kind      class of the job, with the arguments of `Trainer`
    settings  further arguments of the class that `spec.objective` names
    """
    training: RankTraining = resolve(spec.objective)(spec, comm, **settings)
    options, strategy = spec.training, training.strategy
    data, network = training.open_data(), training.make_network()
    seed_dropout(options.loop.train_seed, comm.rank)
    gradient_sum = strategy.sum_gradients(of_any_size=training.of_any_size)
    learner = Learner(network, options.learner, comm.size, gradient_sum, training.make_criterion())
    job = make_job(learner, data, strategy, options, spec.out, kind)
    training.run(job)
    training.finish(job, data)
