"""Extract the features of a data directory with parallel jobs, each on a shard of utterances, then merge the
tables.

The stage output is DATA/feats: `raw.JOB.ark` with `feats.JOB.scp`, `short.JOB.txt` (utterances without a
single frame), and the merged `feats.scp` and `utt2num_frames`, which `publish` copies to DATA after the
output has got its final name; `options.json` contains the options of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.option_uses import any_of, if_set
from pyasr.base.cli.options import argument, group, load, option, save
from pyasr.base.cli.step import output_of
from pyasr.base.errors import UserError
from pyasr.base.files.table_paths import as_named
from pyasr.data.audio.audio_reading import ONLY, audio_head
from pyasr.data.audio.channels import label_of, pick
from pyasr.data.audio.recordings import cut_utterance, read_recordings
from pyasr.data.checks.backup import set_aside
from pyasr.data.checks.recording_prints import recording_prints
from pyasr.data.parts.audio_shards import shards
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import AUDIO_CHANGES, FILE_AND_CHANNEL, DataDir, check_split
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.resample import Resampler
from pyasr.feats.extraction.vtln import SPEAKER_WARPS, UTTERANCE_WARPS, utterance_warps
from pyasr.feats.options import OPTIONS_FILE
from pyasr.io.ark import ArkWriter, scp_table
from pyasr.io.keys import Keys
from pyasr.io.tables import Table, pairs_of_file
from pyasr.io.text_tables import write_table

TABLES = ("feats.scp", "utt2num_frames")
AUDIO_FILE = "audio.json"
BATCH_SECONDS = 30.0
TABLES_OF_AUDIO = ("wav.scp", "segments", FILE_AND_CHANNEL, *AUDIO_CHANGES, SPEAKER_WARPS, UTTERANCE_WARPS)
_NUM_LOOKED_AT = 100  # recordings checked before the jobs start


@dataclass(frozen=True)
class ArchiveOptions:
    """Storage of features, and the limits for utterances without features."""

    heading = "features"

    compress: bool = option(
        False, "store one byte per value (Kaldi's compressed matrices) instead of float32"
    )
    max_short: float = option(
        0.01,
        "maximum fraction of utterances that are too short for a frame",
        minimum=0.0,
        maximum=1.0,
        rare=True,
    )
    min_duration: float = option(
        0.0, "minimum duration of an utterance, seconds; shorter ones get no features", minimum=0.0, rare=True
    )
    seed: int = option(
        0, "random seed of dither", only=any_of(if_set("dither"), if_set("add-pitch")), rare=True
    )


@dataclass(frozen=True)
class AudioOptions:
    """Selection and resampling of audio, with the names of Kaldi's options."""

    heading = "audio"

    channel: int = option(
        ONLY,
        "channel of each recording; 0: left; 1: right; -1: the one in reco2file_and_channel, or the only one",
        minimum=ONLY,
    )
    allow_downsample: bool = option(
        False, "resample recordings with a higher sampling rate than --sample-frequency"
    )
    allow_upsample: bool = option(
        False, "resample recordings with a lower sampling rate than --sample-frequency"
    )


@dataclass(frozen=True)
class FeatureStep:
    """Common arguments of all steps/make_*.py, apart from the options of the kind of features."""

    data: Path = argument("data directory")
    audio: AudioOptions = group(AudioOptions)
    archive: ArchiveOptions = group(ArchiveOptions)
    jobs: JobOptions = group(JobOptions)


@dataclass(frozen=True)
class ExtractSpec:
    """The work of all jobs: utterances of `data`, split over `num_jobs`, to archives in `out`, which is later
    renamed to `named`."""

    data: Path
    out: Path
    named: Path
    num_jobs: int
    archive: ArchiveOptions
    audio: AudioOptions = AudioOptions()


