"""Decoding with fMLLR in the passes of Kaldi's decode_fmllr.sh. Each pass runs one job per part of the data
directory.

    OUT.si          lattices of decoding without fMLLR, by `decode_dir` with the alignment model
    first_stats     fMLLR statistics from the posteriors of these lattices; Gaussian posteriors are those of
                    the alignment model
    decode_again    decoding with the first transforms, estimated from these statistics; statistics from the
                    new lattices
    rescore_last    second transforms, on top of the first; acoustic costs of the lattices on features with
                    both transforms

The utterances of a speaker may be divided among jobs. Each job therefore writes its statistics to a file, and
transforms are estimated from the sum of all files. Only the last pass writes the files of a decode directory
and the transforms, trans.JOB.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from pyasr.base.cli.option_uses import unless_is, unless_set
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import JobPart, part_of
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.decoding.decode_dir import (
    TOTALS,
    DecodeSpec,
    ShardWriter,
    cut_short,
    load_decoder,
    scored,
    shard_is_complete,
)
from pyasr.decode.lattice_jobs.lattice_dir import archives, job_archives, of_data
from pyasr.decode.lattices.lattice import DecodeStats, Lattice, best_path, prune
from pyasr.decode.lattices.lattice_io import LatticeWriter, read_lattices
from pyasr.decode.lattices.lattice_posteriors import tid_posteriors
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.inputs import FeatureReader, open_features
from pyasr.feats.transforms import write_transforms
from pyasr.hmm.align.pdf_posteriors import PdfPosteriors, SilenceWeighting
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import MODEL, first_pass_model, read_model
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.shards.speaker_transforms import compose_all, estimate_each, speaker_stats
from pyasr.hmm.transforms.fmllr import FmllrOptions, FmllrStats, identity, load_stats, save_stats
from pyasr.hmm.trees.phone_segments import check_decoded
from pyasr.io.tables import Table
from pyasr.lang.lang_dirs.lang_dir import LangDir

FIRST, SECOND = "first", "second"
_NUM_CHECKED = 100  # number of lattices per job that are checked against the model


@dataclass(frozen=True)
class AdaptOptions:
    """Options of the first pass and of the statistics; the defaults are Kaldi's."""

    heading = "transforms and adaptation"

    first_beam: float = option(
        10.0,
        "beam of the first pass, without fMLLR",
        minimum=0.1,
        only=unless_set("si-dir"),
        heading="search",
    )
    first_max_active: int = option(
        2000,
        "maximum number of tokens per frame that are expanded in the first pass",
        minimum=1,
        only=unless_set("si-dir"),
        heading="search",
    )
    silence_weight: float = option(
        0.01,
        "weight of silence frames in the fMLLR statistics",
        minimum=0.0,
        maximum=1.0,
        only=unless_is("fmllr-update-type", "none"),
    )

    def first(self, decode: DecodeOptions) -> DecodeOptions:
        """The search options of the first pass."""
        return replace(decode, beam=self.first_beam, max_active=self.first_max_active)

    def check(self, decode: DecodeOptions) -> None:
        """Raise UserError if the minimum number of tokens exceeds the maximum in either search."""
        decode.check()
        if decode.min_active > self.first_max_active:
            found = f"--min-active {decode.min_active} is above --first-max-active {self.first_max_active}"
            raise UserError(f"{found}; lower the one or raise the other")


@dataclass(frozen=True)
class FmllrDecodeSpec:
    """Parameters of the passes with fMLLR; `si_dir` has the result of the pass without."""

    decode: DecodeSpec
    si_dir: Path
    silence_weight: float
    fmllr: FmllrOptions


def check_system(model_dir: Path) -> None:
    """Raise UserError if the final model and the alignment model have different numbers of Gaussians."""
    if read_model(first_pass_model(model_dir))[1].num_gauss != read_model(model_dir / MODEL)[1].num_gauss:
        raise UserError(
            f"{model_dir}: final.alimdl and final.mdl have different numbers of Gaussians; take both from "
            "one training"
        )


def adaptation_files(graph: Path, si_dir: Path) -> list[Path]:
    """The input files of the passes with fMLLR, in addition to those of decoding. totals.json is included
    only if lattices end early."""
    return [
        graph / "phones/silence.int",
        *archives(si_dir),
        *([si_dir / TOTALS] if cut_short(si_dir) else []),
    ]


