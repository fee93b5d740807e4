"""A data directory whose features are those a model sees, transforms applied: fMLLR features as archives, for networks.

OUT/feats/transformed.JOB.ark and the tables that point into them; all other tables are copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.data import subsets
from pyasr.data.datadir import DataDir, split
from pyasr.feats.inputs import open_features
from pyasr.io.ark import ArkWriter, read_scp
from pyasr.io.text import read_table, write_table


@dataclass(frozen=True)
class TransformSpec:
    """The work of all jobs: utterances of `data`, split over `num_jobs`, to archives in `out`, which will be renamed to `named`."""

    data: Path
    model_dir: Path
    transform_dir: Path | None
    out: Path
    named: Path
    num_jobs: int
    compress: bool


def transform_shard(spec: TransformSpec, job: int) -> None:
    """Features of shard `job` (1-based): writes feats/transformed.JOB.ark, feats/feats.JOB.scp and feats/num_frames.JOB."""
    reader = open_features(spec.data, spec.model_dir, spec.transform_dir)
    known = set(reader.keys)
    keys = [utt for utt in split(spec.data, spec.num_jobs)[job - 1] if utt in known]
    write_archive(spec, job, ((utt, reader[utt]) for utt in keys), "transformed", len(keys))


def write_archive(spec, job: int, utterances: Iterable[tuple[str, np.ndarray]], name: str, num_utterances: int) -> None:
    """What job `job` makes: feats/NAME.JOB.ark with (utterance, features), feats/feats.JOB.scp and feats/num_frames.JOB.

    spec  of a class with `out`, `named` and `compress`, as `TransformSpec`
    """
    num_frames: dict[str, int] = {}
    progress = log.Progress("features", num_utterances, "utterances")
    folder, ark = spec.out / "feats", f"{name}.{job}.ark"
    with ArkWriter(folder / ark, folder / f"feats.{job}.scp", spec.compress, spec.named / "feats" / ark) as writer:
        for utt, features in utterances:
            writer.write(utt, features)
            num_frames[utt] = len(features)
            progress.update(len(num_frames))
    write_table(folder / f"num_frames.{job}", num_frames)


def copied_files(data: Path) -> list[Path]:
    """The files of `data` that `write_tables` copies, for the fingerprints of a stage output."""
    return subsets.table_files(DataDir(data), with_features=False)


def write_tables(spec) -> None:
    """The tables of the new data directory, from those of `spec.data` and the jobs' (`spec` as for `write_archive`, with `num_jobs`).

    Raises UserError when there are no features.
    """
    feats, num_frames = {}, {}
    for job in range(1, spec.num_jobs + 1):
        scp = spec.out / "feats" / f"feats.{job}.scp"
        if scp.stat().st_size:
            feats |= read_scp(scp)
            num_frames |= read_table(spec.out / "feats" / f"num_frames.{job}")
    if not feats:
        raise UserError(f"{spec.data}/feats.scp: it has features of none of the utterances; make them first")
    subsets.copy(DataDir(spec.data), spec.out, subsets.Renaming(), with_features=False)
    write_table(spec.out / "feats.scp", feats)
    write_table(spec.out / "utt2num_frames", num_frames)
    log.info(f"{len(feats)} utterances, {sum(map(int, num_frames.values()))} frames")
