"""Decoding a data directory: shards of utterances to lattice archives, best hypotheses and a report.

DECODE_DIR/lat.JOB.gz     lattices with graph costs and unscaled acoustic costs
DECODE_DIR/hyp.JOB.txt    `UTTERANCE WORD WORD ...`, the best path at the acoustic scale of the search
DECODE_DIR/shard.JOB.json what the job took; written last, so that its presence says the job is complete
DECODE_DIR/totals.json    the same over all jobs
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write
from pyasr.decode.lattice import Lattice, best_path
from pyasr.decode.lattice_io import LatticeWriter
from pyasr.decode.search import DecodeOptions, Decoder
from pyasr.data.datadir import split
from pyasr.feats.inputs import FeatureReader, input_option_files, open_features
from pyasr.hmm.model import read_model, read_transitions
from pyasr.io.openfst import read_fst
from pyasr.lang.symbols import SymbolTable

FRAMES_PER_SECOND = 100.0
_MODEL, _NETWORK = "final.mdl", "final.nnet"


@dataclass(frozen=True)
class DecodeSpec:
    """The work of one decoding, given to every job."""

    graph: Path
    model_dir: Path
    data: Path
    out: Path
    num_jobs: int
    num_threads: int
    decode: DecodeOptions


@dataclass
class Totals:
    """What decoding took. CPU seconds: `search_s` of the search, `cpu_s` of everything (model, features, likelihoods, search, writing)."""

    num_utterances: int = 0
    num_frames: int = 0
    num_tokens: int = 0
    num_arcs: int = 0
    cost: float = 0.0
    search_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    not_final: list[str] = field(default_factory=list)
    cut_short: list[str] = field(default_factory=list)
    no_features: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Join another shard's: sums, and the greatest memory."""
        peak = max(self.peak_mb, other.peak_mb)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.peak_mb = peak

    def report(self) -> list[str]:
        """Sentences for the log."""
        frames = max(self.num_frames, 1)
        audio_s = frames / FRAMES_PER_SECOND
        lines = [f"{self.num_utterances} utterances, {self.num_frames} frames ({audio_s / 60:.1f} min); "
                 f"log-like per frame {-self.cost / frames:.3f}",
                 f"real-time factor {self.search_s / audio_s:.4f} for the search, {self.cpu_s / audio_s:.4f} for everything (CPU); "
                 f"peak memory of a job {self.peak_mb:.0f} MB",
                 f"{self.num_tokens / frames:.0f} active tokens and {self.num_arcs / frames:.1f} lattice arcs a frame"]
        for names, what in ((self.not_final, "did not reach a final state of the graph at the end"),
                            (self.cut_short, "found no way on in the graph"), (self.no_features, "have no features and were not decoded")):
            if names:
                lines.append(f"{len(names)} utterance(s) {what}: {' '.join(names[:20])}{' ...' if len(names) > 20 else ''}")
        return lines


def input_files(graph: Path, model_dir: Path, data: Path) -> list[Path]:
    """The files that decoding reads, for the stage output. Raises UserError naming a missing one and the step that makes it."""
    model = model_dir / (_NETWORK if (model_dir / _NETWORK).exists() else _MODEL)
    training, graph_step = "the training step of this model", "utils/make_graph.py"
    makers = {graph / "HCLG.fst": graph_step, graph / "words.txt": graph_step, model: training, model_dir / _MODEL: training,
              data / "feats.scp": "steps/make_mfcc.py", data / "utt2spk": "utils/validate_data_dir.py"}
    for path, maker in makers.items():
        if not path.exists():
            raise UserError(f"{path}: no such file; it comes from {maker}")
    return [*makers, *input_option_files(model_dir), *(data / name for name in ("cmvn.scp",) if (data / name).exists())]


def load_scorer(model_dir: Path):
    """(object with `.log_likelihoods(features)`, tid2pdf) of a GMM or a network directory."""
    if (model_dir / _NETWORK).exists():
        from pyasr.nn import acoustic  # torch is loaded only where a network is decoded

        return acoustic.load_scorer(model_dir), read_transitions(model_dir / _MODEL).tid2pdf
    transitions, gmm = read_model(model_dir / _MODEL)
    return gmm, transitions.tid2pdf