def make_features(
    step: FeatureStep, features, run: Callable[[JobOptions, Path, str, ExtractSpec], None]
) -> None:
    """Create DATA/feats and the tables of DATA that refer to it, with `step.jobs.nj` jobs.

    features  options of one of the kinds in `pyasr.feats.kinds`
    run       `pyasr.cluster.ranks.jobs.run_jobs`, which this package must not import
    """
    extractor = Extractor(features)  # reports wrong options before any work, like wrong tables
    data, feats = step.data, step.data / "feats"
    tables = DataDir(data)
    warps = (SPEAKER_WARPS, UTTERANCE_WARPS)
    for warp in set(utterance_warps(tables).values()) if any(map(tables.has, warps)) else ():
        extractor.check_warp(warp)
    tables.check_commands()
    check_split(data, step.jobs.nj)
    inputs = [*audio_tables(data), *(data / name for name in warps if tables.has(name))]
    also = [data / name for name in TABLES]
    with (
        recording_prints(data, step.audio.channel) as of_recordings,
        output_of(
            step,
            feats,
            inputs + of_recordings,
            also=also,
            check=lambda: check_recordings(tables, extractor.rate_hz, step.audio),
        ) as out,
    ):
        save(out / OPTIONS_FILE, features)
        if step.audio != AudioOptions():
            save(out / AUDIO_FILE, step.audio)
        spec = ExtractSpec(data, out, as_named(feats), step.jobs.nj, step.archive, step.audio)
        with parts_of_jobs(data, out, _cut(data, step.jobs.nj), TABLES_OF_AUDIO):
            run(step.jobs, out / "log" / "extract.JOB.log", f"{__name__}:extract_shard", spec)
        merge_shards(spec)
        withdraw(data)
    publish(data)


def _cut(data: Path, num_jobs: int) -> list[Keys]:
    return shards(DataDir(data), num_jobs)


def audio_tables(data: Path) -> list[Path]:
    """The tables of a data directory that define the audio of utterances, for fingerprints of an output."""
    optional = (data / name for name in ("segments", *AUDIO_CHANGES))
    return [data / "wav.scp", data / "utt2spk", *(path for path in optional if path.exists())]


def audio_options(data: Path) -> AudioOptions:
    """The audio options with which the features of a data directory were made."""
    path = data / "feats" / AUDIO_FILE
    return load(path, (AudioOptions,)) if path.exists() else AudioOptions()


def extract_shard(spec: ExtractSpec, job: int) -> None:
    """Features of shard `job` (1-based), by the options in `spec.out`: writes raw.JOB.ark, feats.JOB.scp,
    num_frames.JOB, short.JOB.txt."""
    extractor = Extractor(load(spec.out / OPTIONS_FILE))
    part = part_of(spec.data, spec.out, spec.num_jobs, job, _cut)
    data, utterances = part.directory(), part.utterances
    num_frames, short = {}, []
    progress = log.Progress("features", len(utterances), "utterances")
    ark = f"raw.{job}.ark"
    with ArkWriter(
        spec.out / ark, spec.out / f"feats.{job}.scp", spec.archive.compress, spec.named / ark
    ) as writer:
        for key, features in extracted(
            extractor, data, utterances, spec.archive.seed, spec.audio, spec.archive.min_duration
        ):
            if len(features) == 0:
                short.append(key)
                continue
            writer.write(key, features)
            num_frames[key] = str(len(features))
            progress.update(len(num_frames) + len(short))
    write_table(spec.out / f"num_frames.{job}", num_frames)
    (spec.out / f"short.{job}.txt").write_text("".join(f"{key}\n" for key in short), encoding="utf-8")


def extracted(
    extractor: Extractor,
    data: DataDir,
    utterances: Sequence[str],
    seed: int,
    audio: AudioOptions = AudioOptions(),
    min_duration: float = 0.0,
) -> Iterator[tuple[str, np.ndarray]]:
    """(utterance, features), with frequencies warped by the data directory's factors; no rows for less than
    `min_duration` seconds."""
    warps = utterance_warps(data)
    read = read_waveforms(data, utterances, extractor.rate_hz, audio)
    waveforms = (
        (utt, wave if len(wave) >= min_duration * extractor.rate_hz else wave[:0]) for utt, wave in read
    )
    for warp, same_warp in groupby(waveforms, key=lambda item: warps[item[0]]):
        for keys, waves in batches(same_warp, extractor.rate_hz):
            yield from zip(keys, extractor(waves, keys, seed, warp))


def read_waveforms(
    data: DataDir, utterances: Sequence[str], rate_hz: float, audio: AudioOptions = AudioOptions()
) -> Iterator[tuple[str, np.ndarray]]:
    """(utterance, float32 samples at int16 scale). A recording with several consecutive segments is read
    once, and so is a file with several consecutive recordings."""
    of_recordings = [list(found) for _, found in groupby(utterances, key=data.recording)]
    names = [data.recording(found[0]) for found in of_recordings]
    for name, found, (samples, rate) in zip(
        names, of_recordings, read_recordings(data, names, audio.channel)
    ):
        samples = _at_rate(samples, rate, rate_hz, audio, data.wav_scp[name])
        for utt in found:
            yield utt, cut_utterance(samples, rate_hz, data, utt)


