"""L, G, LG and HCLG of real words against Kaldi's programs, with the text of the licence, the CMU dictionary,
a trigram and a triphone tree."""

from pathlib import Path

import kaldi_binaries
import pytest
from fst_paths import best_cost, random_paths
from graph_toys import kaldi_hclg, random_probabilities, random_tree

from pyasr.hmm.graphs.decoding_graph import make_hclg
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.openfst import Fst, read_fst
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import read_dict_dir
from pyasr.lang.ngrams.arpa import write_arpa
from pyasr.lang.ngrams.train_lm import NgramOptions, read_vocabulary, train
from pyasr.lang.pronouncing.prepare_dict import DictOptions, write_dict

ROOT = Path(__file__).resolve().parents[3]
pytestmark = kaldi_binaries.needed


@pytest.fixture(scope="module")
def lang(tmp_path_factory) -> Path:
    """A language directory with a grammar from the first 60 lines of the licence. Words without pronunciation
    are dropped."""
    root = tmp_path_factory.mktemp("real")
    lines = [
        "".join(c if c.isalpha() else " " for c in line.lower())
        for line in (ROOT / "LICENSE").read_text().splitlines()[:60]
    ]
    (root / "text").write_text("".join(f"{line}\n" for line in lines if line.strip()))
    for name in ("dict", "lang", "lang_test"):
        (root / name).mkdir()
    write_dict(root / "text", DictOptions(text_ids=False, fallback="none"), root / "dict")
    write_lang(read_dict_dir(root / "dict"), "<unk>", LangOptions(), root / "lang")
    model = train([root / "text"], read_vocabulary(root / "dict/lexicon.txt"), NgramOptions(text_ids=False))
    write_arpa(root / "lm.arpa", model)
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    return root / "lang_test"


def assert_same_costs(ours: Fst, theirs: Fst, num: int, tolerance: float) -> None:
    """Random paths of each transducer are in the other at the same cost, up to `tolerance` per label."""
    for one in (ours, theirs):
        for ilabels, olabels, _ in random_paths(one, num, stop=0.5):
            close = pytest.approx(best_cost(theirs, ilabels, olabels), abs=0.002 + tolerance * len(ilabels))
            assert best_cost(ours, ilabels, olabels) == close


def test_grammar_equals_kaldi(lang, tmp_path):
    symbols = f"--read-symbol-table={lang}/words.txt"
    kaldi_binaries.run(
        "arpa2fst", "--disambig-symbol=#0", symbols, lang.parent / "lm.arpa", tmp_path / "G.fst"
    )
    ours, theirs = read_fst(lang / "G.fst"), read_fst(tmp_path / "G.fst")
    assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)
    assert_same_costs(ours, theirs, 30, 0.001)


def test_lg_equals_kaldi(lang, tmp_path):
    ours, theirs = make_lg(lang), kaldi_binaries.make_lg(lang, tmp_path)
    assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)
    assert_same_costs(ours, theirs, 30, 0.001)


def test_hclg_equals_kaldi(lang, tmp_path):
    own, topology = LangDir(lang), Topology.read(lang / "topo")
    tree = random_tree(own, topology, 3)
    trans = random_probabilities(TransitionModel.from_tree(topology, tree), 1)
    (tmp_path / "model").mkdir()
    (tmp_path / "graph").mkdir()
    tree.write(tmp_path / "model/tree")
    trans.write(tmp_path / "model/final.mdl")
    trans = TransitionModel.read(tmp_path / "model/final.mdl")
    ours = make_hclg(lang, tmp_path / "model", tmp_path / "graph")
    theirs = kaldi_hclg(kaldi_binaries.make_lg(lang, tmp_path), own, trans, tree, tmp_path)
    assert abs(theirs.num_states - ours.num_states) <= 0.01 * ours.num_states
    assert_same_costs(ours, theirs, 20, 0.001)
