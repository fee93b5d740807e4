"""CMVN statistics of all speakers of a data directory, in one process or by jobs with whole speakers; the
results are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.skipped_utterances import log_reasons
from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import DataDir, split_by_speakers
from pyasr.feats.cmvn import cmvn_stats
from pyasr.io.ark import ArkReader, ArkWriter, read_ark, scp_table, write_ark
from pyasr.io.tables import Table
from pyasr.io.text_tables import read_lines, write_table

_TABLES = ("utt2spk", "feats.scp", "utt2num_frames")


@dataclass(frozen=True)
class CmvnSpec:
    """The work of all jobs: the speakers of `data`, divided among the jobs."""

    data: Path
    out: Path
    num_jobs: int


def speaker_stats(data: DataDir) -> tuple[dict[str, np.ndarray], list[str]]:
    """({speaker: statistics (2, D + 1), float64, over all its utterances with frames}, utterances without
    frames). Raises UserError if utterances of a speaker differ in dimension, or if utt2spk lacks an
    utterance."""
    data.utt2spk  # reports problems of this table first
    found: dict[str, np.ndarray] = {}
    without, reader = list[str](), ArkReader()
    for utt, rx in scp_table(data.file("feats.scp")).items():
        speaker = _speaker(data, utt)
        features = reader.load(rx)
        if not len(features):
            without.append(utt)
            continue
        stats = cmvn_stats(features)
        if speaker in found and found[speaker].shape != stats.shape:
            counts = f"{stats.shape[1] - 1} columns, but earlier ones have {found[speaker].shape[1] - 1}"
            raise UserError(f"{data.path}/feats.scp: {utt} has {counts}; compute the features again")
        found[speaker] = found[speaker] + stats if speaker in found else stats
    return found, without


def _speaker(data: DataDir, utt: str) -> str:
    if utt not in data.utt2spk:
        raise UserError(
            f"{data.path}/utt2spk: no line for utterance {utt} of feats.scp; run utils/fix_data_dir.py "
            f"{data.path}"
        )
    return data.utt2spk[utt]


def write_speaker_cmvn(data: Path, out: Path, named: Path) -> None:
    """Write out/cmvn.ark and out/cmvn.scp; the table refers to the archive as `named`/cmvn.ark. Raises
    UserError as `speaker_stats`, and if there are no features."""
    stats, without = speaker_stats(DataDir(data))
    _write(data, out, named, stats, without)


def _write(data: Path, out: Path, named: Path, stats: dict[str, np.ndarray], without: Iterable[str]) -> None:
    log_reasons(dict.fromkeys(without, "no frames"), "are not counted")
    if not stats:
        raise UserError(f"{data}/feats.scp: no features; run steps/make_mfcc.py {data}")
    with ArkWriter(out / "cmvn.ark", out / "cmvn.scp", named=named / "cmvn.ark") as writer:
        for speaker in sorted(stats):
            writer.write(speaker, stats[speaker])
    log.info(f"{len(stats)} speakers")


def write_by_jobs(data: Path, out: Path, named: Path, jobs: JobOptions, run: Callable[..., None]) -> None:
    """`write_speaker_cmvn` with `jobs.nj` jobs, at most one per speaker.

    run  `pyasr.cluster.ranks.jobs.run_jobs`, which this package must not import
    """
    tables = DataDir(data)
    tables.utt2spk
    for utt in scp_table(data / "feats.scp"):
        _speaker(tables, utt)
    num_jobs = min(jobs.nj, len(set(tables.utt2spk.values())))
    with parts_of_jobs(data, out, split_by_speakers(tables, num_jobs), _TABLES):
        run(
            jobs,
            out / "log" / "cmvn.JOB.log",
            f"{__name__}:stats_shard",
            CmvnSpec(data, out, num_jobs),
            num_jobs=num_jobs,
        )
    stats, without = dict[str, np.ndarray](), list[str]()
    for job in range(1, num_jobs + 1):
        stats |= read_ark(_stats(out, job), dtype=None)
        without += read_lines(_without(out, job))
        _stats(out, job).unlink()
        _without(out, job).unlink()
    _write(data, out, named, stats, sorted(without))


def stats_shard(spec: CmvnSpec, job: int) -> None:
    """Statistics of the speakers of job `job` (1-based): writes stats.JOB.ark, and without.JOB with the
    utterances without frames."""
    stats, without = speaker_stats(
        part_of(spec.data, spec.out, spec.num_jobs, job, split_by_speakers).directory()
    )
    write_ark(_stats(spec.out, job), stats)
    _without(spec.out, job).write_text("".join(f"{utt}\n" for utt in without), encoding="utf-8")


def _stats(out: Path, job: int) -> Path:
    return out / f"stats.{job}.ark"


def _without(out: Path, job: int) -> Path:
    return out / f"without.{job}"


def publish(data: Path) -> None:
    """Copy the table of DATA/cmvn to DATA."""
    write_table(data / "cmvn.scp", Table.read(data / "cmvn" / "cmvn.scp"))
