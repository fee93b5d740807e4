"""Grammars given as FSTs: sentence costs against kaldifst's compiler, composition and shortest paths; error
messages."""

import kaldifst
import numpy as np
import pytest
from fst_paths import best_cost, random_paths
from steps_here import run_here
from toy_language import random_ngrams, write_arpa_text, write_toy_lang

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.hmm.graphs.decoding_graph import make_hclg
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.openfst import Fst, read_fst, write_fst
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.grammars.grammar_fst import is_grammar_fst, read_grammar_fst
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.symbols import SymbolTable

WORDS = ["call", "ann", "bob", "please", "1", "2.5"]
TABLE = SymbolTable.of(["<eps>", *WORDS, "#0", "<s>", "</s>"])
LOOP = "".join(f"0 0 {word} 1.5\n" for word in WORDS) + "0 0.25\n"
COMMANDS = "7 1 call\n1 2 ann 0.7\n1 2 bob 0.7\n2 7 <eps> 0.5\n2 9 please\n2 0.1\n9\n"


def grammar_of(text: str, acceptor: bool | None = None) -> Fst:
    return read_grammar_fst(text.encode(), "g.txt", TABLE, acceptor)


def cost(fst: Fst, words: list[str], said: list[str] | None = None) -> float:
    """Cost of the sentence `words` without cost for #0; `said` are the output words."""
    free = fst.replaced(ilabels=np.where(fst.ilabels == TABLE["#0"], 0, fst.ilabels))
    return best_cost(
        free, [TABLE[word] for word in words], [TABLE[word] for word in (words if said is None else said)]
    )


def cost_by_kaldifst(native, labels: list[int]) -> float:
    """Cost of the best path of `native` with these input labels; inf if there is none."""
    sentence = kaldifst.make_linear_acceptor(labels)
    native = kaldifst.StdVectorFst(native)
    kaldifst.arcsort(native, "ilabel")
    path = kaldifst.shortest_path(kaldifst.compose(sentence, native))
    found = kaldifst.get_linear_symbol_sequence(path)
    return found[-1].value if found[0] else float("inf")


def random_text(rng, acceptor: bool, num_states: int = 6, num_arcs: int = 16) -> str:
    """Lines with ids. Epsilon arcs lead to higher states, others to any state. No state has two arcs with the
    same label."""
    arcs = {
        (int(source), int(label)): int(target)
        for source, label, target in rng.integers(0, (num_states, 5, num_states), (num_arcs, 3))
    }
    arcs = {(0, 1): 1} | {
        (source, label): target for (source, label), target in arcs.items() if label or source < target
    }
    outputs = rng.integers(0, 5, len(arcs))
    lines = [
        f"{source + 3} {target + 3} {label} {'' if acceptor else output} {rng.uniform(0, 3):.3f}"
        for ((source, label), target), output in zip(arcs.items(), outputs)
    ]
    return (
        "\n".join(
            [
                *lines,
                *(
                    f"{state + 3} {rng.uniform(0, 1):.3f}"
                    for state in rng.choice(num_states, 2, replace=False)
                ),
            ]
        )
        + "\n"
    )


@pytest.mark.parametrize("acceptor", [True, False])
def test_sentence_costs_equal_kaldifst(acceptor):
    """Text with ids, of random grammars."""
    rng, compared = np.random.default_rng(0), 0
    while compared < 100:
        text = random_text(rng, acceptor)
        native = kaldifst.compile(text, acceptor=acceptor)
        try:
            fst = grammar_of(text)
        except UserError as error:
            assert (
                "no final state" in str(error)
                and cost_by_kaldifst(native, [1]) == cost_by_kaldifst(native, []) == np.inf
            )
            continue
        for _ in range(5):
            labels = rng.integers(1, 5, rng.integers(0, 4)).tolist()
            free = fst.replaced(ilabels=np.where(fst.ilabels == TABLE["#0"], 0, fst.ilabels))
            assert best_cost(free, labels) == pytest.approx(cost_by_kaldifst(native, labels), abs=1e-4)
            compared += np.isfinite(best_cost(free, labels))


