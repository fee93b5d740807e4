"""Decoding of a data directory with a CTC network: in a graph to lattices, as with HMMs, or without a graph
to N-best lists.

DECODE_DIR/lat.JOB.gz   lattices: graph costs are those of the language model, acoustic costs are the negated
                        scores (`Scores`)
DECODE_DIR/hyp.JOB.txt  `UTTERANCE WORD WORD ...`, the best words at the scales of the search
DECODE_DIR/words.txt    the words of the lattices: those of the graph or, without a graph, those found

`pyasr.decode.ctc.ctc_lists` reads and writes N-best lists, and converts them to these three files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.job_options import threads_of_job
from pyasr.base.compiled.imports import without_collection
from pyasr.base.errors import UserError
from pyasr.base.jobs.in_threads import in_threads
from pyasr.base.memory_errors import computed
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import JobPart, part_of
from pyasr.decode.ctc.ctc_hypotheses import CtcHypothesis, checked, greedy
from pyasr.decode.ctc.ctc_lists import list_path, write_list
from pyasr.decode.ctc.ctc_prefix import PrefixDecoder, PrefixOptions
from pyasr.decode.decoding.decode_dir import DecodeSpec, ShardWriter, load_decoder, shard_is_complete
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.inputs import InputOptions, input_option_files, input_tables, open_features
from pyasr.feats.origin import check_origin
from pyasr.hmm.model.model_file import subsampling_files
from pyasr.io.ark import ArkReader, read_scp
from pyasr.lang.grammars.ctc_graph import GRAPH, unit_tid2pdf
from pyasr.lang.lang_dirs.subwords import UNITS, read_units
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.scales import ACOUSTIC_FACTOR

GREEDY, PREFIX, WFST = SEARCHES = ("greedy", "prefix", "wfst")
NETWORK = "final.nnet"


@dataclass(frozen=True)
class CtcDecodeSpec:
    """Parameters of one decoding, shared by all jobs.

    num_threads  threads per job; None: as many as the runner assigns to the job
    posteriors   table of log posteriors, in place of network and features
    graph        directory of TLG.fst, for the search in a graph
    lm           ARPA file, for the prefix search
    """

    search: str
    data: Path
    ctc_dir: Path
    units_dir: Path
    out: Path
    num_jobs: int
    num_threads: int | None
    posteriors: Path | None = None
    graph: Path | None = None
    lm: Path | None = None
    prefix: PrefixOptions = PrefixOptions()
    decode: DecodeOptions = DecodeOptions(acoustic_scale=1 / ACOUSTIC_FACTOR)
    lattices: DeterminizeOptions = DeterminizeOptions()

    @property
    def graph_dir(self) -> Path:
        """`graph`, which a search in a graph needs."""
        assert self.graph is not None
        return self.graph

    def of_graph(self) -> DecodeSpec:
        """The parameters of the search in a graph."""
        return DecodeSpec(
            self.graph_dir,
            self.ctc_dir,
            self.data,
            self.out,
            self.num_jobs,
            self.num_threads,
            self.decode,
            None,
            self.lattices,
        )

    def input_files(self) -> list[Path]:
        """The input files. Raises UserError for a missing file, naming the program that creates it, and as
        `check_origin` does."""
        makers = {
            self.units_dir / UNITS: "utils/train_subwords.py",
            self.data / "utt2spk": "the script that prepares the data",
        }
        if self.posteriors:
            makers[self.posteriors] = "the program that computes log posteriors"
        else:
            makers |= {
                self.ctc_dir / NETWORK: "the training step of this network",
                self.data / "feats.scp": "steps/make_fbank.py",
            }
        if self.search == WFST:
            makers |= {
                self.graph_dir / name: "utils/make_ctc_graph.py"
                for name in (GRAPH, "words.txt", "phones.txt")
            }
        for path, maker in makers.items():
            if not path.exists():
                raise UserError(f"{path}: no such file; create it with {maker}")
        if not self.posteriors:
            check_origin(self.data, self.ctc_dir)
        inputs = (
            []
            if self.posteriors
            else [
                *input_tables(self.data, InputOptions.load(self.ctc_dir)),
                *input_option_files(self.ctc_dir),
            ]
        )
        of_search = {PREFIX: [self.lm] if self.lm else [], WFST: subsampling_files(self.ctc_dir)}.get(
            self.search, []
        )
        return [*dict.fromkeys([*makers, *inputs, *of_search])]


class Scores:
    """Input scores of the search for the utterances of a data directory, from a network or from a table of
    log posteriors.

    For a search in a graph, the score of unit k is

        10 (log p(k | x) - log P(k))

    with the priors P of the units in the model file; for a table, all priors are equal. For other searches,
    it is log p(k | x).

    part  the part of the data directory that is decoded
    keys  the utterances that have scores
    """

    def __init__(self, spec: CtcDecodeSpec, num_units: int, part: JobPart):
        self._num_units, in_graph = num_units, spec.search == WFST
        self.keys: Sequence[str]
        self._read: Callable[[str], np.ndarray]
        self._score: Callable[[np.ndarray], np.ndarray]
        if spec.posteriors:
            table, reader = read_scp(spec.posteriors), ArkReader()
            factor = np.float32(ACOUSTIC_FACTOR if in_graph else 1.0)
            self.keys = list(table)
            self._read = lambda utt: reader.load(table[utt])
            self._score = lambda matrix: factor * matrix
        else:
            features = open_features(spec.data, spec.ctc_dir, part=part)
            model = load_network(spec.ctc_dir, in_graph, threads_of_job(spec.num_threads))
            self.keys, self._read = features.keys, features.__getitem__
            self._score = model.log_likelihoods if in_graph else model.log_posteriors

    def of(self, keys: list[str]) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
        """Yield (utterance, function that computes its scores). Input is read here; scores are computed where
        the function is called."""
        for utt in keys:
            yield utt, partial(self._compute, utt, self._read(utt))

    def _compute(self, utt: str, read: np.ndarray) -> np.ndarray:
        return checked(computed(utt, self._score, read), self._num_units, utt)


def load_network(ctc_dir: Path, in_graph: bool, num_threads: int = 1):
    """The `AcousticModel` of a directory, for use by `num_threads` threads at once.

    Raises UserError for a search in a graph with a network that has no priors of units.
    """
    with without_collection():
        from pyasr.nn.networks import acoustic  # torch is loaded only where a network is decoded

    model = acoustic.load_scorer(ctc_dir, num_threads)
    if in_graph and model.factor != ACOUSTIC_FACTOR:
        problem = (
            "has no priors of units, which a search in a graph needs; train it again with steps/train_ctc.py"
        )
        raise UserError(f"{ctc_dir / NETWORK}: {problem}")
    return model


def decode_shard(spec: CtcDecodeSpec, job: int) -> None:
    """Decode part `job` (1-based) of the utterances, unless an earlier run completed it."""
    (_graph_shard if spec.search == WFST else _list_shard)(spec, job)


def _graph_shard(spec: CtcDecodeSpec, job: int) -> None:
    """Write lat.JOB.gz, hyp.JOB.txt and shard.JOB.json, like `pyasr.decode.decoding.decode_dir`."""
    inner = spec.of_graph()
    if shard_is_complete(inner, job):
        return
    units = read_units(spec.units_dir)
    _check_units(units, spec)
    decoder = load_decoder(inner, unit_tid2pdf(len(units)), GRAPH)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    scores = Scores(spec, len(units), part)
    with ShardWriter(inner, job, part.utterances, set(scores.keys)) as writer:
        for utt, lattice in decoder.decode_many(
            scores.of(writer.keys), inner.threads(), inner.determinizer()
        ):
            writer.write(utt, lattice)


def _check_units(units: list[str], spec: CtcDecodeSpec) -> None:
    """Raise UserError unless the graph was created from these units."""
    phones = SymbolTable.read(spec.graph_dir / "phones.txt")
    different = next((unit for number, unit in enumerate(units, 1) if phones.get(unit) != number), None)
    if different is not None:
        raise UserError(
            f"{spec.graph}/phones.txt: the unit '{different}' of {spec.units_dir}/{UNITS} has another id or "
            "is missing; create the graph from these units with utils/prepare_ctc_lang.py, make_grammar.py "
            "and make_ctc_graph.py"
        )


def _list_shard(spec: CtcDecodeSpec, job: int) -> None:
    """Write nbest.JOB.txt, unless it exists."""
    path = list_path(spec.out, job)
    if path.exists():
        log.info(f"job {job} was completed by an earlier run")
        return
    units = read_units(spec.units_dir)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    scores, search = Scores(spec, len(units), part), _list_search(spec, units)
    mine, known = part.utterances, set(scores.keys)
    missing = [utt for utt in mine if utt not in known]
    if missing:
        log.warning(
            f"{len(missing)} utterance(s) have no features or posteriors and were not decoded: "
            f"{' '.join(missing[:20])}"
        )

    def decode(utterance):
        utt, compute = utterance
        return utt, search(compute(), utt)

    with atomic_write(path) as f:
        for utt, found in in_threads(
            decode, scores.of([utt for utt in mine if utt in known]), threads_of_job(spec.num_threads)
        ):
            log.info(f"{utt}: {' '.join(found[0].words)}")
            write_list(f, utt, found)


def _list_search(spec: CtcDecodeSpec, units: list[str]) -> Callable[[np.ndarray, str], list[CtcHypothesis]]:
    if spec.search == GREEDY:
        return lambda log_posteriors, utt: [greedy(log_posteriors, units, utt)]
    return PrefixDecoder(units, spec.prefix, read_arpa(spec.lm) if spec.lm else None, str(spec.lm)).decode