def check_recordings(data: DataDir, rate_hz: float, audio: AudioOptions) -> None:
    """Raise UserError if one of the first recordings that are files has a wrong sampling rate or number of
    channels."""
    names = (name for name, _ in groupby(map(data.recording, data.utterances)))
    for name, rx in (
        (name, data.wav_scp[name]) for name in islice(names, _NUM_LOOKED_AT) if name in data.wav_scp
    ):
        if head := audio_head(rx):
            label = label_of(data, name) if head[1] > 1 and audio.channel == ONLY else ""
            pick(head[1], label, rx, audio.channel)
            _check_rate(head[0], rate_hz, audio, rx)


def _at_rate(samples: np.ndarray, rate: int, rate_hz: float, audio: AudioOptions, where: str) -> np.ndarray:
    """The samples at `rate_hz`, resampled if the options allow it."""
    if rate == rate_hz:
        return samples
    _check_rate(rate, rate_hz, audio, where)
    return Resampler(rate, round(rate_hz))(samples, last=True)


def _check_rate(rate: int, rate_hz: float, audio: AudioOptions, where: str) -> None:
    allowed, flag = (
        (audio.allow_downsample, "--allow-downsample")
        if rate > rate_hz
        else (audio.allow_upsample, "--allow-upsample")
    )
    if rate != rate_hz and (not allowed or rate_hz != round(rate_hz)):
        found = f"audio of {rate} Hz, but --sample-frequency is {rate_hz:g}"
        raise UserError(
            f"{where}: {found}; give {flag} true to resample it, or correct the configuration file"
        )


def batches(
    waveforms: Iterator[tuple[str, np.ndarray]], rate_hz: float
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Utterances in groups of about BATCH_SECONDS of audio: small enough for the processor's cache, large
    enough for efficient array operations."""
    keys, waves, num_samples = [], [], 0
    for key, wave in waveforms:
        keys.append(key)
        waves.append(wave)
        num_samples += len(wave)
        if num_samples >= BATCH_SECONDS * rate_hz:
            yield keys, waves
            keys, waves, num_samples = [], [], 0
    if keys:
        yield keys, waves


def merge_shards(spec: ExtractSpec) -> None:
    """Merge feats.scp and utt2num_frames of all shards. Raises UserError if too many were too short."""
    jobs = [job for job in range(1, spec.num_jobs + 1) if (spec.out / f"feats.{job}.scp").stat().st_size]
    table = Table.of(pair for job in jobs for pair in scp_table(spec.out / f"feats.{job}.scp").items())
    num_frames = Table.of(pair for job in jobs for pair in pairs_of_file(spec.out / f"num_frames.{job}"))
    short = [
        key
        for job in range(1, spec.num_jobs + 1)
        for key in (spec.out / f"short.{job}.txt").read_text(encoding="utf-8").split()
    ]
    total = len(table) + len(short)
    if short:
        named = ", ".join(short[:5]) + (" ..." if len(short) > 5 else "")
        limit = "one frame or --min-duration" if spec.archive.min_duration else "one frame"
        sentence = f"{len(short)} of {total} utterances are too short for {limit}: {named}"
        if len(short) > spec.archive.max_short * total:
            raise UserError(
                f"{spec.data}: {sentence}; remove them from the data directory or raise --max-short"
            )
        log.warning(f"{sentence}; they get no features")
    write_table(spec.out / "feats.scp", table)
    write_table(spec.out / "utt2num_frames", num_frames)
    log.info(f"{len(table)} utterances, {sum(map(int, num_frames.values()))} frames")


def withdraw(data: Path) -> None:
    """Remove DATA's tables, just before the archives to which they refer are replaced.

    CMVN statistics are removed, too, because they belong to the old features. Tables that refer to other
    places are the user's own and are moved to DATA/.backup.
    """
    for name, output in {**dict.fromkeys(TABLES, "feats"), "cmvn.scp": "cmvn"}.items():
        set_aside(data / name, data / output)
        (data / name).unlink(missing_ok=True)


def publish(data: Path) -> None:
    """Copy the tables of DATA/feats to DATA."""
    for name in TABLES:
        write_table(data / name, Table.read(data / "feats" / name))
