"""From a data directory to the frames that a rank trains on: shards, normalisation, perturbation, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.parallel.communication.comm import Comm
from pyasr.train.compute import ComputeOptions
from pyasr.train.data.data_shard import Shard, global_normaliser
from pyasr.train.data.frame_memory import limit_of_frames, loading
from pyasr.train.data.minibatch_stream import Frames, open_frames
from pyasr.train.draws import ALL
from pyasr.train.minibatches.chunks import Packing
from pyasr.train.minibatches.feature_codec import make_code
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.minibatches.over_time import OverTimeOptions
from pyasr.train.perturbing import PerturbOptions, make_warper
from pyasr.train.targets.pdf_targets import Targets
from pyasr.train.targets.rank_reader import rank_reader
from pyasr.train.targets.soft_target_files import SoftTargetFiles
from pyasr.train.training_options import StoreOptions


@dataclass
class RankData:
    """Normalised frames of one rank.

    mean, inverse_std  statistics of the feature columns over all ranks, float32 (dim,)
    packing            how stores divide utterances
    """

    training: Frames
    heldout: FrameStore
    mean: np.ndarray
    inverse_std: np.ndarray
    packing: Packing

    @property
    def input_dim(self) -> int:
        """Columns of the network's input."""
        return self.packing.width * len(self.mean)

    def normaliser(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and inverse standard deviation of the network's input, float32 (input_dim,)."""
        return torch.from_numpy(self.mean).repeat(self.packing.width), torch.from_numpy(
            self.inverse_std
        ).repeat(self.packing.width)


@dataclass(frozen=True)
class FrameSource:
    """Frames of a data directory with their targets, and how a rank keeps them.

    normaliser  (mean, inverse_std) to use instead of those of `data`, float32 (dim,)
    over_time   options of a network that is trained on chunks; without a network file, frames are spliced as
                in `input`
    soft        a teacher's targets of the training frames, which replace `targets`
    directory   output directory of the training, which contains the tables of `data` packed for ranks; None:
                read the tables of `data`
    make_shard  function with the parameters of `Shard`
    limit       function with the parameters of `limit_of_frames`
    """

    data: Path
    input: InputOptions
    targets: Targets
    store: StoreOptions
    compute: ComputeOptions
    seed: int
    perturb: PerturbOptions = PerturbOptions()
    normaliser: tuple[np.ndarray, np.ndarray] | None = None
    over_time: OverTimeOptions = OverTimeOptions()
    soft: SoftTargetFiles | None = None
    directory: Path | None = None
    make_shard: Callable[..., Shard] = Shard
    limit: Callable[..., int] = limit_of_frames


def open_corpus(
    source: FrameSource, comm: Comm, share: tuple[int, int] | None, draw: tuple[int, int] = ALL
) -> RankData:
    """This rank's training and held-out frames.

    share  (k, n): part k of n of the training data; None: no training data
    draw   (k, n): the share of its part that this rank draws in an epoch, see `num_drawn`
    """
    data, input, targets, compute = source.data, source.input, source.targets, source.compute
    device, dtype = compute.torch_device(), compute.torch_dtype()
    parts = targets.parts(share, comm.rank, comm.size)
    reader = frame_reader(data, input, targets, source.directory, itertools.chain(*parts))
    code, packing = make_code(source.store.store_type, dtype), source.over_time.packing(input, reader.dim)
    training, heldout = (source.make_shard(reader, targets, part, packing, code) for part in parts)
    check_frames(data, training.num_frames, comm)
    if source.soft and (own := source.soft.of(share)):
        training.learn_from(own)
    mean, inverse_std = source.normaliser or global_normaliser(training, comm)
    for shard in (training, heldout):
        shard.normalise_by(mean, inverse_std)
    if source.perturb.vtlp:
        training.warp_by(make_warper(data, input), source.perturb.vtlp, source.seed)
    most = source.limit(training, heldout, source.store, comm, device, source.directory)
    with loading(training):
        measured = heldout.store(np.arange(len(heldout.keys)), 0)
        measured.move(device, dtype)
        frames = open_frames(training, device, dtype, most, source.seed, comm.rank, draw)
    return RankData(frames, measured, mean, inverse_std, packing)


def frame_reader(
    data: Path, input: InputOptions, targets: Targets, directory: Path | None = None, keys: Iterable[str] = ()
) -> FeatureReader:
    """A reader of the features before splicing, which stores do. For `directory` and `keys` see
    `rank_reader`."""
    return rank_reader(directory, data, input.unspliced(), targets, keys)


def check_frames(data: Path, num_frames: int, comm: Comm) -> None:
    """Raise UserError if no rank has frames to train on."""
    if comm.reduce_scalar(num_frames) == 0:
        raise UserError(f"{data}: no frames left to train on; lower --heldout-share")
