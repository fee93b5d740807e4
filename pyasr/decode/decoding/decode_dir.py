"""Decoding of a data directory: each job decodes a shard of utterances to lattices, best hypotheses and
statistics.

DECODE_DIR/lat.JOB.gz     compact lattices (raw lattices with --determinize false) with graph costs and
                          unscaled acoustic costs
DECODE_DIR/hyp.JOB.txt    `UTTERANCE WORD WORD ...`, the best path at the acoustic scale of the search
DECODE_DIR/shard.JOB.json statistics of the job; written last, so its existence marks the job as complete
DECODE_DIR/totals.json    statistics of all jobs
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions, threads_of_job
from pyasr.base.cli.options import argument, group, option
from pyasr.base.compiled.imports import without_collection
from pyasr.base.errors import UserError
from pyasr.base.figures import figure
from pyasr.base.files.foreign_json import read_object
from pyasr.base.memory_errors import computed
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import split
from pyasr.decode.lattice_jobs.lattice_dir import write_num_jobs
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.determinize import DeterminizeOptions, Determinizer
from pyasr.decode.lattices.lattice import Lattice, best_path
from pyasr.decode.lattices.lattice_io import LatticeWriter
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.decode.search.search_graph import Graph
from pyasr.feats.frame_shift import FRAME_SHIFT_S
from pyasr.feats.inputs import INPUT_TABLES, FeatureReader, input_option_files, open_features
from pyasr.feats.transforms import transform_files
from pyasr.hmm.model.model_file import (
    ALIGNMENT_MODEL,
    MODEL,
    answer_shift_s,
    first_pass_model,
    read_model,
    read_transitions,
    subsampling_files,
)
from pyasr.lang.symbols import SymbolTable

NETWORK, TOTALS = "final.nnet", "totals.json"
_PARTS = ".parts"  # digest of the utterances of each job
_MAX_NAMED = 20


@dataclass(frozen=True)
class DecodeSpec:
    """Parameters of one decoding, shared by all jobs.

    num_threads    threads per job; None: as many as the runner assigns to the job
    transform_dir  directory with the speakers' fMLLR transforms; None: a SAT system is decoded with its
                   alignment model
    """

    graph: Path
    model_dir: Path
    data: Path
    out: Path
    num_jobs: int
    num_threads: int | None
    decode: DecodeOptions
    transform_dir: Path | None = None
    lattices: DeterminizeOptions = DeterminizeOptions()

    def threads(self) -> int:
        """The number of utterances that the current job decodes at once."""
        return threads_of_job(self.num_threads)

    def determinizer(self) -> Determinizer:
        """The function that converts a lattice of the search to the lattice that is written."""
        return Determinizer(self.lattices, self.decode.lattice_beam, self.decode.acoustic_scale)


@dataclass(frozen=True)
class DecodeStep:
    """Options shared by all steps/decode*.py."""

    graph_dir: Path = argument("directory of the decoding graph")
    data: Path = argument("data directory with features")
    decode_dir: Path = argument("directory of the lattices")
    model_dir: Path | None = option(
        None, "directory of the acoustic model; none: the parent of GRAPH_DIR", heading="input"
    )
    decode: DecodeOptions = group(DecodeOptions)
    lattices: DeterminizeOptions = group(DeterminizeOptions)
    jobs: JobOptions = group(JobOptions)

    def __post_init__(self):
        object.__setattr__(self, "model_dir", self.model)

    @property
    def model(self) -> Path:
        """The directory of the acoustic model."""
        return self.model_dir or self.graph_dir.parent

    def spec(self, out: Path, transform_dir: Path | None = None) -> DecodeSpec:
        """The parameters of a decoding that writes to `out`."""
        return DecodeSpec(
            self.graph_dir,
            self.model,
            self.data,
            out,
            self.jobs.nj,
            self.jobs.num_threads,
            self.decode,
            transform_dir,
            self.lattices,
        )


@dataclass
class DecodingTotals:
    """Statistics of a decoding.

    num_frames counts frames of the lattices; `audio_s` is their duration. CPU seconds: `search_s` of the
    search, `determinize_s` of the determinisation, `cpu_s` of everything (model, features, likelihoods,
    search, lattices, writing).
    """

    num_utterances: int = 0
    num_frames: int = 0
    audio_s: float = 0.0
    num_tokens: int = 0
    num_arcs: int = 0
    cost: float = 0.0
    search_s: float = 0.0
    determinize_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    not_final: list[str] = field(default_factory=list)
    cut_short: list[str] = field(default_factory=list)
    no_features: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)

    def add(self, other: DecodingTotals) -> None:
        """Add the statistics of another shard; peak memory is the maximum."""
        peak = max(self.peak_mb, other.peak_mb)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.peak_mb = peak

    def report(self) -> list[str]:
        """Lines for the log."""
        frames, audio_s = max(self.num_frames, 1), max(self.audio_s, FRAME_SHIFT_S)
        rtf = {name: figure(getattr(self, name) / audio_s) for name in ("search_s", "determinize_s", "cpu_s")}
        lines = [
            f"{self.num_utterances} utterances, {self.num_frames} frames ({figure(audio_s / 60)} min); "
            f"log-like per frame {-self.cost / frames:.3f}",
            f"real-time factor {rtf['search_s']} for the search, {rtf['determinize_s']} for the "
            f"determinisation, {rtf['cpu_s']} for everything (CPU); peak memory of a job {self.peak_mb:.0f} "
            "MB",
            f"{figure(self.num_tokens / frames)} active tokens per frame; "
            f"{self.num_arcs} lattice arcs, {figure(self.num_arcs / frames)} per frame",
        ]
        for names, what in (
            (self.not_final, "did not reach a final state of the graph at the end"),
            (self.cut_short, "ended early, because no path of the graph continued within the beam"),
            (self.narrowed, "have lattices of a narrower beam; increase --determinize-mb"),
        ):
            if names:
                lines.append(f"{len(names)} utterance(s) {what}: {_some(names)}")
        return lines

    def log(self, what: str = "") -> None:
        """Log the report, each line prefixed with `what`, and a warning of utterances without features."""
        head = f"{what}: " if what else ""
        for line in self.report():
            log.info(head + line)
        if self.no_features:
            log.warning(
                f"{head}{len(self.no_features)} utterance(s) have no features and are not decoded: "
                f"{_some(self.no_features)}"
            )


def _some(names: list[str]) -> str:
    return " ".join(names[:_MAX_NAMED]) + (" ..." if len(names) > _MAX_NAMED else "")


def input_files(graph: Path, model_dir: Path, data: Path, transform_dir: Path | None = None) -> list[Path]:
    """The input files of decoding, for the output's fingerprint. Raises UserError for a missing file, naming
    the step that creates it."""
    model = model_dir / (NETWORK if (model_dir / NETWORK).exists() else MODEL)
    training, graph_step = "the training step of this model", "utils/make_graph.py"
    makers = {
        graph / "HCLG.fst": graph_step,
        graph / "words.txt": graph_step,
        model: training,
        model_dir / MODEL: training,
        data / "feats.scp": "steps/make_mfcc.py",
        data / "utt2spk": "the script that prepares the data",
    }
    for path, maker in makers.items():
        if not path.exists():
            raise UserError(f"{path}: no such file; create it with {maker}")
    optional = [data / "cmvn.scp", model_dir / ALIGNMENT_MODEL]
    transforms = transform_files(transform_dir) if transform_dir else []
    of_model = [*input_option_files(model_dir), *subsampling_files(model_dir)]
    return [*makers, *of_model, *transforms, *(path for path in optional if path.exists())]


def load_scorer(model_dir: Path, adapted: bool = False, num_threads: int = 1):
    """(object with `.log_likelihoods(features)`, tid2pdf) of a GMM or network directory, for use by
    `num_threads` threads at once.

    adapted  use the final model of a SAT system, for features with fMLLR, instead of its alignment model

    Raises UserError if the number of pdfs of a network differs from that of its transition model.
    """
    if (model_dir / NETWORK).exists():
        with without_collection():
            from pyasr.nn.networks import acoustic  # torch is loaded only where a network is decoded

        network = acoustic.load_scorer(model_dir, num_threads)
        transitions = read_transitions(model_dir / MODEL)
        network.check_pdfs(model_dir, transitions.num_pdfs)
        return network, transitions.tid2pdf
    transitions, gmm = read_model(model_dir / MODEL if adapted else first_pass_model(model_dir))
    return gmm, transitions.tid2pdf


@contextmanager
def decoding(out: Path, data: Path, num_jobs: int) -> Iterator[None]:
    """Call `start_output`; during the `with` block, the jobs' parts of the data directory are on disk."""
    lists = split(data, num_jobs)
    start_output(out, data, num_jobs, lists)
    with parts_of_jobs(data, out, lists, INPUT_TABLES):
        yield


