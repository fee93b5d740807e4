"""Small DBNs on toy data, also for MPI ranks of the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scheme_toys import changed_groups
from training_corpora import make_data

from pyasr.feats.inputs import InputOptions
from pyasr.nn.files import DBN_FILE
from pyasr.nn.network_options import HiddenOptions
from pyasr.nn.networks import rbm as rbm_module
from pyasr.nn.networks.dbn import Below, Dbn, load_dbn
from pyasr.nn.networks.rbm import Rbm
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import make_strategy, mixing_options
from pyasr.train.compute import ComputeOptions
from pyasr.train.data.minibatch_stream import ResidentFrames
from pyasr.train.job.trainer import LoopOptions, Trainer
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.objectives.dbn_training import DbnTraining, PretrainSpec, pretrain_rank
from pyasr.train.schedules import ScalingOptions, ScheduleOptions
from pyasr.train.sgd.rbm_learner import MomentumOptions, MomentumSchedule, RbmLearner
from pyasr.train.steps.dbn_step import prepare_utterances
from pyasr.train.targets.pdf_targets import HeldoutOptions
from pyasr.train.training_options import RbmOptions

INPUT = InputOptions(cmvn="none", splice_left=1, splice_right=1)
OPTIONS = DbnTraining(
    hidden=HiddenOptions(hidden_layers=3, hidden_dim=16),
    rbm=RbmOptions(rbm_iter=2, rbm_lr_low=0.02),
    scaling=ScalingOptions(lr_scaling="none"),
    compute=ComputeOptions(minibatch=20, precision="float32", device="cpu"),
    mixing=mixing_options(period_frames=100),
    loop=LoopOptions(log_frames=500, checkpoint_frames=300),
)


def with_options(**groups) -> DbnTraining:
    """OPTIONS with some fields of some groups changed."""
    return changed_groups(OPTIONS, **groups)


def make_toy(path: Path, num_utterances: int = 16) -> Path:
    make_data(path / "data", {f"{'abcd'[i % 4]}-{i:02d}": 50 + 3 * i for i in range(num_utterances)}, 5)
    return path / "data"


def spec_of(
    data: Path, out: Path, options: DbnTraining = OPTIONS, heldout_share: float = 0.2
) -> PretrainSpec:
    """Specification for `pretrain_rank` with prepared utterances."""
    out.mkdir(exist_ok=True)
    prepare_utterances(data, out, HeldoutOptions(heldout_share=heldout_share), options.rbm.max_frames)
    return PretrainSpec(data, out, INPUT, options)


def pretrained(spec: PretrainSpec, comm: Comm) -> Dbn:
    pretrain_rank(spec, comm)
    comm.barrier()
    return load_dbn(spec.out / DBN_FILE)


def parameters(dbn: Dbn) -> torch.Tensor:
    return torch.cat([p.flatten() for rbm in dbn.rbms for p in rbm.parameters()])


class FixedOrderStore(FrameStore):
    """Frames in the order of the store."""

    def epoch_order(self, seed, *names):
        return torch.arange(self.num_frames)


def _sample_by_thresholds(p: torch.Tensor, generator=None) -> torch.Tensor:
    """Samples that depend only on the probabilities of a row, not on its rank."""
    return (p > torch.linspace(0.1, 0.9, p.shape[1])).to(p.dtype)


def trained_without_chance(
    comm: Comm, directory: Path, gaussian: bool, minibatch: int, num_shares: int
) -> torch.Tensor:
    """Parameters of an RBM after two epochs in which each rank has every `comm.size`-th minibatch, with a
    mixing after each."""
    rbm_module.sample_bernoulli = _sample_by_thresholds
    torch.manual_seed(11)
    rows = torch.randn(10 * 6 * num_shares * minibatch, 5)
    rows = rows if gaussian else torch.sigmoid(3 * rows)
    mine = rows.view(-1, comm.size, minibatch * num_shares // comm.size, 5)[:, comm.rank].reshape(-1, 5)
    store = FixedOrderStore([mine.numpy()], [np.zeros(len(mine), np.int32)], 0, 0, 5)
    rbm = Rbm(5, 8, gaussian)
    rbm.initialise(0.3, torch.Generator().manual_seed(2))
    size = minibatch * num_shares // comm.size
    compute = ComputeOptions(minibatch=size, precision="float32", device="cpu")
    schedule_options = ScheduleOptions(learning_rate=0.05, num_epochs=2, lr_scaling="none")
    momentum = MomentumOptions(momentum_step_frames=500)
    learner = RbmLearner(
        rbm,
        Below([], torch.device("cpu"), torch.float32),
        compute,
        0.001,
        torch.Generator(),
        momentum_schedule=momentum,
    )
    schedule = MomentumSchedule(schedule_options, int(comm.reduce_scalar(store.num_frames)), momentum, size)
    directory.mkdir(parents=True, exist_ok=True)
    strategy = make_strategy(comm, mixing_options(period_frames=1))
    Trainer(
        learner,
        ResidentFrames(store, 777, comm.rank),
        store,
        strategy,
        schedule,
        LoopOptions(),
        size,
        directory,
    ).run()
    return learner.flat.master.clone()


def period_one(spec, comm: Comm) -> None:
    """Program of three MPI ranks: both kinds of RBMs, on two of the ranks and on all. Rank 0 writes their
    parameters."""
    pair = comm.split(comm.rank // 2)  # ranks 0 and 1; rank 2 alone
    for group in (pair, comm):
        for gaussian in (True, False):
            if group is comm or comm.rank < 2:
                name = f"{group.size}-{gaussian}"
                master = trained_without_chance(group, Path(spec.cmd) / f"job-{name}", gaussian, 8, 6)
                torch.save(master, Path(spec.cmd) / f"{name}.rank-{group.rank}.pt")