def test_word_loops_and_commands():
    loop, commands = grammar_of(LOOP), grammar_of(COMMANDS)
    assert loop.num_states == 1 and cost(loop, ["ann", "2.5", "ann"]) == pytest.approx(4.75)
    assert cost(commands, ["call", "bob"]) == pytest.approx(0.8) and cost(
        commands, ["call", "bob", "call", "ann"]
    ) == pytest.approx(2.0)
    assert (
        cost(commands, ["call", "ann", "please"]) == pytest.approx(0.7) and cost(commands, ["call"]) == np.inf
    )
    assert (commands.ilabels > 0).all() and (commands.ilabels == TABLE["#0"]).sum() == 1
    assert [sorted(labels) for labels in np.split(commands.ilabels, commands.arc_offsets[1:-1])] == [
        list(labels) for labels in np.split(commands.ilabels, commands.arc_offsets[1:-1])
    ]


SAME = {  # meaning of all texts: 'one ann' costs 1 and is written 'bob'
    "words": "0 1 ann bob 1\n1\n",
    "ids": "0 1 2 3 1\n1\n",
    "tabs and CRLF": "0\t1\tann\tbob\t1\r\n1\t0\r\n",
    "no line break at the end": "0 1 ann bob 1\n1",
    "empty lines": "\n0 1 ann bob 1\n\n1\n\n",
    "byte order mark": "\ufeff0 1 ann bob 1\n1\n",
    "other numbers": "999999999 5 ann bob 1e0\n5 0.0\n",
    "what is not final": "0 1 ann bob 1\n1\n0 Infinity\n",
    "a state without an end": "0 1 ann bob 1\n0 2 ann bob 3\n1\n",
    "#0 as an output": "0 1 ann bob 1\n1 2 #0 #0\n2 0\n",
}


@pytest.mark.parametrize("name", sorted(SAME))
def test_text_variants_are_recognised(name):
    assert is_grammar_fst(SAME[name].encode().removeprefix(b"\xef\xbb\xbf"))
    assert cost(grammar_of(SAME[name]), ["ann"], ["bob"]) == 1


@pytest.mark.parametrize(
    "text, acceptor, words, said, expected",
    [
        ("0 1 ann 2\n1\n", None, ["ann"], ["ann"], 2.0),  # 2 is not a word
        ("0 1 1 1\n1\n", None, ["1"], ["1"], 0.0),  # equal labels
        ("0 1 ann bob\n1\n", None, ["ann"], ["bob"], 0.0),
        ("0 1 ann 2.5\n1\n", True, ["ann"], ["ann"], 2.5),
        ("0 1 ann 2.5\n1\n", False, ["ann"], ["2.5"], 0.0),
        ("0 1 2 3\n1\n", True, ["ann"], ["ann"], 3.0),
        ("0 1 2 3\n1\n", False, ["ann"], ["bob"], 0.0),
        ("0 1 2 7.5\n1\n", None, ["ann"], ["ann"], 7.5),
    ],
)
def test_four_column_lines_are_transducer_arcs(text, acceptor, words, said, expected):
    assert cost(grammar_of(text, acceptor), words, said) == pytest.approx(expected)


