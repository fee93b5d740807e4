"""Training of an i-vector extractor as one MPI job: UBM, statistics of the utterances, EM; every rank has its shard of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.left_out import LeftOut, LeftOutOptions, check_left_out
from pyasr.base.options import group, option
from pyasr.data.datadir import DataDir, split
from pyasr.hmm.gmm import AmDiagGmm
from pyasr.ivector.em import EmOptions, train
from pyasr.ivector.extractor import EXTRACTOR_FILE, write_extractor
from pyasr.ivector.features import IvectorFeatures
from pyasr.ivector.stats import collect
from pyasr.ivector.ubm import UBM_FILE, PosteriorOptions, UbmOptions, frame_posteriors, train_ubm, write_ubm


@dataclass(frozen=True)
class StatsOptions:
    """Which frames the extractor is trained on, and how much each counts."""

    subsample: int = option(2, "every n-th frame of an utterance trains the extractor", minimum=1)
    posteriors: PosteriorOptions = group(PosteriorOptions, posterior_scale=1.0)
    missing: LeftOutOptions = group(LeftOutOptions)


@dataclass(frozen=True)
class IvectorSpec:
    """The work of `train_rank`; `out` has the files of `write_inputs`."""

    data: Path
    out: Path
    ubm: UbmOptions
    stats: StatsOptions
    em: EmOptions


def train_rank(spec: IvectorSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`; rank 0 writes final.dubm and final.ie to `spec.out`."""
    features = IvectorFeatures(spec.data, spec.out)
    keys, frames = _load(spec, features, comm)
    ubm = train_ubm(frames, comm, spec.ubm)
    stats = collect(_weighted(spec.stats, features, keys, ubm), ubm.num_gauss, ubm.dim)
    extractor = train(stats, comm, spec.em, spec.ubm.seed)
    if comm.rank == 0:
        write_ubm(spec.out / UBM_FILE, ubm)
        write_extractor(spec.out / EXTRACTOR_FILE, extractor)


def _load(spec: IvectorSpec, features: IvectorFeatures, comm) -> tuple[list[str], np.ndarray]:
    """This rank's utterances and the frames (T, D) that train the UBM. Raises UserError when too many utterances cannot be used."""
    parts, left_out = {}, {}
    for utt in split(spec.data, comm.size)[comm.rank]:
        try:
            parts[utt] = features[utt][1][::spec.ubm.ubm_subsample].copy()
        except LeftOut as reason:
            left_out[utt] = str(reason)
    _report(spec, left_out, comm)
    if not parts:
        raise UserError(f"{spec.data}: no utterance of shard {comm.rank + 1} of {comm.size} can be used; lower --nj")
    return list(parts), np.concatenate(list(parts.values()))


def _report(spec: IvectorSpec, left_out: dict[str, str], comm) -> None:
    """Name all ranks' utterances that are left out, on rank 0."""
    everywhere = {utt: reason for part in comm.allgather(left_out) for utt, reason in part.items()}
    if comm.rank == 0:
        check_left_out(everywhere, len(DataDir(spec.data).utterances), spec.stats.missing, str(spec.data), "make their features")


def _weighted(options: StatsOptions, features: IvectorFeatures, keys: list[str], ubm: AmDiagGmm) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(posteriors, plain features) of the frames of each utterance that count."""
    progress = log.Progress("statistics", len(keys), "utterances")
    for i, utt in enumerate(keys, 1):
        plain, normalised = (view[::options.subsample] for view in features[utt])
        yield frame_posteriors(ubm, normalised, options.posteriors), plain
        progress.update(i)
