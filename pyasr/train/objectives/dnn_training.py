"""Cross-entropy training of an acoustic model on MPI ranks: the work of one rank, from the data to the model
file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.construction import Network
from pyasr.nn.networks.dbn import Dbn, load_dbn
from pyasr.nn.networks.feed_forward import FeedForward, FixedParts, initialise
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.parallel.strategies import Strategy, make_strategy
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.frame_memory import limit_of_frames
from pyasr.train.data.input_transform import estimate_transform
from pyasr.train.data.rank_data import open_corpus
from pyasr.train.data.sample import Sample, draw_sample
from pyasr.train.evolve.combine import RecentModels
from pyasr.train.evolve.growth import Action, Growth, first_shape
from pyasr.train.evolve.priors import decoding_priors, presoftmax_scales
from pyasr.train.evolve.saturation import SaturationFix
from pyasr.train.evolve.shrinking import Shrinking, ShrinkingOfSaturated
from pyasr.train.job.checkpoint_index import MODELS
from pyasr.train.job.one_learner import OneLearner
from pyasr.train.job.rank_job import combine_and_log, make_job, save_one_learner, write_model
from pyasr.train.job.trainer import Trainer
from pyasr.train.objectives.carried_states import CarriedCrossEntropy
from pyasr.train.schedules import Schedule
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import initial_random, seed_dropout
from pyasr.train.steps.dnn_step import DnnTraining, TrainSpec
from pyasr.train.steps.loss import CROSS_ENTROPY, Loss
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets
from pyasr.train.targets.soft_target_files import SoftTargetFiles
from pyasr.train.training_options import GrowthOptions


def train_rank(
    spec: TrainSpec,
    comm: Comm,
    kind: Callable[..., Trainer[Learner]] = Trainer,
    make_shard: Callable[..., Shard] = Shard,
    limit: Callable[..., int] = limit_of_frames,
) -> None:
    """Train on this rank's shard together with all other ranks; rank 0 writes final.nnet. The functions have
    the parameters of their defaults."""
    options, targets = spec.training, Targets.load(spec.out / TARGETS_FILE)
    dbn, strategy = load_dbn(spec.dbn / DBN_FILE) if spec.dbn else None, make_strategy(comm, options.mixing)
    soft = (
        SoftTargetFiles(options.teacher, spec.data, targets, spec.out, comm)
        if options.teacher.teacher
        else None
    )
    normaliser = (dbn.mean.numpy(), dbn.inverse_std.numpy()) if dbn else None
    corpus = open_corpus(spec.data, spec.input, targets, options.store, options.learner, comm, strategy.share,
                         options.loop.train_seed, options.perturb, normaliser, make_shard, options.over_time,
                         soft, strategy.draw, spec.out, limit)  # fmt: skip
    counts, seed = targets.counts(), options.loop.train_seed
    fixed = FixedParts(
        estimate_transform(corpus.training, targets.num_pdfs, options.transform, comm),
        presoftmax_scales(counts, options.priors.presoftmax_power),
    )
    gradient_sum = strategy.sum_gradients(of_any_size=options.over_time.carry_state)
    learner = make_learner(
        options, corpus.input_dim, targets.num_pdfs, comm, dbn, fixed, gradient_sum, spec.loss
    )
    job = make_job(
        learner,
        corpus.frames,
        strategy,
        options,
        corpus.packing.whole(options.learner.minibatch),
        spec.out,
        kind=kind,
    )
    sample = (
        draw_sample(corpus.training, options.sample.sample_frames, comm, seed)
        if options.uses_sample
        else None
    )
    recent = RecentModels(spec.out / MODELS, options.combine, comm)
    job.growth = make_growth(options, counts, job.schedule, strategy, sample, recent)
    job.one_learner = OneLearner(strategy) if options.saving.save_learner else None
    job.run()
    if sample and options.combine.combine != "none":
        combine_and_log(job, options.combine, recent, sample)
    network, priors = (
        learner.trained_network(),
        partial(decoding_priors, options.priors, counts=counts, sample=sample),
    )
    write_model(comm, spec.out, network, corpus.normaliser(), priors(network))
    if job.one_learner:
        save_one_learner(job, job.one_learner, corpus.normaliser(), priors)


def make_learner(
    options: DnnTraining,
    input_dim: int,
    num_pdfs: int,
    comm: Comm,
    dbn: Dbn | None = None,
    fixed: FixedParts = FixedParts(),
    gradient_sum: GradientSum | None = None,
    loss: Loss = CROSS_ENTROPY,
) -> Learner:
    """The network with its initial parameters, which are the same on all ranks; dropout differs by rank."""
    seed = options.loop.train_seed
    network = make_network(options, input_dim, num_pdfs, initial_random(seed), fixed)
    if dbn is not None:
        dbn.start(network)
    seed_dropout(seed, comm.rank)
    criterion = CarriedCrossEntropy() if options.over_time.carry_state else loss.make()
    return Learner(network, options.learner, comm.size, gradient_sum, criterion)


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
    meets = partial(strategy.meets, epoch_frames=schedule.epoch_frames, minibatch=options.learner.minibatch)
    return Growth(
        options.growth,
        options.dnn,
        counts,
        total_frames,
        options.loop.train_seed,
        strategy.comm,
        actions,
        keeping,
        meets,
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