def first_stats(spec: FmllrDecodeSpec, job: int) -> None:
    """Write statistics of the speakers in part `job` of the archives of `spec.si_dir`."""
    path = _stats_path(spec, FIRST, job)
    if path.exists():
        return
    aligner_trans, aligner = read_model(first_pass_model(spec.decode.model_dir))
    _, gmm = read_model(spec.decode.model_dir / MODEL)
    posteriors = _posteriors(spec, aligner_trans)
    lattices = _first_lattices(spec, job, aligner_trans)
    utterances = ((speaker, features, posteriors(lattice)) for speaker, features, lattice in lattices)
    save_stats(path, speaker_stats(utterances, gmm, aligner))


def _first_lattices(spec: FmllrDecodeSpec, job: int, trans: TransitionModel) -> Iterator[tuple]:
    """(speaker, features, lattice) of the job's part of `spec.si_dir`.

    Raises UserError if a lattice does not belong to the features, or if one of the first lattices is from
    another system. A lattice may be shorter than its features only if totals.json lists it as cut short.
    """
    number = 0
    ends_early = cut_short(spec.si_dir)
    data = DataDir(spec.decode.data)
    reader_of = _readers(spec, job)
    for archive in job_archives(spec.si_dir, spec.decode.num_jobs, job):
        for number, (utt, lattice) in enumerate(of_data(read_lattices(archive), archive, data), number + 1):
            reader = reader_of(utt)
            features = reader[utt]
            fits = (
                lattice.num_frames == len(features)
                or utt in ends_early
                and lattice.num_frames < len(features)
            )
            if not lattice.empty and not fits:
                found = f"the lattice has {lattice.num_frames} frames but the features have {len(features)}"
                raise UserError(f"{archive}: {utt}: {found}; give lattices of these features")
            if number <= _NUM_CHECKED and (path := best_path(lattice, spec.decode.decode.acoustic_scale)):
                check_decoded({f"{archive}: {utt}": path.tids}, trans)
            yield reader.speaker(utt), features, lattice


def _readers(spec: FmllrDecodeSpec, job: int) -> Callable[[str], FeatureReader]:
    """A function from an utterance to the reader of its features: the job's own, or one of all data if
    `spec.si_dir` has other parts."""
    part = _part(spec, job)
    own = open_features(spec.decode.data, spec.decode.model_dir, part=part)
    inside = Table.of_keys(part.utterances)
    others = functools.cache(lambda: open_features(spec.decode.data, spec.decode.model_dir))
    return lambda utt: own if utt in inside else others()


def _part(spec: FmllrDecodeSpec, job: int) -> JobPart:
    return part_of(spec.decode.data, spec.decode.out, spec.decode.num_jobs, job)


def decode_again(spec: FmllrDecodeSpec, job: int) -> None:
    """Decode the job's utterances on features with the first transforms, and write statistics for the second
    transforms."""
    path = _stats_path(spec, SECOND, job)
    if path.exists():
        return
    trans, gmm = read_model(spec.decode.model_dir / MODEL)
    reader, keys = _adapted(spec, job, [FIRST])
    posteriors, found = _posteriors(spec, trans), {}
    stats: dict[str, FmllrStats] = {}
    decoder = load_decoder(spec.decode, trans.tid2pdf)
    with LatticeWriter(_raw_lattices(spec, job)) as writer:
        for utt, lattice in decoder.decode_many(scored(reader, gmm, keys), spec.decode.threads()):
            writer.write(utt, lattice)
            found[utt] = {"reached_final": lattice.reached_final, "stats": asdict(lattice.stats)}
            _add(stats, speaker_stats([(reader.speaker(utt), reader[utt], posteriors(lattice))], gmm))
    with atomic_write(_found_path(spec, job)) as f:
        json.dump({"cpu_s": time.process_time(), "utterances": found}, f)
    save_stats(path, stats)


