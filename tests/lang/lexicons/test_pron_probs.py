"""Probabilities of pronunciations and silence: formulas calculated by hand, and costs of paths through L."""

import itertools
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from fst_paths import best_cost, composed_cost, random_paths
from toy_language import random_ngrams, write_arpa_text

from pyasr.base.errors import UserError
from pyasr.io.openfst import read_fst
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir, read_dict_dir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.lexicons.pron_counts import PronCounts
from pyasr.lang.lexicons.pron_probs import (
    PronProbOptions,
    add_probabilities,
    pron_probabilities,
    silence_probabilities,
)
from pyasr.lang.lexicons.silence_probs import read_silence_probs

ROOT = Path(__file__).resolve().parents[3]
SIL = ("<eps>", "SIL")
A, A2, B = ("a", "AH"), ("a", "EY"), ("b", "B", "IY")
UTTERANCES = [[SIL, A, SIL, B], [SIL, A2, B, SIL], [A, A], [SIL, B, SIL, A, SIL]]


def small_dict() -> DictDir:
    lexicon = Lexicon()
    for word, phones in (
        ("<unk>", "SPN"),
        ("a", "AH"),
        ("a", "EY"),
        ("b", "B IY"),
        ("bee", "B IY"),
        ("c", "S IY"),
    ):
        lexicon.add(word, tuple(phones.split()))
    return DictDir(lexicon, [("SIL",), ("SPN",)], [("AH",), ("B",), ("EY",), ("IY",), ("S",)], "SIL", [])


@pytest.fixture(scope="module")
def counts():
    found = PronCounts()
    for utterance in UTTERANCES:
        found.add(utterance)
    return found


@pytest.fixture(scope="module")
def probable(counts):
    return add_probabilities(small_dict(), counts, PronProbOptions())


def test_counts_equal_hand_calculation(counts):
    """Twelve positions, three in each utterance, each counted to its left and to its right."""
    silences = {token: tuple(vars(found).values()) for token, found in counts.silences.items()}
    assert silences == {
        ("<s>",): (0, 0, 3, 1),
        A: (2, 2, 2, 2),
        A2: (1, 0, 0, 1),
        B: (2, 1, 2, 1),
        ("</s>",): (2, 2, 0, 0),
    }
    assert counts.bigrams == Counter(
        {
            (("<s>",), A): 2,
            (A, B): 1,
            (B, ("</s>",)): 2,
            (("<s>",), A2): 1,
            (A2, B): 1,
            (A, A): 1,
            (A, ("</s>",)): 2,
            (("<s>",), B): 1,
            (B, A): 1,
        }
    )


def test_pronunciation_probabilities_equal_hand_calculation(counts):
    """a: AH 4 + 1, EY 1 + 1; the best gets 1. Without normalisation, they sum to one."""
    best = pron_probabilities(small_dict().lexicon, counts.prons, PronProbOptions()).entries
    assert best["a"] == {("AH",): 1.0, ("EY",): pytest.approx(2 / 5)} and best["c"] == {("S", "IY"): 1.0}
    summed = pron_probabilities(
        small_dict().lexicon, counts.prons, PronProbOptions(max_normalize=False)
    ).entries
    assert summed["a"] == {("AH",): pytest.approx(5 / 7), ("EY",): pytest.approx(2 / 7)}
    assert all(sum(variants.values()) == pytest.approx(1.0) for variants in summed.values())
    assert all(max(variants.values()) == 1.0 for variants in best.values())


def test_silence_probabilities_equal_hand_calculation(probable):
    """Silence at 7 of 12 positions. P(s | a AH) = (2 + 2 * 7/12) / (4 + 2); similarly P(s | v) of b, a EY
    and <s>; F follows from them."""
    probs, overall = probable.silence_probs, 7 / 12
    after = {
        A: (2 + 2 * overall) / 6,
        A2: (0 + 2 * overall) / 3,
        B: (2 + 2 * overall) / 5,
        "begin": (3 + 2 * overall) / 6,
    }
    assert probs.overall == pytest.approx(overall) and probs.begin == pytest.approx(after["begin"])
    assert all(probs.words[token].after == pytest.approx(after[token]) for token in (A, A2, B))
    expected = {
        A: 2 * after["begin"] + after[A] + after[B],
        B: after[A] + after[A2] + after["begin"],
        "end": 2 * after[B] + 2 * after[A],
    }
    assert probs.words[A].before_silence == pytest.approx((2 + 2) / (expected[A] + 2))
    assert probs.words[A].before_none == pytest.approx((2 + 2) / (4 - expected[A] + 2))
    assert probs.words[B].before_silence == pytest.approx((2 + 2) / (expected[B] + 2))
    assert (probs.end_silence, probs.end_none) == pytest.approx(
        ((2 + 2) / (expected["end"] + 2), (2 + 2) / (4 - expected["end"] + 2))
    )