def start_output(out: Path, num_jobs: int) -> None:
    """Write num_jobs; what an interrupted run with another number of jobs has left is removed."""
    marker = out / "num_jobs"
    if marker.exists() and marker.read_text().strip() != str(num_jobs):
        for name in ("lat.*.gz", "hyp.*.txt", "shard.*.json"):
            for path in out.glob(name):
                path.unlink()
    with atomic_write(marker) as f:
        f.write(f"{num_jobs}\n")


def decode_shard(spec: DecodeSpec, job: int) -> None:
    """Decode the `job`-th part of the utterances, 1-based; nothing is done if an earlier run has completed it."""
    done = spec.out / f"shard.{job}.json"
    if done.exists():
        log.info(f"job {job} was completed by an earlier run")
        return
    scorer, tid2pdf = load_scorer(spec.model_dir)
    decoder = Decoder(read_fst(spec.graph / "HCLG.fst"), tid2pdf, spec.decode)
    words = read_words(spec.graph, decoder.graph.words)
    reader = open_features(spec.data, spec.model_dir)
    mine, known = split(spec.data, spec.num_jobs)[job - 1], set(reader.keys)
    keys = [utt for utt in mine if utt in known]
    totals, progress = Totals(no_features=[utt for utt in mine if utt not in known]), log.Progress("decode", len(keys), "utterances", 30.0)
    with LatticeWriter(spec.out / f"lat.{job}.gz") as lattices, atomic_write(spec.out / f"hyp.{job}.txt") as hypotheses:
        for utt, lattice in decoder.decode_many(_scored(reader, scorer, keys), spec.num_threads):
            lattices.write(utt, lattice)
            hypotheses.write(" ".join([utt, *_account(totals, utt, lattice, words, spec.decode.acoustic_scale)]) + "\n")
            progress.update(totals.num_utterances)
    totals.cpu_s = time.process_time()
    totals.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for line in totals.report():
        log.info(line)
    with atomic_write(done) as f:
        json.dump(asdict(totals), f)


def read_words(graph: Path, used: np.ndarray) -> SymbolTable:
    """words.txt of a graph. Raises UserError when it lacks a word that the graph uses."""
    words = SymbolTable.read(graph / "words.txt")
    missing = set(np.unique(used).tolist()) - set(words.ids.values())
    if missing:
        raise UserError(f"{graph}/words.txt has no word with id {min(missing)}, which HCLG.fst uses; run utils/make_graph.py again")
    return words


def _scored(reader: FeatureReader, scorer, keys: list[str]):
    """(utterance, function that computes its log-likelihoods): features are read here, in one thread, likelihoods where it is called."""
    for utt in keys:
        features = reader[utt]
        yield utt, lambda features=features: np.asarray(scorer.log_likelihoods(features), np.float32)


def _account(totals: Totals, utt: str, lattice: Lattice, words: SymbolTable, scale: float) -> list[str]:
    """Add an utterance to the totals, log it, and return its words."""
    path, stats = best_path(lattice, scale), lattice.stats
    cost = path.graph_cost + scale * path.acoustic_cost
    totals.num_utterances += 1
    totals.num_frames += stats.num_frames
    totals.num_tokens += stats.num_tokens
    totals.num_arcs += lattice.num_arcs
    totals.cost += cost
    totals.search_s += stats.cpu_s
    note = ""
    if stats.num_decoded < stats.num_frames:
        totals.cut_short.append(utt)
        note = f"; no way on in the graph after frame {stats.num_decoded}, wider beams may help"
    elif not lattice.reached_final:
        totals.not_final.append(utt)
        note = "; no final state reached, the end is a guess"
    text = [words.symbol(word) for word in path.words]
    log.info(f"{utt}: log-like per frame {-cost / max(stats.num_frames, 1):.3f} over {stats.num_frames} frames, "
             f"{lattice.num_arcs} lattice arcs{note}: {' '.join(text)}")
    return text


def join_totals(out: Path, num_jobs: int) -> Totals:
    """The totals of all jobs, written to totals.json."""
    totals = Totals()
    for job in range(1, num_jobs + 1):
        totals.add(Totals(**json.loads((out / f"shard.{job}.json").read_text())))
    with atomic_write(out / "totals.json") as f:
        json.dump(asdict(totals), f, indent=1)
    return totals
