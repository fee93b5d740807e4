"""Decoding with fMLLR in the passes of Kaldi's decode_fmllr.sh, each a job per part of the data directory.

    OUT.si          decoding without fMLLR: lattices, by `decode_dir` with the alignment model
    first_stats     fMLLR statistics from their posteriors; the alignment model shares frames among Gaussians
    decode_again    decoding with the transforms these give; statistics from the new lattices
    rescore_last    second transforms, on top of the first; the lattices get the acoustic costs of these features

A speaker's utterances may be divided among jobs: the statistics of all jobs, in files, are added before transforms are estimated. Only
the last pass writes what a decode directory holds, and the transforms, trans.JOB.
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
from pyasr.data.parts.job_parts import Part, part_of
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.decoding.decode_dir import TOTALS, DecodeSpec, ShardWriter, cut_short, load_decoder, scored, shard_is_complete
from pyasr.decode.lattice_jobs.lattice_dir import archives, job_archives, of_data
from pyasr.decode.lattices.lattice import DecodeStats, Lattice, best_path, prune
from pyasr.decode.lattices.lattice_io import LatticeWriter, read_lattices
from pyasr.decode.lattices.lattice_posteriors import tid_posteriors
from pyasr.decode.search.beam_search import DecodeOptions
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
_NUM_CHECKED = 100  # lattices of a job, whether they are of this system


@dataclass(frozen=True)
class AdaptOptions:
    """The pass before adaptation, and the statistics; Kaldi's defaults."""

    first_beam: float = option(10.0, "beam of the decoding without fMLLR", minimum=0.1,
                               only=unless_set("si-dir"))  # fmt: skip
    first_max_active: int = option(2000, "most tokens of a frame that are taken on there", minimum=1,
                                   only=unless_set("si-dir"))  # fmt: skip
    silence_weight: float = option(0.01, "weight of silence in the statistics of fMLLR", minimum=0.0, maximum=1.0,
                                   only=unless_is("fmllr-update-type", "none"))  # fmt: skip

    def first(self, decode: DecodeOptions) -> DecodeOptions:
        """The search without fMLLR."""
        return replace(decode, beam=self.first_beam, max_active=self.first_max_active)

    def check(self, decode: DecodeOptions) -> None:
        """Raise UserError for numbers of tokens that no frame can have, in either search."""
        decode.check()
        if decode.min_active > self.first_max_active:
            found = f"--min-active {decode.min_active} is above --first-max-active {self.first_max_active}"
            raise UserError(f"{found}; lower the one or raise the other")


@dataclass(frozen=True)
class FmllrDecodeSpec:
    """The work of all passes but the one without fMLLR, whose result is in `si_dir`."""

    decode: DecodeSpec
    si_dir: Path
    silence_weight: float
    fmllr: FmllrOptions


def check_system(model_dir: Path) -> None:
    """Raise UserError unless the two models of a GMM system, if it has two, have the same Gaussians."""
    if read_model(first_pass_model(model_dir))[1].num_gauss != read_model(model_dir / MODEL)[1].num_gauss:
        raise UserError(f"{model_dir}: final.alimdl and final.mdl have different numbers of Gaussians; take both from one training")


def adaptation_files(graph: Path, si_dir: Path) -> list[Path]:
    """What the passes with fMLLR read besides what decoding does, for the stage output: where no lattice ends early, the totals do not
    count."""
    return [graph / "phones/silence.int", *archives(si_dir), *([si_dir / TOTALS] if cut_short(si_dir) else [])]


def first_stats(spec: FmllrDecodeSpec, job: int) -> None:
    """Statistics of the speakers of the job-th part of the archives of `spec.si_dir`."""
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
    """(speaker, features, lattice) of the job's part of `spec.si_dir`. Raises UserError where a lattice is of other features, as one is
    that ends before them without the totals saying so, or one of the first is of another system."""
    number, ends_early, data, reader_of = 0, cut_short(spec.si_dir), DataDir(spec.decode.data), _readers(spec, job)
    for archive in job_archives(spec.si_dir, spec.decode.num_jobs, job):
        for number, (utt, lattice) in enumerate(of_data(read_lattices(archive), archive, data), number + 1):
            reader = reader_of(utt)
            features = reader[utt]
            fits = lattice.num_frames == len(features) or utt in ends_early and lattice.num_frames < len(features)
            if not lattice.empty and not fits:
                found = f"a lattice of {lattice.num_frames} frames, the features have {len(features)}"
                raise UserError(f"{archive}: {utt}: {found}; give lattices of these features")
            if number <= _NUM_CHECKED and (path := best_path(lattice, spec.decode.decode.acoustic_scale)):
                check_decoded({f"{archive}: {utt}": path.tids}, trans)
            yield reader.speaker(utt), features, lattice