def test_unseen_words_have_overall_probability_without_correction(probable):
    unseen = probable.silence_probs.words["c", "S", "IY"]
    assert unseen.after == pytest.approx(7 / 12) and (unseen.before_silence, unseen.before_none) == (1.0, 1.0)


def test_probabilities_are_bounded_away_from_0_and_1():
    found = PronCounts()
    for _ in range(1000):
        found.add([A, SIL, B])
    probs = silence_probabilities([A, B], found, PronProbOptions())
    assert probs.words[A].after == 0.99 and probs.words[B].after == 0.01 and probs.begin == 0.01
    assert probs.words[B].before_none == pytest.approx(2 / 12)


def test_alignments_without_silence_give_readable_dictionary(tmp_path):
    found = PronCounts()
    for _ in range(1000):
        found.add([A, B])
    add_probabilities(small_dict(), found, PronProbOptions()).write(tmp_path)
    again = read_dict_dir(tmp_path).silence_probs
    assert 0.0 < again.overall < 1e-5 and again.begin == 0.01
    assert {silence.after for silence in again.words.values()} == {0.01}


def test_directory_survives_round_trip(probable, tmp_path):
    probable.write(tmp_path)
    again = read_dict_dir(tmp_path)
    assert again.lexicon.entries["a"] == pytest.approx(probable.lexicon.entries["a"])
    for token, silence in probable.silence_probs.words.items():
        assert tuple(vars(again.silence_probs.words[token]).values()) == pytest.approx(
            tuple(vars(silence).values()), rel=1e-5
        )
    assert (tmp_path / "silprob.txt").read_text().split()[::2] == ["<s>", "</s>_s", "</s>_n", "overall"]
    assert (tmp_path / "lexiconp_silprob.txt").read_text().splitlines()[1].split()[::5] == ["a", "AH"]


@pytest.mark.parametrize("name, line", [("lexicon.txt", "zoo Z UW"), ("lexiconp.txt", "zoo 1 Z UW")])
def test_word_in_only_one_lexicon_is_refused(probable, tmp_path, name, line):
    probable.write(tmp_path)
    with open(tmp_path / name, "a") as f:
        f.write(f"{line}\n")
    with pytest.raises(
        UserError,
        match=f"{name} has 'zoo Z UW', but lexiconp_silprob.txt does not have it; write it into both",
    ):
        read_dict_dir(tmp_path)


@pytest.fixture(scope="module")
def lang(probable, tmp_path_factory):
    out = tmp_path_factory.mktemp("silprob") / "lang"
    out.mkdir()
    write_lang(probable, "<unk>", LangOptions(), out)
    return LangDir(out)


def all_ways(words: list[str], probable: DictDir):
    """(phones, cost) of every pronunciation of `words` with or without silence at each position, by the
    formulas."""
    probs, prons = probable.silence_probs, [probable.lexicon.entries[word].items() for word in words]
    for said in itertools.product(*prons):
        for silences in itertools.product([True, False], repeat=len(words) + 1):
            phones, cost, after = [], 0.0, probs.begin
            for (variant, p), word, silent in zip(said, words, silences):
                around = probs.words[(word, *variant)]
                place = after * around.before_silence if silent else (1 - after) * around.before_none
                cost -= math.log(p) + math.log(place)
                phones += ["SIL"] * silent + [
                    phone + position for phone, position in zip(variant, positions(len(variant)))
                ]
                after = around.after
            cost -= math.log(after * probs.end_silence if silences[-1] else (1 - after) * probs.end_none)
            yield (*phones, *["SIL"] * silences[-1]), cost


def positions(length: int) -> list[str]:
    return ["_S"] if length == 1 else ["_B", *["_I"] * (length - 2), "_E"]


