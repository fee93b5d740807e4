"""Paste the features of several data directories side by side, optionally with vectors of utterances or
speakers (Kaldi's `paste-feats` and `append-vector-to-feats`): OUT/feats/pasted.JOB.ark and the tables of a
data directory.

    columns = [stream 1 | its derivatives | stream 2 | its derivatives | ... | vector]

Each stream is normalised and extended by its `InputOptions`, so the stored features need no further CMVN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import group, option
from pyasr.base.cli.skipped_utterances import SkippedOptions, SkippedUtterance
from pyasr.base.errors import UserError
from pyasr.data.parts.job_parts import PARTS, JobPart, part_of, parts_of_jobs
from pyasr.data.tables.datadir import split
from pyasr.feats.extraction.transformed import copied_files, write_archive
from pyasr.feats.inputs import INPUT_TABLES, FeatureReader, InputOptions, input_tables
from pyasr.feats.origin import origin_of
from pyasr.io.ark import ArkReader, scp_table
from pyasr.io.text_tables import read_lines

PERIOD_FILE = "ivector_period"
_CMVN_UNITS = ("none", "speaker", "utterance", "sliding")


@dataclass(frozen=True)
class StreamOptions:
    """Processing of each stream before pasting: one word for all streams, or one per stream."""

    heading = "input"

    deltas: str = option("0", "order of the derivatives of each stream, such as '0 2'")
    cmvn: str = option(
        "none",
        "unit of normalisation of each stream, such as 'none speaker': none, speaker, utterance or sliding",
    )
    norm_vars: str = option("false", "normalise the variances of each stream, such as 'false true'")

    def inputs(self, num_streams: int) -> tuple[InputOptions, ...]:
        """The options of each stream. Raises UserError, naming the flag, for invalid words or a wrong number
        of them."""
        orders = {str(order): order for order in range(5)}
        deltas = _each(self.deltas, num_streams, orders, "--deltas")
        units = _each(self.cmvn, num_streams, dict(zip(_CMVN_UNITS, _CMVN_UNITS)), "--cmvn")
        norm_vars = _each(self.norm_vars, num_streams, {"false": False, "true": True}, "--norm-vars")
        return tuple(
            InputOptions(cmvn=unit, norm_vars=norm, deltas=order)
            for unit, norm, order in zip(units, norm_vars, deltas)
        )


def _each(text: str, num: int, meaning: dict, flag: str) -> list:
    words = text.split()
    if not set(words) <= set(meaning) or len(words) not in (1, num):
        raise UserError(
            f"{flag}: '{text}' is not one word of {', '.join(meaning)} for each of the {num} data "
            "directories, or one for all"
        )
    return [meaning[word] for word in words] * (num if len(words) == 1 else 1)


@dataclass(frozen=True)
class PasteOptions:
    """Vectors to append to frames, and tolerances."""

    vectors: Path | None = option(
        None,
        "table (scp) of vectors of utterances or speakers, or of matrices with a row every few frames",
        heading="input",
    )
    vector_period: int | None = option(
        None,
        "frames per row of the matrices of --vectors; none: the number in ivector_period next to the table",
        minimum=1,
        only=if_set("vectors"),
        heading="input",
    )
    length_tolerance: int = option(
        0,
        "maximum difference in length between the streams of an utterance, frames; all are cut to "
        "the shortest",
        minimum=0,
        heading="input",
    )
    missing: SkippedOptions = group(SkippedOptions)
    compress: bool = option(
        False, "store one byte per value (Kaldi's compressed matrices) instead of float32", heading="output"
    )


@dataclass(frozen=True)
class PasteSpec:
    """The work of all jobs: utterances of `streams[0]`, split over `num_jobs`, to archives in `out`, which is
    later renamed to `named`."""

    streams: tuple[Path, ...]
    inputs: tuple[InputOptions, ...]
    paste: PasteOptions
    out: Path
    named: Path
    num_jobs: int

    advice = "compute features and vectors of all utterances"

    @property
    def data(self) -> Path:
        """The directory whose other tables are copied."""
        return self.streams[0]

    @property
    def names_of_parts(self) -> list[str]:
        """Names of the directories with the jobs' parts of each stream."""
        return [PARTS, *(f"{PARTS}.{number}" for number in range(2, len(self.streams) + 1))]

    @property
    def compress(self) -> bool:
        """Whether features are stored compressed."""
        return self.paste.compress

    @property
    def missing(self) -> SkippedOptions:
        """The limits for missing utterances."""
        return self.paste.missing

    @property
    def origins(self) -> list[dict]:
        """The origin of the pasted features, if those of all streams are known."""
        streams = [origin_of(stream) for stream in self.streams]
        return (
            [{"streams": streams, "each": [asdict(inputs) for inputs in self.inputs]}] if all(streams) else []
        )