BAD = {  # text: message
    "": "g.txt: no arcs; give lines 'FROM TO WORD [COST]' or 'STATE [COST]'",
    "0 0.5\n": "g.txt: no arcs; give lines",
    "0 1 ann 2.5\n1\n": "g.txt: the fourth column may be labels or costs; give --acceptor true for",
    "0 1 carl\n1 2 dora\n2\n": (
        "g.txt:1: 2 label(s) are not in words.txt: carl dora; add the words to the dictionary, or remove them"
    ),
    "0 1 ann\n1 2 Bob\n2\n": (
        "g.txt:2: 1 label(s) are not in words.txt: Bob; add the words to the "
        "dictionary, or remove them; words.txt has bob: change"
    ),
    "0 1 77 77 1\n1\n": "g.txt:1: 1 label(s) are not in words.txt: 77;",
    "0 1 ann bob 0.5 x\n1\n": "g.txt:1: 6 columns, expected",
    "0 1 ann bob 0.5\n0 1 ann\n1\n": (
        "g.txt:2: 3 columns, expected 'FROM TO INPUT OUTPUT [COST]' or 'STATE [COST]'"
    ),
    "0 1 ann x\n1 0 bob\n1\n": "g.txt:1: 'x' is not a cost; give -ln of a probability",
    "0 1 ann bob nan\n1\n": "g.txt:1: 'nan' is not a cost",
    "0 1 ann bob inf\n1\n": (
        "g.txt:1: a cost of inf is not between -228 and 228, that of 1e-99; remove the arc"
    ),
    "0 1 ann bob 1e400\n1\n": "g.txt:1: a cost of inf is not between",
    "0 1 ann bob -300\n1\n": "g.txt:1: a cost of -300 is not between",
    "0 1 ann bob 0.5\n1 -Infinity\n": "g.txt: a final cost of -inf is not between",
    "0 one ann\n1\n": "g.txt:1: 'one' is not a state number",
    "0 -1 ann bob 1\n1\n": "g.txt:1: '-1' is not a state number",
    "0 1 ann bob 0.5\n1\n1 3\n": "g.txt:3: state 1 is also final on an earlier line; remove one",
    "0 1 ann bob 0.5\n": "g.txt: no final state can be reached from the start",
    "0 1 ann\n2 3 bob\n3\n": "g.txt: no final state can be reached from the start",
    "0 1 <s>\n1 2 ann\n2\n": (
        "g.txt:1: '<s>' is reserved and cannot be a word (words.txt uses it for the "
        "beginning of a sentence); sentences begin at"
    ),
    "0 1 ann\n1 2 </s>\n2\n": "g.txt:2: '</s>' is reserved",
    "0 1 ann\n1 2 <eps>\n2 1 <eps>\n2\n": (
        "g.txt: 2 arc(s) without an input word are in a cycle or lead into one; remove epsilons"
    ),
    "0 1 ann\n1 1 #0 0.5\n1\n": "g.txt: 1 arc(s) without an input word are in a cycle",
    "0 1 ann\n1 1 <eps> -0.5\n1\n": "g.txt: 1 arc(s) without an input word are in a cycle",
    "0 1 ann 0.1\n0 2 ann 0.2\n1 1 ann 0.1\n2 2 ann 0.3\n1\n2\n": (
        "g.txt: it cannot be determinised: 1 arcs "
        "have the same word as another arc of their state, the first of them ann; give a state"
    ),
    "0 1 ann ann 0\n0 2 ann bob 0\n1 1 ann ann 0\n2 2 ann bob 0\n1\n2\n": "g.txt: it cannot be determinised",
}


@pytest.mark.parametrize("text", sorted(BAD))
def test_invalid_grammars_are_refused(text):
    with pytest.raises(UserError) as error:
        grammar_of(text)
    assert str(error.value).startswith(BAD[text])


def test_equivalent_paths_for_a_word_are_accepted():
    assert cost(grammar_of("0 1 call 1\n0 2 call 2\n1 3 ann\n2 3 bob\n3\n"), ["call", "bob"]) == 2


@pytest.fixture(scope="module")
def lang(tmp_path_factory):
    return write_toy_lang(tmp_path_factory.mktemp("lang") / "lang", num_words=6, num_phones=4)


@pytest.mark.parametrize("kind", ["vector", "const"])
@pytest.mark.parametrize("keeps_symbols", [True, False])
def test_binary_files_with_and_without_symbol_tables(kind, keeps_symbols, lang, tmp_path):
    """With embedded symbol tables that number words differently, or with the ids of words.txt."""
    words = LangDir(lang).words
    own = {"<eps>": 0, "w3": 1, "w1": 2} if keeps_symbols else words.ids
    symbols = kaldifst.SymbolTable()
    for symbol, number in own.items():
        symbols.add_symbol(symbol, number)
    text = "0 1 w1 w3 0.5\n1 0 w3 w1 0.25\n1 1\n"
    native = kaldifst.compile(
        text,
        isymbols=symbols,
        osymbols=symbols,
        keep_isymbols=keeps_symbols,
        keep_osymbols=keeps_symbols,
        fst_type=kind,
    )
    assert native.write(str(tmp_path / "g.fst"))
    (tmp_path / "out").mkdir()
    make_grammar(lang, tmp_path / "g.fst", tmp_path / "out")
    (tmp_path / "g.txt").write_text(text)
    (tmp_path / "same").mkdir()
    make_grammar(lang, tmp_path / "g.txt", tmp_path / "same")
    assert (tmp_path / "out/G.fst").read_bytes() == (tmp_path / "same/G.fst").read_bytes()
    assert read_fst(tmp_path / "out/G.fst").ilabels.tolist() == [words["w1"], words["w3"]]


