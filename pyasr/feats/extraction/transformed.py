"""Write a data directory with the transformed input of a model as features: fMLLR features as archives, for
networks.

OUT/feats/transformed.JOB.ark and the tables that refer to them; all other tables are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.skipped_utterances import SkippedOptions, SkippedUtterance, check_skipped
from pyasr.data.parts import subsets
from pyasr.data.parts.job_parts import part_of
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.inputs import open_features
from pyasr.feats.origin import origin_of, save_origins
from pyasr.io.ark import ArkWriter, scp_table
from pyasr.io.lazy_tables import Joined, Stored
from pyasr.io.tables import Table, TableBuilder
from pyasr.io.text_tables import read_table, write_table


@dataclass(frozen=True)
class TransformSpec:
    """The work of all jobs: utterances of `data`, split over `num_jobs`, to archives in `out`, which is later
    renamed to `named`."""

    data: Path
    model_dir: Path
    transform_dir: Path | None
    out: Path
    named: Path
    num_jobs: int
    compress: bool
    missing: SkippedOptions = SkippedOptions()

    advice = "compute features of all utterances"

    @property
    def origins(self) -> list[dict]:
        """The origin of the transformed features, if known."""
        origin = origin_of(self.data)
        return [{"fmllr_of": origin}] if origin else []


def transform_shard(spec: TransformSpec, job: int) -> None:
    """Transform the features of shard `job` (1-based) and write them with `write_archive`."""
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    reader = open_features(spec.data, spec.model_dir, spec.transform_dir, part)

    def transformed(utt: str) -> np.ndarray:
        if not reader.has(utt):
            raise SkippedUtterance(f"no features in {spec.data}/feats.scp")
        return reader[utt]

    write_archive(spec, job, part.utterances, transformed, "transformed")


def write_archive(
    spec, job: int, keys: Sequence[str], features_of: Callable[[str], np.ndarray], name: str
) -> None:
    """Write the output of job `job`: feats/NAME.JOB.ark with the features of its utterances,
    feats/feats.JOB.scp, feats/num_frames.JOB, and feats/skipped_utterances.JOB with the skipped utterances
    and the reasons.

    spec         of a class with `data`, `out`, `named`, `num_jobs` and `compress`, as `TransformSpec`
    keys         the utterances of the job
    features_of  function of an utterance that raises SkippedUtterance if it has no features; utterances
                 without frames are also skipped
    """
    num_frames, skipped = TableBuilder(), dict[str, str]()
    progress = log.Progress("features", len(keys), "utterances")
    folder, ark = spec.out / "feats", f"{name}.{job}.ark"
    with ArkWriter(
        folder / ark, folder / f"feats.{job}.scp", spec.compress, spec.named / "feats" / ark
    ) as writer:
        for number, utt in enumerate(keys, 1):
            try:
                features = with_frames(features_of(utt))
            except SkippedUtterance as reason:
                skipped[utt] = str(reason)
                continue
            writer.write(utt, features)
            num_frames.add(utt, len(features))
            progress.update(number)
    write_table(folder / f"num_frames.{job}", num_frames.table())
    write_table(folder / f"skipped_utterances.{job}", skipped)


def with_frames(features: np.ndarray) -> np.ndarray:
    """The features. Raises SkippedUtterance if there are no frames, as in the 0 x 0 matrices that Kaldi
    writes for too short audio."""
    if not len(features):
        raise SkippedUtterance("its features have no frames")
    return features


def report_skipped(spec) -> None:
    """Log the utterances that the jobs skipped. Raises UserError if there are too many."""
    skipped: dict[str, str] = {}
    for job in range(1, spec.num_jobs + 1):
        skipped |= read_table(spec.out / "feats" / f"skipped_utterances.{job}")
    check_skipped(skipped, len(DataDir(spec.data).utt2spk), spec.missing, str(spec.data), spec.advice)


def copied_files(data: Path) -> list[Path]:
    """The files of `data` that `write_tables` copies, for the fingerprints of a stage output."""
    return subsets.table_files(DataDir(data), with_features=False)


def write_tables(spec) -> None:
    """Write the tables of the new data directory, from those of `spec.data` and of the jobs, and the origin
    of its features, if known.

    spec  as for `write_archive`, with `origins`, the limits for `missing` utterances, and `advice` if they
          are exceeded

    Logs the skipped utterances. Raises UserError if there are too many.
    """
    report_skipped(spec)
    folder, jobs = spec.out / "feats", range(1, spec.num_jobs + 1)
    made = [job for job in jobs if (folder / f"feats.{job}.scp").stat().st_size]
    subsets.copy(DataDir(spec.data), spec.out, subsets.Renaming(), with_features=False)
    write_table(
        spec.out / "feats.scp",
        Joined([Stored(partial(scp_table, folder / f"feats.{job}.scp")) for job in made]),
    )
    num_frames = Joined([Stored(partial(Table.read, folder / f"num_frames.{job}")) for job in made])
    write_table(spec.out / "utt2num_frames", num_frames)
    save_origins(folder, spec.origins)
    log.info(f"{sum(1 for _ in num_frames)} utterances, {sum(map(int, num_frames.values()))} frames")
