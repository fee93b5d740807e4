"""Pretraining of a deep belief net on MPI ranks, RBM by RBM, with the loop, the mixing and the checkpoints of
DNN training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.dbn import Below, Dbn, load_dbn
from pyasr.nn.networks.rbm import Rbm
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import make_strategy
from pyasr.train.data.minibatch_stream import Frames
from pyasr.train.data.rank_data import FrameSource, RankData, open_corpus
from pyasr.train.data.sample import choose_frames
from pyasr.train.job.trainer import Trainer
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.sgd.rbm_learner import MomentumSchedule, RbmLearner
from pyasr.train.steps.dbn_step import UTTERANCES_FILE, DbnTraining, PretrainSpec
from pyasr.train.targets.pdf_targets import Targets

_BIAS_FRAMES = 100_000  # over all ranks, for the mean activations
_BIAS_BLOCK = 1024


def pretrain_rank(spec: PretrainSpec, comm: Comm) -> None:
    """Train one RBM after the other on this rank's shard, together with all other ranks; rank 0 writes
    final.dbn after each RBM.

    The finished RBMs of an interrupted run are read from final.dbn.
    """
    options = spec.training
    targets = Targets.load(spec.out / UTTERANCES_FILE)
    strategy = make_strategy(comm, options.mixing)
    source = FrameSource(
        spec.data,
        spec.input,
        targets,
        options.store,
        options.compute,
        options.loop.train_seed,
        directory=spec.out,
    )
    corpus = open_corpus(source, comm, strategy.share, strategy.draw)
    path = spec.out / DBN_FILE
    rbms = _finished_before(path, corpus.input_dim, options.hidden.hidden_dim)
    comm.barrier()
    while len(rbms) < options.hidden.hidden_layers:
        rbms.append(_train_next(spec, comm, corpus, rbms))
        if comm.rank == 0:
            Dbn(rbms, torch.from_numpy(corpus.mean), torch.from_numpy(corpus.inverse_std)).save(path)


def _finished_before(path: Path, input_dim: int, hidden_dim: int) -> list[Rbm]:
    """The RBMs of an interrupted run."""
    if not path.exists():
        return []
    dbn = load_dbn(path)
    if dbn.dims != [input_dim] + [hidden_dim] * len(dbn.rbms):
        found = (
            f"RBMs of {dbn.dims[1]} units on {dbn.dims[0]} inputs, but these options give {hidden_dim} "
            f"units on {input_dim} inputs"
        )
        raise UserError(
            f"{path}: {found}; give the options of those RBMs, or --force to train from the start"
        )
    return dbn.rbms


def _train_next(spec: PretrainSpec, comm: Comm, corpus: RankData, rbms: list[Rbm]) -> Rbm:
    """The next RBM, trained on top of `rbms`."""
    options, number = spec.training, len(rbms) + 1
    schedule_options = layer_schedule(options, gaussian=not rbms)
    strategy = make_strategy(comm, options.mixing)
    below = Below(rbms, options.compute.torch_device(), options.compute.torch_dtype())
    learner = make_rbm_learner(options, below, corpus, number, comm)
    minibatch, epoch_frames = options.compute.minibatch, strategy.epoch_frames(corpus.training.num_frames)
    schedule = MomentumSchedule(schedule_options, epoch_frames, options.momentum, minibatch)
    directory = spec.out / f"rbm{number}"
    directory.mkdir(exist_ok=True)
    job = Trainer(
        learner, corpus.training, corpus.heldout, strategy, schedule, options.loop, minibatch, directory
    )
    _announce(job, schedule_options, number)
    job.run()
    return finished(learner)


def layer_schedule(options: DbnTraining, gaussian: bool) -> ScheduleOptions:
    """Learning rate and epochs of an RBM."""
    rate, epochs = (
        (options.rbm.rbm_lr_low, 2 * options.rbm.rbm_iter)
        if gaussian
        else (options.rbm.rbm_lr, options.rbm.rbm_iter)
    )
    return ScheduleOptions(
        learning_rate=rate, num_epochs=epochs, lr_convention="mean", lr_scaling=options.scaling.lr_scaling
    )


def make_rbm_learner(
    options: DbnTraining, below: Below, corpus: RankData, number: int, comm: Comm
) -> RbmLearner:
    """RBM `number` (1: the Gaussian one) with its initial parameters, which are the same on all ranks;
    samples differ by rank."""
    mean = mean_activation(corpus.training, below, comm, options.loop.train_seed) if number > 1 else None
    rbm = Rbm(
        corpus.input_dim if mean is None else len(mean), options.hidden.hidden_dim, gaussian=number == 1
    )
    rbm.initialise(
        options.rbm.param_stddev, torch.Generator().manual_seed(_seed(options, "initial", number)), mean
    )
    samples = torch.Generator(options.compute.torch_device()).manual_seed(
        _seed(options, "samples", number, comm.rank)
    )
    return RbmLearner(
        rbm, below, options.compute, options.rbm.rbm_l2penalty, samples, f"RBM {number}", options.momentum
    )


def mean_activation(frames: Frames, below: Below, comm: Comm, seed: int) -> torch.Tensor:
    """Mean probability of each hidden unit of the topmost RBM below, over all ranks; float32 on the CPU."""
    store, chosen = choose_frames(frames, _BIAS_FRAMES, comm, seed)
    sums = np.zeros(below.dim + 1)
    for index in chosen.split(_BIAS_BLOCK):
        sums[:-1] += below(store.gather(index)[0]).sum(0, dtype=torch.float32).double().cpu().numpy()
    sums[-1] = len(chosen)
    comm.allreduce(sums)
    return torch.from_numpy(sums[:-1] / sums[-1]).float()


def finished(learner: RbmLearner) -> Rbm:
    """A copy of the learner's RBM in float32 on the CPU."""
    hidden_dim, visible_dim = learner.rbm.weight.shape
    rbm = Rbm(visible_dim, hidden_dim, learner.rbm.gaussian)
    for parameter, value in zip(rbm.parameters(), learner.flat.values()):
        parameter.copy_(value)
    return rbm


def _seed(options: DbnTraining, *names: object) -> int:
    return int(generator(options.loop.train_seed, "rbm", *names).integers(1 << 31))


def _announce(job: Trainer[RbmLearner], schedule: ScheduleOptions, number: int) -> None:
    rbm, factor = job.learner.rbm, schedule.scale(job.strategy.num_averaged)
    kind, (hidden_dim, visible_dim) = "Gaussian" if rbm.gaussian else "Bernoulli", rbm.weight.shape
    job.comm.log(
        f"RBM {number}: {kind} {visible_dim}-{hidden_dim}, {schedule.num_epochs} epochs of "
        f"{job.schedule.epoch_frames} frames, {job.comm.size} ranks, products in {job.learner.products}; "
        f"{schedule.lr_scaling} scaling: effective rate {schedule.learning_rate:g} x {factor:g} = "
        f"{schedule.learning_rate * factor:g} times (1 - momentum)"
    )
