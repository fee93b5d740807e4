"""Training of an acoustic model on the pdfs of frames on a rank, from the data to the model file. The
criteria are in `pyasr.train.sgd.criterion` and `pyasr.train.sgd.carried_states`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.construction import Network
from pyasr.nn.networks.dbn import load_dbn
from pyasr.nn.networks.feed_forward import FeedForward, FixedParts, initialise
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import Strategy
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.frame_memory import limit_of_frames
from pyasr.train.data.input_transform import estimate_transform
from pyasr.train.data.rank_data import FrameSource
from pyasr.train.data.sample import Sample, draw_sample
from pyasr.train.evolve.combine import RecentModels
from pyasr.train.evolve.growth import Action, Growth, first_shape
from pyasr.train.evolve.priors import decoding_priors, presoftmax_scales
from pyasr.train.evolve.saturation import SaturationFix
from pyasr.train.evolve.shrinking import Shrinking, ShrinkingOfSaturated
from pyasr.train.job.checkpoint_index import MODELS
from pyasr.train.job.one_learner import OneLearner
from pyasr.train.job.rank_job import JobData, combine_and_log, save_one_learner
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.rank_training import OnFrames
from pyasr.train.schedules import Schedule
from pyasr.train.sgd.carried_states import CarriedCrossEntropy
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import initial_random
from pyasr.train.steps.dnn_step import DnnTraining, TrainSpec
from pyasr.train.targets.soft_target_files import SoftTargetFiles
from pyasr.train.training_options import GrowthOptions


class DnnRank(OnFrames[TrainSpec]):
    """A feed-forward network, or the network of --network, that learns the pdfs of frames.

    make_shard, limit  functions with the parameters of their defaults, see `FrameSource`
    counts             frames of each pdf in the training and held-out data, int64 (num_pdfs,)
    """

    def __init__(
        self,
        spec: TrainSpec,
        comm: Comm,
        make_shard: Callable[..., Shard] = Shard,
        limit: Callable[..., int] = limit_of_frames,
    ):
        super().__init__(spec, comm)
        self.make_shard, self.limit = make_shard, limit
        self.of_any_size = spec.training.over_time.carry_state
        self.dbn = load_dbn(spec.dbn / DBN_FILE) if spec.dbn else None
        self.counts = self.targets.counts()

    def source(self) -> FrameSource:
        """The frames with their pdfs or a teacher's targets, normalised like the DBN if there is one."""
        spec, teacher, dbn = self.spec, self.options.teacher, self.dbn
        soft = (
            SoftTargetFiles(teacher, spec.data, self.targets, spec.out, self.comm)
            if teacher.teacher
            else None
        )
        return replace(
            super().source(),
            normaliser=(dbn.mean.numpy(), dbn.inverse_std.numpy()) if dbn else None,
            soft=soft,
            make_shard=self.make_shard,
            limit=self.limit,
        )

    def make_network(self) -> Network:
        """The network with its fixed parts, and the hidden layers of the DBN."""
        options, corpus, targets = self.options, self.corpus, self.targets
        fixed = FixedParts(
            estimate_transform(corpus.training, targets.num_pdfs, options.transform, self.comm),
            presoftmax_scales(self.counts, options.priors.presoftmax_power),
        )
        random = initial_random(options.loop.train_seed)
        network = make_network(options, corpus.input_dim, targets.num_pdfs, random, fixed)
        if self.dbn is not None:
            self.dbn.start(network)
        return network

    def make_criterion(self) -> Criterion:
        """The criterion of the step."""
        return CarriedCrossEntropy() if self.options.over_time.carry_state else self.spec.loss.make()

    def run(self, job: Trainer[Learner]) -> None:
        """Train a network that may grow, and combine the last models with --combine."""
        options, comm = self.options, self.comm
        size, seed = options.sample.sample_frames, options.loop.train_seed
        self.sample = draw_sample(self.corpus.training, size, comm, seed) if options.uses_sample else None
        recent = RecentModels(self.spec.out / MODELS, options.combine, comm)
        job.growth = make_growth(options, self.counts, job.schedule, self.strategy, self.sample, recent)
        job.one_learner = OneLearner(self.strategy) if options.saving.save_learner else None
        job.run()
        if self.sample and options.combine.combine != "none":
            combine_and_log(job, options.combine, recent, self.sample)

    def log_priors(self, network: Network) -> torch.Tensor:
        """The priors that --priors names."""
        return decoding_priors(self.options.priors, network, counts=self.counts, sample=self.sample)

    def finish(self, job: Trainer[Learner], data: JobData) -> None:
        """Write OUT/final.nnet, and OUT/learner with --save-learner."""
        super().finish(job, data)
        if job.one_learner:
            save_one_learner(job, job.one_learner, data.normaliser, self.log_priors)


def make_network(
    options: DnnTraining,
    input_dim: int,
    num_pdfs: int,
    random: torch.Generator,
    fixed: FixedParts = FixedParts(),
) -> Network:
    """The initial network with random parameters."""
    over_time = options.over_time
    if over_time.network:
        chunk = 0 if over_time.carry_state else over_time.chunk
        network = LayeredNetwork(read_network(over_time.network), input_dim, num_pdfs, chunk)
        network.initialise(random)
        return network
    shape = first_shape(options.growth, options.dnn)
    network = FeedForward(shape, input_dim, num_pdfs, fixed)
    initialise(network, shape, random)
    return network


def make_growth(
    options: DnnTraining,
    counts: np.ndarray,
    schedule: Schedule,
    strategy: Strategy,
    sample: Sample | None,
    recent: RecentModels,
) -> Growth:
    """All changes of the network other than its training, and the saving of models to be combined;
    `sample`: see `DnnTraining.uses_sample`."""
    actions = measuring_actions(options.growth, sample) if sample else []
    combines = options.combine.combine != "none"
    keeping = [(options.combine.combine_period_frames, recent.keep)] if combines else []
    total_frames = schedule.epoch_frames * options.schedule.num_epochs
    next_synchronisation = partial(
        strategy.next_synchronisation, epoch_frames=schedule.epoch_frames, minibatch=options.learner.minibatch
    )
    return Growth(
        options.growth,
        options.dnn,
        counts,
        total_frames,
        options.loop.train_seed,
        strategy.comm,
        actions,
        keeping,
        next_synchronisation,
    )


def measuring_actions(options: GrowthOptions, sample: Sample) -> list[tuple[int, Action]]:
    """(period in frames, change of parameters) of the changes that `options.measures` names."""
    actions: list[tuple[int, Action]] = []
    if options.fix_period_frames:
        actions.append((options.fix_period_frames, SaturationFix(sample)))
    if options.shrink_period_frames:
        actions.append((options.shrink_period_frames, Shrinking(sample)))
    if options.shrink_value < 1:
        shrinking = ShrinkingOfSaturated(sample, options.shrink_value, options.shrink_saturation_threshold)
        actions.append((options.shrink_value_period_frames, shrinking))
    return actions
