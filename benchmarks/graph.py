#!/usr/bin/env python3
"""CPU seconds and peak memory of building a large decoding graph, compared with Kaldi's programs for the same
operations.

The language is synthetic: words of the CMU dictionary, a trigram model with random n-grams (most of them of
frequent words, as in text), a random triphone tree. Kaldi's programs come from the riva-asrlib-decoder wheel;
they cover ARPA to LG and Ha o CLG to HCLG, not the context and H.

Example:
    benchmarks/graph.py --num-words 20000 --num-bigrams 400000 --num-trigrams 300000
"""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.hmm.graphs.decoding_graph import GraphOptions
from pyasr.hmm.graphs.h_transducer import add_self_loops, h_transducer, merge_equal_contexts
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, Node, Split, TreeTable
from pyasr.io.openfst import read_fst, write_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon, read_cmudict
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, write_arpa


@dataclass(frozen=True)
class Benchmark:
    num_words: int = option(20000, "words", minimum=10)
    num_bigrams: int = option(400000, "bigrams", minimum=1)
    num_trigrams: int = option(300000, "trigrams", minimum=1)
    num_leaves: int = option(3000, "number of leaves of the triphone tree", minimum=1)


def write_language(root: Path, options: Benchmark) -> None:
    """`root`/lang and `root`/lm.arpa."""
    rng = np.random.default_rng(0)
    known = read_cmudict()
    lexicon = Lexicon()
    for word in rng.permutation(sorted(known.entries))[: options.num_words]:
        for phones in known.pronunciations(str(word)):
            lexicon.add(str(word), phones)
    lexicon.add("<unk>", ("SPN",))
    nonsilence = [(phone,) for phone in sorted(lexicon.phones() - {"SPN"})]
    (root / "lang").mkdir()
    write_lang(
        DictDir(lexicon, [("SIL",), ("SPN",)], nonsilence, "SIL", []), "<unk>", LangOptions(), root / "lang"
    )
    write_arpa(root / "lm.arpa", random_model(list(lexicon.entries), options, rng))