def start_output(out: Path, data: Path, num_jobs: int, lists: Sequence[Sequence[str]] | None = None) -> None:
    """Write num_jobs. If an interrupted run divided the data into other parts than `lists` (of `split`),
    remove its files from `out`; logs remain."""
    parts, marker = _digest_of(lists or split(data, num_jobs)), out / _PARTS
    if not marker.exists() or marker.read_text(encoding="utf-8") != parts:
        for path in out.glob("[!.]*"):
            if path.is_file():
                path.unlink()
    with atomic_write(marker) as f:
        f.write(parts)
    write_num_jobs(out, num_jobs)


def _digest_of(lists: Sequence[Sequence[str]]) -> str:
    """SHA-256 of the Python representation of the lists."""
    digest = hashlib.sha256(b"[")
    for number, one in enumerate(lists):
        digest.update(
            (", " * (number > 0) + f"[{', '.join(map(repr, one))}]").encode("utf-8", "surrogateescape")
        )
    digest.update(b"]")
    return digest.hexdigest()


def decode_shard(spec: DecodeSpec, job: int) -> None:
    """Decode part `job` (1-based) of the utterances, unless an earlier run completed it."""
    if shard_is_complete(spec, job):
        return
    scorer, tid2pdf = load_scorer(spec.model_dir, spec.transform_dir is not None, spec.threads())
    decoder = load_decoder(spec, tid2pdf)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    reader = open_features(spec.data, spec.model_dir, spec.transform_dir, part)
    with ShardWriter(spec, job, part.utterances, set(reader.keys)) as writer:
        for utt, lattice in decoder.decode_many(
            scored(reader, scorer, writer.keys), spec.threads(), spec.determinizer()
        ):
            writer.write(utt, lattice)


