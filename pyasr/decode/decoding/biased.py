"""Decoding of utterances with language models of their own transcripts, to find errors in the transcripts.

Utterances are processed in groups of at least `group_words` words. Each group gets an n-gram model of its
transcripts and a decoding graph of this model. The vocabulary of the model also contains the `top_words` most
frequent words of the data. The transcripts are likely under the model; other orders of their words, and
frequent words in between, are possible. Kaldi's find_bad_utts.sh (a unigram model for each utterance) and
clean_and_segment_data.sh (n-gram models of groups) use the same method.

OUT/decoded.JOB.txt   `UTTERANCE WORD WORD ...`: the path of the lattice that is closest to the transcript. An
                      error is counted only if every path without it is worse than the best path by more than
                      --lattice-beam.
OUT/failed.JOB.json   {utterance: reason why it was not decoded}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.parts.job_parts import PARTS, part_of, parts_of_jobs
from pyasr.data.tables.datadir import DataDir, split
from pyasr.decode.decoding.decode_dir import load_scorer, scored
from pyasr.decode.lattices.oracle import oracle
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.inputs import INPUT_TABLES, open_features
from pyasr.hmm.graphs.decoding_graph import GraphOptions, lg_to_hclg
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import read_transitions, read_tree
from pyasr.io.openfst import Fst, read_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.grammars.lg import compose_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.ngrams.ngram import estimate
from pyasr.lang.ngrams.vocabulary import map_text


@dataclass(frozen=True)
class BiasOptions:
    """Language models of groups of utterances."""

    heading = "language model"

    group_words: int = option(
        100, "minimum number of transcript words that share a language model and a graph", minimum=1
    )
    top_words: int = option(
        100, "number of most frequent words of the data that every language model contains", minimum=0
    )
    ngram_order: int = option(
        3, "n-gram order of the language models built from transcripts", minimum=1, maximum=6
    )


@dataclass(frozen=True)
class BiasedSpec:
    """Parameters of all jobs."""

    data: Path
    lang: Path
    model_dir: Path
    transform_dir: Path | None
    out: Path
    num_jobs: int
    bias: BiasOptions
    decode: DecodeOptions
    graph: GraphOptions


class BiasedGraphs:
    """Builds decoding graphs of texts for one language directory and model."""

    def __init__(self, lang: LangDir, model_dir: Path, options: GraphOptions):
        check_phones(model_dir, lang)
        self._words, self._symbols, self._options = lang.words, lang.disambig_phones, options
        self._lexicon = read_fst(lang.lexicon_disambig_fst)
        self._trans = read_transitions(model_dir / "final.mdl")
        self._tree = read_tree(model_dir / "tree", self._trans)

    def make(self, texts: list[np.ndarray], common: np.ndarray, order: int) -> Fst:
        """HCLG of the n-gram model of `texts` (word ids), with the words `common` added to its vocabulary."""
        ids = np.unique(np.concatenate([*texts, common]))
        names = [self._words.symbol(number) for number in ids]
        model = estimate([np.searchsorted(ids, text) for text in texts], names, order)
        grammar, _ = arpa_to_fst(model, self._words)
        lg = compose_lg(self._part_of_lexicon(ids), grammar)
        if lg is None:
            raise UserError(
                f"L_disambig.fst: no pronunciation of the words of {len(texts)} transcripts "
                f"({' '.join(names[:5])} ...); add them to the lexicon"
            )
        return lg_to_hclg(lg, self._symbols, self._trans, self._tree, self._options)[0]

    def _part_of_lexicon(self, ids: np.ndarray) -> Fst:
        """L_disambig restricted to these words."""
        return ops.connect_words(self._lexicon, np.append(ids, (0, self._words["#0"])))


def groups_of(texts: dict[str, np.ndarray], num_words: int) -> Iterator[dict[str, np.ndarray]]:
    """Utterances in their order, in groups of `num_words` words or more; the rest joins the last group."""
    parts: list[dict[str, np.ndarray]] = [{}]
    for utt, text in texts.items():
        if sum(map(len, parts[-1].values())) >= num_words:
            parts.append({})
        parts[-1][utt] = text
    if len(parts) > 1 and sum(map(len, parts[-1].values())) < num_words:
        rest = parts.pop()
        parts[-1] |= rest
    yield from (part for part in parts if part)


def top_words(texts: dict[str, np.ndarray], num: int) -> np.ndarray:
    """Most frequent words of all texts, int64 (num or fewer); at equal frequency, smaller ids come first."""
    counts = Counter(np.concatenate([np.zeros(0, np.int64), *texts.values()]).tolist())
    return np.array(
        [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:num]], np.int64
    )


@contextmanager
def parts_to_decode(spec: BiasedSpec) -> Iterator[None]:
    """During the `with` block, the jobs' parts of the data directory and the most frequent words of all of it
    are on disk."""
    with parts_of_jobs(spec.data, spec.out, split(spec.data, spec.num_jobs), (*INPUT_TABLES, "text")):
        np.save(_common_words_file(spec), _common_words(spec, LangDir(spec.lang)))
        yield


def _common_words(spec: BiasedSpec, lang: LangDir) -> np.ndarray:
    """The most frequent words: those saved by `parts_to_decode`, else those of all transcripts."""
    if (path := _common_words_file(spec)).exists():
        return np.load(path)
    return top_words(
        map_text(DataDir(spec.data).table("text"), lang.words, lang.oov).ids, spec.bias.top_words
    )


def _common_words_file(spec: BiasedSpec) -> Path:
    return spec.out / PARTS / "common_words.npy"


def decode_shard(spec: BiasedSpec, job: int) -> None:
    """Decode part `job` (1-based) of the utterances."""
    lang, part = LangDir(spec.lang), part_of(spec.data, spec.out, spec.num_jobs, job)
    texts = map_text(part.directory().table("text"), lang.words, lang.oov).ids
    graphs, common = BiasedGraphs(lang, spec.model_dir, spec.graph), _common_words(spec, lang)
    scorer, tid2pdf = load_scorer(spec.model_dir, adapted=spec.transform_dir is not None)
    reader = open_features(spec.data, spec.model_dir, spec.transform_dir, part)
    mine, known = part.utterances, set(reader.keys)
    failed = {utt: "no features in feats.scp" for utt in mine if utt not in known}
    failed |= {
        utt: "no line of words (without reserved symbols) in text"
        for utt in mine
        if utt in known and not len(texts.get(utt, ()))
    }
    chosen = {utt: texts[utt] for utt in mine if utt not in failed}
    progress = log.Progress("decode", len(chosen), "utterances", 30.0)
    num_done = 0
    with atomic_write(spec.out / f"decoded.{job}.txt") as f:
        for group in groups_of(chosen, spec.bias.group_words):
            decoder = Decoder(
                graphs.make(list(group.values()), common, spec.bias.ngram_order), tid2pdf, spec.decode
            )
            for utt, likelihoods in scored(reader, scorer, list(group)):
                found = oracle(decoder.decode(likelihoods(), utt), group[utt], name=utt)
                f.write(" ".join([utt, *map(lang.words.symbol, found.words)]) + "\n")
            num_done += len(group)
            progress.update(num_done)
    with atomic_write(spec.out / f"failed.{job}.json") as f:
        json.dump(failed, f)
