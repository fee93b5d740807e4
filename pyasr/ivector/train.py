"""Training of an i-vector extractor as one MPI job: UBM, statistics of the utterances, EM; every rank has a
shard of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions, SkippedUtterance, check_skipped
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir, split
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.shards.shard_store import MemoryOptions, reserve, zeros
from pyasr.ivector.em import EmOptions, train
from pyasr.ivector.features import IvectorFeatures
from pyasr.ivector.ivector_extractor import EXTRACTOR_FILE, write_extractor
from pyasr.ivector.stats import collect
from pyasr.ivector.ubm import UBM_FILE, PosteriorOptions, UbmOptions, frame_posteriors, train_ubm, write_ubm


@dataclass(frozen=True)
class StatsOptions:
    """Selection and weight of the frames that train the extractor."""

    heading = "i-vectors"

    subsample: int = option(
        2, "use every N-th frame of an utterance to train the extractor; 1: all frames", minimum=1
    )
    posteriors: PosteriorOptions = group(PosteriorOptions, posterior_scale=1.0)
    missing: SkippedOptions = group(SkippedOptions)


@dataclass(frozen=True)
class IvectorSpec:
    """The work of `train_rank`; `out` contains the files of `write_inputs`."""

    data: Path
    out: Path
    ubm: UbmOptions
    stats: StatsOptions
    em: EmOptions
    store: MemoryOptions = MemoryOptions()


def train_rank(spec: IvectorSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`; rank 0 writes final.dubm and final.ie to `spec.out`."""
    features = IvectorFeatures(spec.data, spec.out)
    lengths = _usable(spec, features, comm)
    room = reserve(spec.data, sum(lengths.values()), spec.store, comm, kept_bytes=0)
    ubm = train_ubm(_subsampled(spec, features, lengths, room), comm, spec.ubm)
    sums = zeros((len(lengths), ubm.num_gauss, ubm.dim), np.float64, room, spec.out)
    stats = collect(_weighted(spec.stats, features, list(lengths), ubm), ubm.num_gauss, ubm.dim, sums)
    extractor = train(stats, comm, spec.em, spec.ubm.seed)
    if comm.rank == 0:
        write_ubm(spec.out / UBM_FILE, ubm)
        write_extractor(spec.out / EXTRACTOR_FILE, extractor)


def _usable(spec: IvectorSpec, features: IvectorFeatures, comm) -> dict[str, int]:
    """{utterance: number of frames} of this rank. Raises UserError if too many utterances cannot be used."""
    lengths, skipped = {}, {}
    for utt in split(spec.data, comm.size)[comm.rank]:
        try:
            lengths[utt] = features.num_frames(utt)
        except SkippedUtterance as reason:
            skipped[utt] = str(reason)
    _report(spec, skipped, comm)
    if not lengths:
        raise UserError(
            f"{spec.data}: no utterance of shard {comm.rank + 1} of {comm.size} can be used; lower --nj"
        )
    return lengths


def _subsampled(
    spec: IvectorSpec, features: IvectorFeatures, lengths: dict[str, int], room: int
) -> np.ndarray:
    """Frames (T, D) that train the UBM."""
    step, end = spec.ubm.ubm_subsample, 0
    frames = zeros(
        (sum(-(-num_frames // step) for num_frames in lengths.values()), features.dim),
        np.float32,
        room,
        spec.out,
    )
    for utt in lengths:
        own = features[utt][1][::step]
        begin, end = end, end + len(own)
        frames[begin:end] = own
    return frames


def _report(spec: IvectorSpec, skipped: dict[str, str], comm) -> None:
    """Log the skipped utterances of all ranks, on rank 0."""
    everywhere = {utt: reason for part in comm.gather(skipped) or [] for utt, reason in part.items()}
    if comm.rank == 0:
        check_skipped(
            everywhere,
            len(DataDir(spec.data).utterances),
            spec.stats.missing,
            str(spec.data),
            "make their features",
        )


def _weighted(
    options: StatsOptions, features: IvectorFeatures, keys: list[str], ubm: AmDiagGmm
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(posteriors, plain features) of the selected frames of each utterance."""
    progress = log.Progress("statistics", len(keys), "utterances")
    for i, utt in enumerate(keys, 1):
        plain, normalised = (view[:: options.subsample] for view in features[utt])
        yield frame_posteriors(ubm, normalised, options.posteriors), plain
        progress.update(i)