class VectorTable:
    """Vectors by utterance or, if the table lacks the utterance, by speaker; entries and tolerance as in
    `vector_rows`."""

    def __init__(self, scp: Path, period: int | None = None, tolerance: int = 0):
        self._table = scp_table(scp)
        self._reader = ArkReader()
        self.path = Path(scp)
        self._tolerance = tolerance
        self.period = period or _recorded_period(self.path)

    def rows(self, utt: str, speaker: str, num_frames: int) -> np.ndarray:
        """The vector of each frame, float32 (num_frames, D). Raises SkippedUtterance if there is none, or if
        its length does not fit."""
        rx = self._table.get(utt) or self._table.get(speaker)
        if rx is None:
            raise SkippedUtterance(f"no vector of it or its speaker in {self.path}")
        return vector_rows(
            self._reader.load(rx, vectors=True), self.period, num_frames, str(self.path), self._tolerance
        )


def vector_rows(
    entry: np.ndarray, period: int, num_frames: int, where: str, tolerance: int = 0
) -> np.ndarray:
    """The vector of each frame, float32 (num_frames, D).

    An entry is a vector (D,) for all frames, or a matrix whose row i is for frames i period ... (i + 1)
    period - 1, as in Kaldi's online i-vectors. If one row is missing, the last row is also used for the
    remaining frames. Raises SkippedUtterance, naming `where`, for fewer rows, and for more rows than
    `tolerance` further frames would need, because the rows then have another period or belong to other
    frames.
    """
    if entry.ndim == 1:
        return np.broadcast_to(entry, (num_frames, len(entry)))
    needed = -(-num_frames // period)
    if not len(entry) or needed - len(entry) > 1:
        raise SkippedUtterance(f"fewer vectors in {where} than one every {period} frames")
    if len(entry) > -(-(num_frames + tolerance) // period):
        reason = (
            f"more vectors in {where} than one every {period} frames, which --length-tolerance "
            f"{tolerance} does not explain"
        )
        raise SkippedUtterance(reason)
    return entry[np.minimum(np.arange(num_frames) // period, len(entry) - 1)]


def _recorded_period(scp: Path) -> int:
    """The number in the file `ivector_period` next to a table. Raises UserError if missing or invalid."""
    path = scp.with_name(PERIOD_FILE)
    words = read_lines(path)[0].split() if path.exists() and path.stat().st_size else ["1"]
    if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
        raise UserError(f"{path}: not one positive whole number; give --vector-period")
    return int(words[0])


class Paster:
    """Pasted features by utterance: float32 (frames, columns of all streams and the vector)."""

    def __init__(self, spec: PasteSpec, parts: list[JobPart]):
        self._readers = [
            FeatureReader(part.data, inputs, part=part) for part, inputs in zip(parts, spec.inputs)
        ]
        self._tolerance, vectors = spec.paste.length_tolerance, spec.paste.vectors
        self._vectors = VectorTable(vectors, spec.paste.vector_period, self._tolerance) if vectors else None

    def __getitem__(self, utt: str) -> np.ndarray:
        for reader in self._readers:
            if not reader.has(utt):
                raise SkippedUtterance(f"no features in {reader.data}/feats.scp")
        vectors = partial(self._vectors.rows, utt, self._readers[0].speaker(utt)) if self._vectors else None
        return paste([reader[utt] for reader in self._readers], self._tolerance, vectors)


def paste(
    parts: list[np.ndarray], tolerance: int, vectors: Callable[[int], np.ndarray] | None = None
) -> np.ndarray:
    """The columns of all streams of an utterance side by side, for the frames of the shortest stream,
    float32.

    vectors  function of the number of frames that returns the vector of each frame

    Raises SkippedUtterance if lengths differ by more than `tolerance` frames.
    """
    lengths = [len(part) for part in parts]
    num_frames = min(lengths)
    if max(lengths) - num_frames > tolerance:
        raise SkippedUtterance(
            f"streams whose numbers of frames differ by more than --length-tolerance {tolerance}"
        )
    further = [vectors(num_frames)] if vectors else []
    return np.concatenate([*(part[:num_frames] for part in parts), *further], axis=1)


def paste_shard(spec: PasteSpec, job: int) -> None:
    """Paste the features of shard `job` (1-based) and write them with `write_archive`."""
    own = part_of(spec.data, spec.out, spec.num_jobs, job)
    parts = [
        own,
        *(
            part_of(data, spec.out, spec.num_jobs, job, lambda *_: [own.utterances] * spec.num_jobs, name)
            for data, name in zip(spec.streams[1:], spec.names_of_parts[1:])
        ),
    ]
    write_archive(spec, job, own.utterances, Paster(spec, parts).__getitem__, "pasted")


@contextmanager
def parts_of_streams(spec: PasteSpec) -> Iterator[None]:
    """Context in which the jobs' parts of all streams exist; the first stream's utterances define them."""
    lists = split(spec.data, spec.num_jobs)
    with ExitStack() as stack:
        for data, name in zip(spec.streams, spec.names_of_parts):
            stack.enter_context(parts_of_jobs(data, spec.out, lists, INPUT_TABLES, name))
        yield


def input_files(
    streams: tuple[Path, ...], inputs: tuple[InputOptions, ...], paste: PasteOptions
) -> list[Path]:
    """The files that the work depends on, for the fingerprints of a stage output."""
    tables = [path for pair in zip(streams, inputs) for path in input_tables(*pair)] + copied_files(
        streams[0]
    )
    if paste.vectors:
        period = paste.vectors.with_name(PERIOD_FILE)
        tables += [paste.vectors, *([period] if period.exists() else [])]
    return tables