def _readers(spec: FmllrDecodeSpec, job: int) -> Callable[[str], FeatureReader]:
    """The function that gives the reader of an utterance's features: that of the job's part, or, where `spec.si_dir` has other parts, of
    all."""
    part = _part(spec, job)
    own, inside = open_features(spec.decode.data, spec.decode.model_dir, part=part), Table.of_keys(part.utterances)
    others = functools.cache(lambda: open_features(spec.decode.data, spec.decode.model_dir))
    return lambda utt: own if utt in inside else others()


def _part(spec: FmllrDecodeSpec, job: int) -> Part:
    return part_of(spec.decode.data, spec.decode.out, spec.decode.num_jobs, job)


def decode_again(spec: FmllrDecodeSpec, job: int) -> None:
    """Lattices of the job's utterances on features with the first transforms, and statistics on top of these."""
    path = _stats_path(spec, SECOND, job)
    if path.exists():
        return
    trans, gmm = read_model(spec.decode.model_dir / MODEL)
    reader, keys = _adapted(spec, job, [FIRST])
    posteriors, found, stats = _posteriors(spec, trans), {}, {}
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
    """The job's files of a decode directory, from the lattices of `decode_again` and features with the second transforms; trans.JOB."""
    if shard_is_complete(spec.decode, job):
        return
    trans, gmm = read_model(spec.decode.model_dir / MODEL)
    reader, _ = _adapted(spec, job, [FIRST, SECOND])
    write_transforms(spec.decode.out / f"trans.{job}", reader.transforms)
    found = json.loads(_found_path(spec, job).read_text(encoding="utf-8"))
    options, determinizer = spec.decode.decode, spec.decode.determinizer()
    with ShardWriter(spec.decode, job, _part(spec, job).utterances, set(reader.keys)) as writer:
        for utt, lattice in read_lattices(_raw_lattices(spec, job)):
            known = found["utterances"][utt]
            lattice = replace(lattice, reached_final=known["reached_final"], stats=DecodeStats(**known["stats"]))
            rescored = with_acoustics(lattice, gmm, reader[utt], trans.tid2pdf)
            writer.write(utt, determinizer(prune(rescored, options.lattice_beam, options.acoustic_scale)))
        writer.totals.cpu_s += found["cpu_s"]


def remove_intermediate(spec: FmllrDecodeSpec) -> None:
    """Remove what only the passes need."""
    for job in range(1, spec.decode.num_jobs + 1):
        for path in (_stats_path(spec, FIRST, job), _stats_path(spec, SECOND, job), _raw_lattices(spec, job), _found_path(spec, job)):
            path.unlink(missing_ok=True)


class LatticePosteriors:
    """Which pdfs the frames of a lattice belong to, at an acoustic scale, with silence weighted down."""

    def __init__(self, trans: TransitionModel, silence_phones: list[int], silence_weight: float, scale: float):
        self.scale, self.weighting = scale, SilenceWeighting(trans, silence_phones, silence_weight)

    def __call__(self, lattice: Lattice) -> PdfPosteriors:
        return self.weighting.of_tids(*tid_posteriors(lattice, self.scale))


def _posteriors(spec: FmllrDecodeSpec, trans: TransitionModel) -> LatticePosteriors:
    return LatticePosteriors(trans, LangDir(spec.decode.graph).silence_phones, spec.silence_weight, spec.decode.decode.acoustic_scale)


def _adapted(spec: FmllrDecodeSpec, job: int, passes: list[str]) -> tuple[FeatureReader, list[str]]:
    """(the features with the transforms that the statistics of `passes` give, the job's utterances)."""
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
    """The lattice with the acoustic costs of a model for `features` (gmm-rescore-lattice)."""
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
