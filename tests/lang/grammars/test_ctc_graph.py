"""TLG against enumeration: every alignment occurs once, and all words have their costs."""

import itertools
import re
import shutil

import numpy as np
import pytest
from ctc_toys import all_best, all_sums, random_log_posteriors
from toy_language import random_ngrams, write_arpa_text, write_toy_lang

from pyasr.base.errors import UserError
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.nbest import n_best
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.io.openfst import Fst
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.grammars.ctc_graph import ctc_graph, make_tlg, unit_tid2pdf
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.subword_lang import spell, write_subword_lang
from pyasr.lang.lang_dirs.subwords import SubwordOptions, train_subwords
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.symbols import SymbolTable

UNITS = ["<blk>", "<unk>", "\u2581a", "b", "\u2581"]
SPELLINGS = {"a": [(2,)], "ab": [(2, 3)], "abb": [(2, 3, 3)], "b": [(4, 3)], "aa": [(2, 2), (2, 4)]}


def test_every_alignment_of_every_path_is_one_path():
    """The sum over all paths of TLG, computed with matrices, equals that over LG's paths and the alignments
    of their units. LG has epsilons."""
    arcs = [
        (0, 1, 2, 1, 0.1),
        (0, 2, 3, 2, 0.7),
        (1, 2, 2, 0, 0.3),
        (1, 2, 0, 0, 0.5),
        (2, 3, 0, 0, 0.2),
        (2, 0, 3, 3, 0.4),
        (3, 2, 2, 0, 0.6),
        (1, 3, 3, 0, 0.8),
    ]
    sources, targets, ilabels, olabels, weights = zip(*arcs)
    lg = Fst.from_arcs(4, 0, sources, ilabels, olabels, weights, targets, {2: 0.1, 3: 0.9})
    table = random_log_posteriors(0, 5, 4)
    sums, expected = all_sums(table), []

    def walk(state, units, cost):
        if np.isfinite(lg.finals[state]):
            expected.append(sums.get(units, -np.inf) - cost - float(lg.finals[state]))
        for source, target, ilabel, _, weight in arcs:
            if source == state and len(units) + (ilabel > 0) <= 5:
                walk(target, units + ((ilabel - 1,) if ilabel else ()), cost + weight)

    walk(0, (), 0.0)
    assert total(ctc_graph(lg), table) == pytest.approx(np.logaddexp.reduce(expected), abs=1e-6)


def total(graph: Fst, table: np.ndarray) -> float:
    """ln of the sum over all paths through the rows of `table`."""
    silent, here = graph.ilabels == 0, np.zeros(graph.num_states)
    step = np.zeros((len(table), graph.num_states, graph.num_states))
    epsilon = np.zeros(step.shape[1:])
    np.add.at(epsilon, (graph.sources[silent], graph.nextstates[silent]), np.exp(-graph.weights[silent]))
    for t, row in enumerate(table.astype(np.float64)):
        p = np.exp(row[graph.ilabels[~silent] - 1] - graph.weights[~silent])
        np.add.at(step[t], (graph.sources[~silent], graph.nextstates[~silent]), p)
    closure = np.linalg.inv(np.eye(graph.num_states) - epsilon)
    here[graph.start] = 1.0
    for matrix in step:
        here = here @ closure @ matrix
    return float(np.log(here @ closure @ np.exp(-graph.finals)))


@pytest.fixture(scope="module")
def lang(tmp_path_factory):
    root = tmp_path_factory.mktemp("ctc")
    lexicon = Lexicon()
    for word, spellings in SPELLINGS.items():
        for spelling in spellings:
            lexicon.add(word, tuple(UNITS[unit] for unit in spelling))
    for name in ("lang", "lang_test", "graph"):
        (root / name).mkdir()
    write_subword_lang(lexicon, UNITS, root / "lang")
    write_arpa_text(root / "lm.arpa", random_ngrams(5, sorted(SPELLINGS), (0, 14, 14)))
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    return root


def every_text(
    log_posteriors, grammar: BackoffLm, words: SymbolTable
) -> dict[tuple[str, ...], tuple[float, float]]:
    """{words: (cost of the grammar, cost of the best alignment of the best spelling)} by enumeration."""
    best, found = all_best(log_posteriors), {}
    for length in range(len(log_posteriors) + 1):
        for text in itertools.product(SPELLINGS, repeat=length):
            units = [sum(choice, ()) for choice in itertools.product(*(SPELLINGS[word] for word in text))]
            score = max(best.get(one, -np.inf) for one in units)
            if score > -np.inf:
                found[text] = (grammar.cost([words[word] for word in text]), -score)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_lattice_words_equal_enumeration(lang, seed):
    graph = make_tlg(lang / "lang_test", lang / "graph")
    words = SymbolTable.read(lang / "graph/words.txt")
    log_posteriors = random_log_posteriors(seed, 4, len(UNITS))
    options = DecodeOptions(beam=1000.0, lattice_beam=1000.0, max_active=10**6, acoustic_scale=0.5)
    raw = Decoder(graph, unit_tid2pdf(len(UNITS)), options).decode(log_posteriors)
    lattice, _ = determinize(raw, 1000.0, 0.5)
    expected = every_text(log_posteriors, BackoffLm.read(lang / "lang_test", words, best=True), words)
    paths = n_best(lattice, 10**6, 0.5)
    assert [len(path.tids) for path in paths] == [4] * len(expected)
    found = {
        tuple(words.symbol(word) for word in path.words): (path.graph_cost, path.acoustic_cost)
        for path in paths
    }
    assert found.keys() == expected.keys()
    for text, costs in expected.items():
        assert found[text] == pytest.approx(costs, abs=0.02)
    best = min(expected, key=lambda text: expected[text][0] + 0.5 * expected[text][1])
    assert tuple(words.symbol(word) for word in paths[0].words) == best


