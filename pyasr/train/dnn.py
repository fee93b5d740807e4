"""Cross-entropy training of a feed-forward acoustic model on MPI ranks: what one rank does from the data to the model file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pyasr.base import log
from pyasr.base.options import group
from pyasr.base.seeds import generator
from pyasr.feats.inputs import InputOptions
from pyasr.nn.acoustic import MODEL_FILE, AcousticModel, log_priors
from pyasr.nn.dbn import DBN_FILE, Dbn, load_dbn
from pyasr.nn.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies import MixingOptions, make_strategy
from pyasr.train.corpus import PerturbOptions, StoreOptions, open_corpus
from pyasr.train.learner import Learner, LearnerOptions
from pyasr.train.loop import LoopOptions, Training
from pyasr.train.schedules import ScheduleOptions, make_schedule
from pyasr.train.targets import Targets


@dataclass(frozen=True)
class DnnTraining:
    """All options of the training itself."""

    dnn: DnnOptions = group(DnnOptions)
    schedule: ScheduleOptions = group(ScheduleOptions)
    learner: LearnerOptions = group(LearnerOptions)
    perturb: PerturbOptions = group(PerturbOptions)
    store: StoreOptions = group(StoreOptions)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class TrainSpec:
    """The work of all ranks: features of `data`, targets in `out`/targets.npz, everything written to `out`.

    dbn  directory of a DBN whose machines are the initial hidden layers, with the normalisation of their input; None: random ones
    """

    data: Path
    out: Path
    input: InputOptions
    training: DnnTraining
    dbn: Path | None = None


def train_rank(spec: TrainSpec, comm: Comm) -> None:
    """Train on this rank's shard, together with all others; rank 0 writes final.nnet."""
    options, targets = spec.training, Targets.load(spec.out / "targets.npz")
    dbn = load_dbn(spec.dbn / DBN_FILE) if spec.dbn else None
    corpus = open_corpus(spec.data, spec.input, targets, options.store, options.learner, comm, options.loop.train_seed,
                         options.schedule.num_epochs, options.perturb, dbn and (dbn.mean.numpy(), dbn.inverse_std.numpy()))  # fmt: skip
    learner = make_learner(options, corpus.input_dim, targets.num_pdfs, comm, dbn)
    schedule = make_schedule(options.schedule, int(comm.reduce_scalar(corpus.training.num_frames)))
    rate_factor = options.schedule.rate_factor(comm.size, options.learner.minibatch)
    job = Training(learner, corpus.training, corpus.heldout, make_strategy(comm, options.mixing), schedule, options.loop,
                   options.learner.minibatch, rate_factor, spec.out)  # fmt: skip
    _announce(job, options)
    job.run()
    if comm.rank == 0:
        final_model(learner, corpus.normaliser(), targets).save(spec.out / MODEL_FILE)


def make_learner(options: DnnTraining, input_dim: int, num_pdfs: int, comm: Comm, dbn: Dbn | None = None) -> Learner:
    """The network with its initial parameters, which are the same on all ranks; dropout differs by rank."""
    seed = options.loop.train_seed
    network = FeedForward(options.dnn, input_dim, num_pdfs)
    initialise(network, options.dnn, torch.Generator().manual_seed(int(generator(seed, "initial").integers(1 << 31))))
    if dbn is not None:
        dbn.start(network)
    torch.manual_seed(int(generator(seed, "dropout", comm.rank).integers(1 << 31)))
    return Learner(network, options.learner, comm.size)


def final_model(learner: Learner, normaliser, targets: Targets) -> AcousticModel:
    """The trained network in float32, with its input's normalisation and the priors of its targets."""
    network = learner.network.with_parameters(learner.flat.values())
    return AcousticModel(network, *normaliser, log_priors(targets.counts()))


def _announce(job: Training, options: DnnTraining) -> None:
    """What is trained, on how much, with which learning rate."""
    if job.comm.rank:
        return
    schedule, flat = options.schedule, job.learner.flat
    factor = schedule.scale(job.comm.size)
    dtype = str(flat.work.dtype).removeprefix("torch.")
    log.info(f"{flat.num_parameters} parameters, {job.schedule.epoch_frames} frames an epoch, {job.comm.size} ranks, products in {dtype}")
    log.info(
        f"learning rate {schedule.learning_rate:g} ({schedule.lr_convention} over minibatches of {options.learner.minibatch}), "
        f"{schedule.lr_scaling} scaling: effective {schedule.learning_rate:g} x {factor:g} = {schedule.learning_rate * factor:g}"
    )