def test_invalid_binary_files_are_refused(lang, tmp_path):
    def messages(fst: Fst, acceptor=None) -> str:
        write_fst(tmp_path / "g.fst", fst)
        with pytest.raises(UserError) as error:
            make_grammar(lang, tmp_path / "g.fst", tmp_path, acceptor)
        return str(error.value).removeprefix(f"{tmp_path}/")

    def loop(label=1, weight=0.0, final=0.0) -> Fst:
        return Fst.from_arcs(1, 0, [0], [label], [label], [weight], [0], {0: final})

    assert messages(loop(label=99)).startswith("g.fst: 1 label(s) are not in words.txt: 99;")
    assert messages(loop(weight=np.inf)).startswith(
        "g.fst: an arc from state 0: a cost of inf is not between"
    )
    assert messages(loop(final=np.inf)).startswith("g.fst: no final state can be reached")
    assert messages(loop(label=0)).startswith("g.fst: 1 arc(s) without an input word are in a cycle")
    assert messages(Fst.from_arcs(0, -1, [], [], [], [], [])).startswith("g.fst: the grammar is empty")
    assert messages(loop(), acceptor=True).startswith(
        f"--acceptor cannot be used with {tmp_path}/g.fst, a binary FST"
    )


def test_arpa_file_starting_with_numbers_is_recognised(lang, tmp_path):
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, ["w1", "w2"]))
    (tmp_path / "lm.arpa").write_text("2024 10 w1\n" + (tmp_path / "lm.arpa").read_text())
    run_here("make_grammar.py", lang, tmp_path / "lm.arpa", tmp_path / "out", folder="utils")


def test_other_files_are_refused_without_output(lang, tmp_path):
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, ["w1", "w2"]))
    (tmp_path / "notes").write_text("a grammar\n")
    (tmp_path / "lm.klm").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n" + bytes(40))
    for words, message in (
        (
            (lang, tmp_path / "lm.klm", tmp_path / "out"),
            "lm.klm: binary KenLM models cannot be read; give the ARPA",
        ),
        (
            (lang, tmp_path / "notes", tmp_path / "out"),
            "notes:1: neither a .data. line, as in ARPA files, nor an arc",
        ),
        (
            ("--acceptor", "true", lang, tmp_path / "lm.arpa", tmp_path / "out"),
            "--acceptor cannot be used with .*lm.arpa, which is not an FST",
        ),
    ):
        with pytest.raises(UserError, match=message):
            run_here("make_grammar.py", *words, folder="utils")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"0 0 w{n}\n" for n in range(6)) + "0\n",
        "0 1 w0\n1 2 w1 0.5\n2 3 w2\n3 4 w0\n4\n",
        "0 1 w0\n1 0 <eps> 0.7\n1 2 w4 0.7\n0 2 w5 2\n2\n",
    ],
    ids=["loop", "one sentence", "with an epsilon"],
)
def test_decoding_with_grammar_gives_its_sentences(text, lang, tmp_path):
    """Recognised words are always a sentence of the grammar. The graph has all sentences at the same costs
    except for those of the HMMs."""
    (tmp_path / "g.txt").write_text(text)
    run_here("make_grammar.py", lang, tmp_path / "g.txt", tmp_path / "lang", folder="utils")
    assert find_problems(tmp_path / "lang") == []
    tables, topology = LangDir(tmp_path / "lang"), Topology.read(lang / "topo")
    tree = monophone_tree(tables.sets, {phone: topology.num_pdf_classes(phone) for phone in topology.phones})
    trans = TransitionModel.from_tree(topology, tree)
    tree.write(tmp_path / "tree")
    trans.write(tmp_path / "final.mdl")
    (tmp_path / "graph").mkdir()
    graph = make_hclg(tmp_path / "lang", tmp_path, tmp_path / "graph")
    grammar = read_fst(tmp_path / "lang/G.fst")
    free = grammar.replaced(ilabels=np.where(grammar.ilabels == tables.words["#0"], 0, grammar.ilabels))
    assert np.isfinite(graph.weights).all()
    for _, olabels, _ in random_paths(graph, 20):
        assert np.isfinite(best_cost(free, olabels))
    decoder = Decoder(graph, trans.tid2pdf, DecodeOptions(beam=1000.0, max_active=10**6, lattice_beam=2.0))
    for seed in range(3):
        lattice = decoder.decode(-15 * np.random.default_rng(seed).random((60, trans.num_pdfs)))
        words = best_path(lattice, 1.0).words
        assert np.isfinite(best_cost(free, words, words))
