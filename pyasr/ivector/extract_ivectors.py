"""I-vectors of a data directory, by parallel jobs with whole speakers each: one per speaker, and online
i-vectors per utterance.

OUT/ivector.scp (vectors by speaker, of all frames), OUT/ivector_online.scp (matrices by utterance),
OUT/ivector_period.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions, SkippedUtterance, check_skipped
from pyasr.data.parts.job_parts import JobPart, part_of, parts_of_jobs
from pyasr.data.tables.datadir import DataDir, split_by_speakers
from pyasr.feats.extraction.pasted import PERIOD_FILE
from pyasr.feats.inputs import INPUT_TABLES
from pyasr.io.ark import ArkWriter, read_scp
from pyasr.io.text_tables import read_table, write_table
from pyasr.ivector.features import IvectorFeatures, check_dim
from pyasr.ivector.online_ivectors import ExtractOptions, OnlineIvectorExtractor, SpeakerStats

KINDS = ("ivector", "ivector_online")


@dataclass(frozen=True)
class ExtractDirOptions:
    """How speakers with many utterances, and utterances without features, are treated."""

    heading = "i-vectors"

    utts_per_spk_max: int = option(
        0,
        "number of utterances after which a speaker counts as a new one, for training data; 0: never",
        minimum=0,
    )
    missing: SkippedOptions = group(SkippedOptions)


@dataclass(frozen=True)
class IvectorExtractSpec:
    """The work of all jobs: speakers of `data`, split over `num_jobs`, to archives in `out`, which will be
    renamed to `named`."""

    data: Path
    extractor_dir: Path
    out: Path
    named: Path
    num_jobs: int
    extract: ExtractOptions
    directory: ExtractDirOptions


def extract_shard(spec: IvectorExtractSpec, job: int) -> None:
    """I-vectors of the speakers of job `job` (1-based): writes KIND.JOB.ark and .scp of both KINDS, and
    skipped_utterances.JOB."""
    part = part_of(spec.data, spec.out, spec.num_jobs, job, split_by_speakers)
    speakers, data = _Speakers(spec, part), part.directory()
    chosen = sorted({data.utt2spk[utt] for utt in part.utterances})
    progress = log.Progress("i-vectors", len(chosen), "speakers")
    with _writer(spec, "ivector", job) as by_speaker, _writer(spec, "ivector_online", job) as by_utterance:
        for i, speaker in enumerate(chosen, 1):
            total = SpeakerStats.zeros(speakers.online.extractor.dim)
            for utt, rows, stats in speakers.utterances(data.spk2utt[speaker]):
                by_utterance.write(utt, rows)
                total += stats
            if total.count:
                by_speaker.write(speaker, speakers.online.ivector(total))
            progress.update(i)
    write_table(spec.out / f"skipped_utterances.{job}", speakers.skipped)


def parts_to_extract(spec: IvectorExtractSpec) -> AbstractContextManager[None]:
    """Context in which the jobs have their parts of the data directory."""
    return parts_of_jobs(spec.data, spec.out, split_by_speakers(spec.data, spec.num_jobs), INPUT_TABLES)


def _writer(spec: IvectorExtractSpec, kind: str, job: int) -> ArkWriter:
    return ArkWriter(
        spec.out / f"{kind}.{job}.ark", spec.out / f"{kind}.{job}.scp", named=spec.named / f"{kind}.{job}.ark"
    )


class _Speakers:
    """Extracts i-vectors of one speaker after the other; `skipped` maps unusable utterances to reasons."""

    def __init__(self, spec: IvectorExtractSpec, part: JobPart):
        directory = spec.extractor_dir
        self.online = OnlineIvectorExtractor.read(directory, spec.extract)
        self.features, self.spec = IvectorFeatures(spec.data, directory, part), spec
        self.skipped: dict[str, str] = {}

    def utterances(self, keys: Sequence[str]):
        """(utterance, online i-vectors, its own statistics) of the utterances of a speaker, one after the
        other."""
        in_order = self.online.in_order(map(self._views, keys), self.spec.directory.utts_per_spk_max)
        return ((utt, *found) for utt, found in zip(keys, in_order) if found)

    def _views(self, utt: str) -> tuple[np.ndarray, np.ndarray] | None:
        """As in `IvectorFeatures`; None for a skipped utterance."""
        try:
            plain, normalised = self.features[utt]
        except SkippedUtterance as reason:
            self.skipped[utt] = str(reason)
            return None
        check_dim(plain.shape[1], self.online.extractor.feat_dim, self.spec.data, self.spec.extractor_dir)
        return plain, normalised


def merge(spec: IvectorExtractSpec) -> None:
    """Merge the tables of all jobs, one of each kind, and write `ivector_period`. Raises UserError if too
    many utterances were skipped."""
    tables: dict[str, dict[str, str]] = {kind: {} for kind in (*KINDS, "skipped_utterances")}
    for job in range(1, spec.num_jobs + 1):
        for kind in KINDS:
            scp = spec.out / f"{kind}.{job}.scp"
            tables[kind] |= read_scp(scp) if scp.stat().st_size else {}
        tables["skipped_utterances"] |= read_table(spec.out / f"skipped_utterances.{job}")
    skipped = tables.pop("skipped_utterances")
    check_skipped(
        skipped,
        len(DataDir(spec.data).utt2spk),
        spec.directory.missing,
        str(spec.data),
        "make their features",
    )
    for kind, table in tables.items():
        write_table(spec.out / f"{kind}.scp", table)
    (spec.out / PERIOD_FILE).write_text(f"{spec.extract.ivector_period}\n", encoding="utf-8")
    log.info(f"i-vectors of {len(tables['ivector'])} speakers and {len(tables['ivector_online'])} utterances")