def shard_is_complete(spec: DecodeSpec, job: int) -> bool:
    """Whether an earlier run completed the job; if so, log it."""
    done = done_path(spec, job).exists()
    if done:
        log.info(f"job {job} was completed by an earlier run")
    return done


def done_path(spec: DecodeSpec, job: int) -> Path:
    return spec.out / f"shard.{job}.json"


def load_decoder(spec: DecodeSpec, tid2pdf: np.ndarray, name: str = "HCLG.fst") -> Decoder:
    """The decoder on the graph `name` of `spec`; see `read_decoder`."""
    return read_decoder(spec.graph, tid2pdf, spec.decode, name)


def read_decoder(graph: Path, tid2pdf: np.ndarray, options: DecodeOptions, name: str = "HCLG.fst") -> Decoder:
    """The decoder on the graph `name` of a directory.

    Raises UserError if the graph was created for another number of pdfs, or if words.txt lacks a word of the
    graph.
    """
    _check_pdfs(graph, int(tid2pdf.max()) + 1)
    search_graph = Graph.read(graph / name, tid2pdf)
    missing = set(search_graph.vocabulary.tolist()) - set(SymbolTable.read(graph / "words.txt").ids.values())
    if missing:
        raise UserError(
            f"{graph}/words.txt has no word with id {min(missing)}, which {name} uses; create the graph again"
        )
    return Decoder.on(search_graph, options)


def _check_pdfs(graph: Path, num_pdfs: int) -> None:
    """Raise UserError if the graph records another number of pdfs; HCLG records it, TLG does not."""
    marker = graph / "num_pdfs"
    needed = marker.read_text(encoding="utf-8").strip() if marker.exists() else str(num_pdfs)
    if needed != str(num_pdfs):
        raise UserError(
            f"{marker}: the graph is for a model with {needed[:20]} pdfs, but this model has {num_pdfs}; "
            "give the graph of this model or, for a network, of the model that aligned its training data"
        )


def scored(reader: FeatureReader, scorer, keys: list[str]):
    """Yield (utterance, function that computes its log-likelihoods). Features are read here, in one
    thread."""
    for utt in keys:
        features = reader[utt]
        yield (
            utt,
            lambda utt=utt, features=features: np.asarray(
                computed(utt, scorer.log_likelihoods, features), np.float32
            ),
        )