@pytest.mark.parametrize("words", [["a"], ["b", "a"], ["c", "a", "bee"], ["a", "a", "<unk>"]])
def test_costs_of_all_paths_equal_formula(lang, probable, words):
    fst, ids = read_fst(lang.lexicon_fst), [lang.words[word] for word in words]
    ways = list(all_ways(words, probable))
    for phones, cost in ways:
        assert best_cost(fst, [lang.phones[phone] for phone in phones], ids) == pytest.approx(cost, abs=1e-4)
    assert best_cost(fst, None, ids) == pytest.approx(min(cost for _, cost in ways), abs=1e-4)
    assert best_cost(fst, [lang.phones["SIL"]] * 2, ids) == math.inf


def test_disambiguated_lexicon_has_same_costs(lang):
    plain, marked = read_fst(lang.lexicon_fst), read_fst(lang.lexicon_disambig_fst)
    num_homophones, num_loops = 2, 2
    assert plain.num_states + num_homophones == marked.num_states
    assert plain.num_arcs + num_homophones + num_loops == marked.num_arcs
    for ilabels, olabels, _ in random_paths(plain, 30, stop=0.3):
        real = read_without(marked, lang.disambig_phones)
        assert best_cost(real, ilabels, olabels) == pytest.approx(
            best_cost(plain, ilabels, olabels), abs=1e-4
        )


def read_without(fst, symbols):
    """The transducer with epsilon for disambiguation symbols, without the #0 loops."""
    loops = fst.sources == fst.nextstates
    ilabels = np.where(np.isin(fst.ilabels, symbols), 0, fst.ilabels)
    return fst.replaced(ilabels=ilabels.astype(np.int32)).keep_arcs(~loops)


def test_grammar_composes_with_lexicon(lang, tmp_path):
    """LG can be determinised and has the costs of L and G, and the language directory is valid."""
    assert find_problems(lang.path) == []
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, ["a", "b", "bee", "c", "<unk>"], (0, 20, 20)))
    (tmp_path / "lang").mkdir()
    make_grammar(lang.path, tmp_path / "lm.arpa", tmp_path / "lang")
    lg = make_lg(tmp_path / "lang")
    lexicon = read_fst(lang.lexicon_disambig_fst)
    grammar = read_fst(tmp_path / "lang/G.fst")
    ordered = lg.arcsort("ilabel")
    assert (np.diff(ordered.ilabels)[np.diff(ordered.sources) == 0] > 0).all()
    for phones, words, _ in random_paths(lg, 20, stop=0.5):
        expected = composed_cost(lexicon, grammar, phones, words)
        assert best_cost(lg, phones, words) == pytest.approx(expected, abs=0.002 + 0.001 * len(phones))


def test_steps_from_counts_to_language_directory(counts, tmp_path):
    for name in ("dict", "prons"):
        (tmp_path / name).mkdir()
    small_dict().write(tmp_path / "dict")
    counts.write(tmp_path / "prons")
    for words in (
        ["dict_dir_add_pronprobs.py", "dict", "prons", "dict_prons"],
        ["prepare_lang.py", "dict_prons", "<unk>", "lang"],
    ):
        done = subprocess.run(
            [sys.executable, ROOT / "utils" / words[0], *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (
        find_problems(tmp_path / "lang") == []
        and len(read_silence_probs(tmp_path / "dict_prons")[1].words) == 6
    )


def test_counts_of_other_dictionary_are_refused(counts):
    content = small_dict()
    del content.lexicon.entries["b"]
    with pytest.raises(UserError, match="'b B IY' was counted but is not in the lexicon"):
        add_probabilities(content, counts, PronProbOptions())


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("lexiconp_silprob.txt", "a 1 ", "a x ", r"lexiconp_silprob.txt:2: expected 'WORD PRON_PROB"),
        (
            "lexiconp_silprob.txt",
            "a 1 ",
            "a 1.5 ",
            r"lexiconp_silprob.txt:2: the probabilities of 'a' must be above 0",
        ),
        ("lexiconp_silprob.txt", " AH\n", "\n", r"lexiconp_silprob.txt:2: expected"),
        ("silprob.txt", "</s>_n", "</s>_m", "silprob.txt: expected the four lines"),
        ("silprob.txt", "overall 0", "overall x", "silprob.txt:4: expected a name and a number"),
        ("silprob.txt", "<s> 0.", "<s> 1.", "silprob.txt: all numbers must be above 0, that of <s> below 1"),
    ],
)
def test_damaged_probabilities_are_refused(probable, tmp_path, name, old, new, message):
    probable.write(tmp_path)
    path = tmp_path / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        read_dict_dir(tmp_path)
