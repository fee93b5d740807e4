"""Training of monophone GMMs from scratch, on all ranks of one MPI job; see `train_gmm` for the loop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.feats.inputs import InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.gmm_dir import silence_pdfs, write_static_files
from pyasr.hmm.model.gmm_update import global_moments
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, monophone_tree
from pyasr.hmm.shards.gmm_shard import GmmShard, load_shard
from pyasr.hmm.training.train_gmm import GmmTrainer, Model, TrainOptions, finish, is_finished
from pyasr.lang.lang_dirs.lang_dir import LangDir

_MIN_VARIANCE = 1e-8  # above the rounding error of float32 values up to 1000 after mean subtraction


@dataclass(frozen=True)
class MonoSpec:
    """The work of `train_rank`."""

    data: Path
    lang: Path
    out: Path
    train: TrainOptions
    inputs: InputOptions


def train_rank(spec: MonoSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`. Writes a complete GMM directory to `spec.out`."""
    if is_finished(spec.out, comm):
        return
    lang = LangDir(spec.lang)
    shard = load_shard(spec.data, spec.inputs, lang, comm, spec.train.store, spec.out)
    shard.check_usable(comm)
    topology = Topology.read(lang.topo)
    topology.check_phones(lang.real_phones, lang.topo)
    tree = monophone_tree(lang.sets, {phone: topology.num_pdf_classes(phone) for phone in topology.phones})
    model = initial_model(topology, tree, shard, comm)
    shard.compile_graphs(lang, model.trans, tree)
    if comm.rank == 0:
        tree.write(spec.out / "tree")
        write_static_files(spec.out, lang, spec.inputs, comm.size)
        keep_origin(spec.out, spec.data)
    trainer = GmmTrainer(spec.out, shard, comm, spec.train, lambda trans: silence_pdfs(lang, trans))
    trainer.run(0, model, lambda: shard.align_equal(spec.train.schedule.seed))
    finish(spec.out, trainer)


def initial_model(topology: Topology, tree: ContextTree, shard: GmmShard, comm) -> Model:
    """The model with the topology's transition probabilities, and one Gaussian per pdf, with mean and
    variance of all frames.

    Raises UserError if a feature column is constant.
    """
    mean, variances, _ = global_moments(shard.all_features(), comm)
    _check_columns(shard, variances, comm)
    num = tree.num_pdfs
    ones = np.ones((num, 1))
    gmm = AmDiagGmm.from_moments(np.arange(num + 1), ones[:, 0], ones * mean, ones * variances)
    return Model(TransitionModel.from_tree(topology, tree), gmm, num)


def _check_columns(shard: GmmShard, variances: np.ndarray, comm) -> None:
    """Raise UserError if a column is constant in the frames of all ranks, exactly or up to the rounding of
    its normalisation."""
    low, high = np.full(shard.dim, np.inf), np.full(shard.dim, -np.inf)  # unchanged on a rank without frames
    for features in shard.all_features():
        low = np.minimum(low, features.min(0, initial=np.inf))
        high = np.maximum(high, features.max(0, initial=-np.inf))
    comm.allreduce(low, "min")
    comm.allreduce(high, "max")
    constant = np.flatnonzero((low == high) | ~(variances > _MIN_VARIANCE)) + 1
    if len(constant):
        which = (
            f"column {constant[0]}"
            if len(constant) == 1
            else f"{len(constant)} columns (the first is {constant[0]})"
        )
        raise UserError(
            f"{shard.data}: {which} of the {len(low)} features with deltas and splicing: constant in all "
            "frames, so no variance can be estimated; use features without constant columns"
        )