class ShardWriter:
    """Writes the files of one job of a decode directory: lattices, best hypotheses and, at the end of a
    `with` block, statistics.

    mine    the job's utterances
    known   utterances that have features
    keys    the job's utterances that have features
    totals  statistics of the utterances written so far
    """

    def __init__(self, spec: DecodeSpec, job: int, mine: Sequence[str], known: set[str]):
        self.spec, self.job, self.keys = spec, job, [utt for utt in mine if utt in known]
        self.totals = DecodingTotals(no_features=[utt for utt in mine if utt not in known])
        self._words = SymbolTable.read(spec.graph / "words.txt")
        self._shift_s = answer_shift_s(spec.data, spec.model_dir)
        self._progress = log.Progress("decode", len(self.keys), "utterances", 30.0)

    def __enter__(self) -> ShardWriter:
        self._stack = ExitStack()
        self._lattices = self._stack.enter_context(LatticeWriter(self.spec.out / f"lat.{self.job}.gz"))
        self._hypotheses = self._stack.enter_context(atomic_write(self.spec.out / f"hyp.{self.job}.txt"))
        return self

    def write(self, utt: str, lattice: Lattice | CompactLattice) -> None:
        """Add an utterance."""
        self._lattices.write(utt, lattice)
        words = _account(self.totals, utt, lattice, self._words, self.spec.decode.acoustic_scale)
        assert lattice.stats is not None
        self.totals.audio_s += self._shift_s * lattice.stats.num_frames
        self._hypotheses.write(" ".join([utt, *words]) + "\n")
        self._progress.update(self.totals.num_utterances)

    def __exit__(self, kind, error, trace) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is not None:
            return
        self.totals.cpu_s += time.process_time()
        self.totals.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.totals.log()
        with atomic_write(done_path(self.spec, self.job)) as f:
            json.dump(asdict(self.totals), f)


def _account(
    totals: DecodingTotals, utt: str, lattice: Lattice | CompactLattice, words: SymbolTable, scale: float
) -> list[str]:
    """Add an utterance to the totals, log it, and return its words."""
    path, stats = best_path(lattice, scale), lattice.stats
    assert path is not None and stats is not None
    cost = path.graph_cost + scale * path.acoustic_cost
    totals.num_utterances += 1
    totals.num_frames += stats.num_frames
    totals.num_tokens += stats.num_tokens
    totals.num_arcs += lattice.num_arcs
    totals.cost += cost
    totals.search_s += stats.cpu_s
    totals.determinize_s += stats.determinize_s
    totals.narrowed += [utt] if stats.narrowed_beam is not None else []
    totals.no_features += [] if stats.num_frames else [utt]
    note = ""
    if stats.num_decoded < stats.num_frames:
        totals.cut_short.append(utt)
        note = f"; no path of the graph continues after frame {stats.num_decoded}, a wider beam may help"
    elif not lattice.reached_final:
        totals.not_final.append(utt)
        note = "; no final state reached, the last words are uncertain"
    text = [words.symbol(word) for word in path.words]
    log.info(
        f"{utt}: log-like per frame {-cost / max(stats.num_frames, 1):.3f} over {stats.num_frames} frames, "
        f"{lattice.num_arcs} lattice arcs{note}: {' '.join(text)}"
    )
    return text


def join_totals(out: Path, num_jobs: int) -> DecodingTotals:
    """Add up the statistics of all jobs and write them to totals.json."""
    totals = DecodingTotals()
    for job in range(1, num_jobs + 1):
        totals.add(DecodingTotals(**json.loads((out / f"shard.{job}.json").read_text(encoding="utf-8"))))
    with atomic_write(out / TOTALS) as f:
        json.dump(asdict(totals), f, indent=1)
    return totals


def cut_short(decode_dir: Path) -> set[str]:
    """The utterances whose lattices end before their features, from totals.json."""
    try:
        names = read_object(decode_dir / TOTALS).get("cut_short")
    except (FileNotFoundError, ValueError):
        return set()  # harmless: lattices of another toolkit have no totals.json
    return set(map(str, names)) if isinstance(names, list) else set()