def test_equal_units_need_blank_between(lang):
    graph = make_tlg(lang / "lang_test", lang / "graph")
    words = SymbolTable.read(lang / "graph/words.txt")
    decoder = Decoder(graph, unit_tid2pdf(len(UNITS)), DecodeOptions(acoustic_scale=1.0))
    for path, text in (
        ([2, 3, 3, 3], "ab"),
        ([2, 3, 0, 3], "abb"),
        ([2, 2, 3, 0, 0, 3, 3, 0], "abb"),
        ([2, 2, 0, 0], "a"),
        ([0, 4, 0, 3], "b"),
    ):
        log_posteriors = np.log(0.95 * np.eye(len(UNITS))[path] + 0.01) * 20
        lattice = decoder.decode(log_posteriors.astype(np.float32))
        best = n_best(determinize(lattice, 5.0, 1.0)[0], 1, 1.0)[0]
        assert [words.symbol(word) for word in best.words] == text.split() and (
            best.tids - 1
        ).tolist() == path


def test_lexicon_of_subword_units(tmp_path):
    subwords = train_subwords(["the cat sat on the mat", "a bat and the rat"] * 3, SubwordOptions(18), "text")
    lexicon, unspelled = spell(["cat", "the", "zebra", "cat"], subwords, 3)
    assert unspelled == ["zebra"] and list(lexicon.entries) == ["cat", "the"]
    assert all(
        len(spellings) <= 3 and set(spellings.values()) == {1.0} for spellings in lexicon.entries.values()
    )
    assert max(map(len, lexicon.entries.values())) > 1
    assert ["".join(spelling) for spelling in lexicon.pronunciations("cat")] == ["\u2581cat"] * len(
        lexicon.pronunciations("cat")
    )
    write_subword_lang(lexicon, subwords.units, tmp_path)
    phones = SymbolTable.read(tmp_path / "phones.txt")
    assert [phones[unit] for unit in subwords.units] == list(range(1, len(subwords) + 1))


@pytest.mark.parametrize("name, change, message", [
    ("phones/disambig.int", lambda s: "1\n" + s, "disambig.int:1: differs from disambig.txt"),
    ("phones/disambig.txt", lambda s: s.replace("#0", "#9"),
     "disambig.txt: no #0; the grammar's back-off arcs need it"),
    ("phones/align_lexicon.txt", None,
     "align_lexicon.txt: missing; create the directory again with utils/prepare_ctc_lang.py"),
    ("phones/align_lexicon.txt", lambda s: s.replace("abb abb", "abb abb c"),
     "align_lexicon.txt: 1 phone.s. are not in phones.txt, such as c"),
    ("words.txt", lambda s: s + "new 9\n", "L.fst: 1 word.s. have no pronunciation, such as 'new'"),
    ("L_disambig.fst", None,
     "L_disambig.fst: missing; create the directory again with utils/prepare_ctc_lang.py"),
])  # fmt: skip
def test_validator_accepts_lang_dirs_of_units(tmp_path, lang, name, change, message):
    assert find_problems(lang / "lang") == find_problems(lang / "lang_test") == []
    path = shutil.copytree(lang / "lang", tmp_path / "lang") / name
    path.unlink() if change is None else path.write_text(change(path.read_text()))
    assert any(re.search(message, problem) for problem in find_problems(tmp_path / "lang")), find_problems(
        tmp_path / "lang"
    )


def test_other_lang_dirs_are_refused(tmp_path, lang):
    with pytest.raises(
        UserError,
        match="phones.txt: <blk> is not number 1; give a lang directory of utils/prepare_ctc_lang.py",
    ):
        make_tlg(write_toy_lang(tmp_path / "lang"), tmp_path)
    with pytest.raises(UserError, match="none of the words can be spelled"):
        write_subword_lang(Lexicon(), UNITS, tmp_path)
    lexicon = Lexicon({"a": {("#0",): 1.0}})
    with pytest.raises(UserError, match="has the unit '#0', which is a disambiguation symbol"):
        write_subword_lang(lexicon, [*UNITS, "#0"], tmp_path)