def random_model(words: list[str], options: Benchmark, rng: np.random.Generator) -> Arpa:
    """A model with words drawn by Zipf's law; trigrams continue a tenth of the bigrams, as in models of large
    texts with count cutoffs."""
    symbols = [*words, "<s>", "</s>"]
    begin, end = len(words), len(words) + 1
    zipf = 1.0 / np.arange(2, len(words) + 2)
    spoken = np.r_[rng.permutation(len(words)), end]
    chances = np.r_[zipf, zipf.sum() / 10]
    draw = lambda num: rng.choice(spoken, num, p=chances / chances.sum())
    bigrams = distinct(
        np.stack(
            [
                np.where(rng.random(2 * options.num_bigrams) < 0.05, begin, draw(2 * options.num_bigrams)),
                draw(2 * options.num_bigrams),
            ],
            axis=1,
        ),
        options.num_bigrams,
        rng,
        end,
    )
    heads = bigrams[bigrams[:, 1] != end]
    frequent = heads[rng.permutation(len(heads))[: 1 + options.num_bigrams // 10]]
    extended = frequent[rng.integers(0, len(frequent), 2 * options.num_trigrams)]
    trigrams = distinct(np.c_[extended, draw(len(extended))], options.num_trigrams, rng, end)
    unigrams = np.arange(len(symbols))[:, None]
    table = lambda ids: NgramTable(
        ids.astype(np.int32), -rng.uniform(0.3, 4.0, len(ids)), -rng.uniform(0.0, 1.0, len(ids))
    )
    return Arpa(symbols, [table(ids) for ids in (unigrams, bigrams, trigrams)])


def distinct(ids: np.ndarray, num: int, rng: np.random.Generator, end: int) -> np.ndarray:
    ids = np.unique(ids[(ids[:, :-1] != end).all(axis=1)], axis=0)
    return ids[np.sort(rng.permutation(len(ids))[:num])]


def random_tree(lang: LangDir, topology: Topology, num_leaves: int) -> ContextTree:
    """A tree of random questions about either neighbour, with about the same number of leaves for each set of
    phones."""
    rng, numbers = np.random.default_rng(1), iter(range(1 << 30))
    sets = [members for members in lang.sets if not set(members) & set(lang.silence_phones)]

    def grown(size: int) -> Node:
        if size == 1:
            return Leaf(next(numbers))
        left = int(rng.integers(1, size))
        asked = rng.choice(len(sets), int(rng.integers(1, len(sets) // 2)), replace=False)
        phones = frozenset(phone for number in asked for phone in sets[number])
        return Split(int(rng.choice([0, 2])), phones, grown(left), grown(size - left))

    def root(members: list[int]) -> Node:
        num_classes = topology.num_pdf_classes(members[0])
        size = max(1, num_leaves // (num_classes * len(sets))) if members in sets else 1
        return TreeTable(-1, tuple(grown(size) for _ in range(num_classes)))

    roots = {phone: node for members in lang.sets for node in [root(members)] for phone in members}
    return ContextTree(3, 1, TreeTable(1, tuple(roots.get(phone) for phone in range(max(roots) + 1))))


class Stopwatch:
    """Prints CPU seconds and peak memory of this process, one line per stage."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def run(self, name: str, function, *arguments):
        begin = time.process_time()
        result = function(*arguments)
        self.seconds[name] = time.process_time() - begin
        fst = result[0] if isinstance(result, tuple) else result
        size = f"{fst.num_states:9d} states {fst.num_arcs:9d} arcs" if hasattr(fst, "finals") else " " * 34
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name:28s} {size} {self.seconds[name]:7.2f} CPU s   peak {peak:6.0f} MB", flush=True)
        return result


def kaldi_programs() -> Path | None:
    spec = importlib.util.find_spec("riva") if importlib.util.find_spec("riva") else None
    places = (
        [
            Path(place) / "asrlib/decoder/scripts/prepare_TLG_fst/bin"
            for place in spec.submodule_search_locations
        ]
        if spec
        else []
    )
    return next((place for place in places if (place / "fstdeterminizestar").exists()), None)


def kaldi(programs: Path, *stages: tuple) -> float:
    """CPU seconds of running Kaldi's programs in sequence."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for program, *arguments in stages:
        subprocess.run([str(programs / program), *map(str, arguments)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(root: Path, options: Benchmark) -> Stopwatch:
    watch = Stopwatch()
    (root / "lang_test").mkdir()
    watch.run("ARPA -> G", make_grammar, root / "lang", root / "lm.arpa", root / "lang_test")
    lg = watch.run("L o G -> LG", make_lg, root / "lang_test")
    lang, topology = LangDir(root / "lang"), Topology.read(root / "lang/topo")
    tree = random_tree(lang, topology, options.num_leaves)
    trans = TransitionModel.from_tree(topology, tree)
    clg, info = watch.run("C o LG -> CLG", ops.compose_context, lg, lang.disambig_phones, 3, 1)
    clg, info = watch.run("equal contexts merged", merge_equal_contexts, clg, info, trans, tree)
    h, disambig = watch.run("H", h_transducer, info, trans, tree)
    write_fst(root / "h.fst", h)
    write_fst(root / "clg.fst", clg.arcsort("ilabel"))
    graph = watch.run(
        "Ha o CLG, determinised", lambda: ops.determinize_star(ops.compose_natively(h, clg.arcsort("ilabel")))
    )
    graph = watch.run(
        "epsilons removed", lambda: ops.remove_epsilons_local(ops.remove_symbols(graph, disambig))
    )
    graph = watch.run("minimised", ops.minimize_encoded, graph)
    graph = watch.run("self-loops added", add_self_loops, graph, trans, GraphOptions().self_loop_scale)
    watch.run("HCLG.fst written", write_fst, root / "HCLG.fst", graph, "const")
    return watch


def main(options: Benchmark) -> None:
    with tempfile.TemporaryDirectory(prefix="pyasr-graph-") as scratch:
        root = Path(scratch)
        write_language(root, options)
        seconds = ours(root, options).seconds
        print(f"{'ARPA to HCLG':28s} {'':34s} {sum(seconds.values()):7.2f} CPU s")
        programs = kaldi_programs()
        if programs is None:
            raise UserError(
                "Kaldi's programs for the comparison are not installed; run: pip install riva-asrlib-decoder"
            )
        compare(root, programs, seconds)


def compare(root: Path, programs: Path, seconds: dict[str, float]) -> None:
    at = lambda name: root / f"kaldi_{name}.fst"
    to_lg = kaldi(
        programs,
        (
            "arpa2fst",
            "--disambig-symbol=#0",
            f"--read-symbol-table={root}/lang/words.txt",
            root / "lm.arpa",
            at("G"),
        ),
        ("fsttablecompose", root / "lang/L_disambig.fst", at("G"), at("LG0")),
        ("fstdeterminizestar", "--use-log=true", at("LG0"), at("LG1")),
        ("fstminimizeencoded", at("LG1"), at("LG")),
    )
    to_hclg = kaldi(
        programs,
        ("fsttablecompose", root / "h.fst", root / "clg.fst", at("H0")),
        ("fstdeterminizestar", "--use-log=true", at("H0"), at("H1")),
        ("fstrmepslocal", at("H1"), at("H2")),
        ("fstminimizeencoded", at("H2"), at("H3")),
    )
    mine = {
        "ARPA to LG": ("ARPA -> G", "L o G -> LG"),
        "Ha o CLG to HCLG": ("Ha o CLG, determinised", "epsilons removed", "minimised"),
    }
    print(f"{'':28s}  ours CPU s  Kaldi's CPU s  ratio")
    for (name, stages), theirs in zip(mine.items(), (to_lg, to_hclg)):
        own = sum(seconds[stage] for stage in stages)
        print(f"{name:28s} {own:11.2f} {theirs:14.2f} {own / theirs:6.2f}")
    own, theirs = read_fst(root / "lang_test/G.fst"), read_fst(at("G"))
    print(f"states of G: ours {own.num_states}, Kaldi's {theirs.num_states}")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