def rescore_last(spec: FmllrDecodeSpec, job: int) -> None:
    """Write trans.JOB and the job's files of the decode directory, from the lattices of `decode_again` and
    the second transforms."""
    if shard_is_complete(spec.decode, job):
        return
    trans, gmm = read_model(spec.decode.model_dir / MODEL)
    reader, _ = _adapted(spec, job, [FIRST, SECOND])
    assert reader.transforms is not None
    write_transforms(spec.decode.out / f"trans.{job}", reader.transforms)
    found = json.loads(_found_path(spec, job).read_text(encoding="utf-8"))
    options, determinizer = spec.decode.decode, spec.decode.determinizer()
    with ShardWriter(spec.decode, job, _part(spec, job).utterances, set(reader.keys)) as writer:
        for utt, lattice in read_lattices(_raw_lattices(spec, job)):
            known = found["utterances"][utt]
            lattice = replace(
                lattice, reached_final=known["reached_final"], stats=DecodeStats(**known["stats"])
            )
            rescored = with_acoustics(lattice, gmm, reader[utt], trans.tid2pdf)
            writer.write(utt, determinizer(prune(rescored, options.lattice_beam, options.acoustic_scale)))
        writer.totals.cpu_s += found["cpu_s"]


def remove_intermediate(spec: FmllrDecodeSpec) -> None:
    """Remove the files that only the passes need."""
    for job in range(1, spec.decode.num_jobs + 1):
        for path in (
            _stats_path(spec, FIRST, job),
            _stats_path(spec, SECOND, job),
            _raw_lattices(spec, job),
            _found_path(spec, job),
        ):
            path.unlink(missing_ok=True)


class LatticePosteriors:
    """Function of a lattice: pdf posteriors of its frames at an acoustic scale, with weighted silence."""

    def __init__(
        self, trans: TransitionModel, silence_phones: list[int], silence_weight: float, scale: float
    ):
        self.scale, self.weighting = scale, SilenceWeighting(trans, silence_phones, silence_weight)

    def __call__(self, lattice: Lattice) -> PdfPosteriors:
        return self.weighting.of_tids(*tid_posteriors(lattice, self.scale))


def _posteriors(spec: FmllrDecodeSpec, trans: TransitionModel) -> LatticePosteriors:
    return LatticePosteriors(
        trans,
        LangDir(spec.decode.graph).silence_phones,
        spec.silence_weight,
        spec.decode.decode.acoustic_scale,
    )


def _adapted(spec: FmllrDecodeSpec, job: int, passes: list[str]) -> tuple[FeatureReader, list[str]]:
    """(feature reader with transforms estimated from the statistics of `passes`, the job's utterances)."""
    part = _part(spec, job)
    reader = open_features(spec.decode.data, spec.decode.model_dir, part=part)
    keys = [utt for utt in part.utterances if reader.has(utt)]
    speakers = {reader.speaker(utt) for utt in keys}
    transforms = None
    for number in passes:
        files = [_stats_path(spec, number, other) for other in range(1, spec.decode.num_jobs + 1)]
        found, gain = estimate_each(load_stats(files, speakers), spec.fmllr)
        gain.log()
        found |= {speaker: identity(reader.dim) for speaker in speakers - found.keys()}
        transforms = found if transforms is None else compose_all(found, transforms)
    reader.transforms = transforms
    return reader, keys


def with_acoustics(lattice: Lattice, gmm: AmDiagGmm, features: np.ndarray, tid2pdf: np.ndarray) -> Lattice:
    """The lattice with the acoustic costs of a GMM for `features`, as by Kaldi's gmm-rescore-lattice."""
    emitting = lattice.ilabels != 0
    frames, arc_pdfs = lattice.state_times[lattice.sources[emitting]], tid2pdf[lattice.ilabels[emitting]]
    pdfs, rows = np.unique(arc_pdfs, return_inverse=True)
    costs = np.zeros(lattice.num_arcs, np.float32)
    costs[emitting] = -gmm.log_likelihoods_by_pdf(features, pdfs)[rows, frames]
    return replace(lattice, acoustic_costs=costs)


def _add(total: dict[str, FmllrStats], more: dict[str, FmllrStats]) -> None:
    for speaker, stats in more.items():
        total[speaker] = stats.add(total[speaker]) if speaker in total else stats


def _stats_path(spec: FmllrDecodeSpec, number: str, job: int) -> Path:
    return spec.decode.out / f"fmllr.{number}.{job}.npz"


def _raw_lattices(spec: FmllrDecodeSpec, job: int) -> Path:
    return spec.decode.out / f"lat.tmp.{job}"


def _found_path(spec: FmllrDecodeSpec, job: int) -> Path:
    return spec.decode.out / f"found.{job}.json"
