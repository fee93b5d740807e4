"""Greedy and prefix beam search against sums over all alignments, and against rescoring of everything with
the language model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ctc_toys import all_best, all_sums, random_log_posteriors
from toy_language import random_ngrams, sentence_log10, write_arpa_text

from pyasr.base.errors import UserError
from pyasr.decode.ctc.ctc_hypotheses import greedy
from pyasr.decode.ctc.ctc_prefix import PrefixDecoder, PrefixOptions
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.lang_dirs.subwords import words_of
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

UNITS = ["<blk>", "<unk>", "\u2581a", "b", "\u2581"]
WORDS = ["a", "ab", "b", "bb"]
EVERYTHING = dict(num_prefixes=10**6, unit_beam=1e6, num_best=10**6)


def posteriors(seed: int, num_frames: int = 5) -> np.ndarray:
    return random_log_posteriors(seed, num_frames, len(UNITS))


def exact(log_posteriors) -> dict[tuple[str, ...], float]:
    """{words: ln p} by enumeration."""
    found: dict = {}
    for units, score in all_sums(log_posteriors).items():
        words = tuple(words_of(UNITS[unit] for unit in units))
        found[words] = float(np.logaddexp(found[words], score)) if words in found else score
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["closed", "with <unk>"])
def model(request, tmp_path_factory):
    """(path of a trigram model, its n-grams, its words)."""
    words = [*WORDS, *["<unk>"] * request.param]
    orders = random_ngrams(3, words, (0, 12, 12))
    path = tmp_path_factory.mktemp("lm") / "lm.arpa"
    write_arpa_text(path, orders)
    return path, orders, words


@pytest.mark.parametrize("seed", range(3))
def test_greedy_equals_best_path(seed):
    log_posteriors = posteriors(seed)
    best = greedy(log_posteriors, UNITS)
    units, score = max(all_best(log_posteriors).items(), key=lambda item: item[1])
    assert best.units == units and best.ctc_cost == pytest.approx(-score, abs=1e-5)
    assert best.words == tuple(words_of(UNITS[unit] for unit in units))


def test_greedy_merges_repeats_without_blank_between():
    path = [0, 2, 2, 3, 3, 0, 3, 2, 0, 0, 2]
    best = greedy(np.log(0.8 * np.eye(5)[path] + 0.04), UNITS)
    assert best.units == (2, 3, 3, 2, 2) and best.words == ("abb", "a", "a")
    assert greedy(np.zeros((0, 5)), UNITS).words == ()


@pytest.mark.parametrize(
    "path, words",
    [([2, 1, 3], ("ab",)), ([1, 2, 0, 1], ("<unk>", "a")), ([4, 1, 0, 1, 2, 4, 1], ("<unk>", "a", "<unk>"))],
)
def test_unknown_unit_is_not_a_letter(path, words):
    """A word of this unit only is <unk>, with the language model's cost."""
    log_posteriors = np.log(0.96 * np.eye(len(UNITS))[path] + 0.008)
    best = PrefixDecoder(UNITS).decode(log_posteriors)[0]
    assert greedy(log_posteriors, UNITS).words == best.words == words and best.units == tuple(
        unit for unit in path if unit
    )


@pytest.mark.parametrize("num_frames", [0, 1, 2, 5])
def test_unlimited_beam_sums_over_all_alignments(num_frames):
    log_posteriors = posteriors(7, num_frames)
    found = PrefixDecoder(UNITS, PrefixOptions(**EVERYTHING)).decode(log_posteriors)
    expected = exact(log_posteriors)
    assert {one.words: -one.ctc_cost for one in found} == pytest.approx(expected, abs=1e-9)
    assert len(found) == len(expected) and [one.ctc_cost for one in found] == sorted(
        one.ctc_cost for one in found
    )
    assert all(one.lm_cost == 0 for one in found)


def test_language_model_equals_rescoring_of_all_texts(model):
    path, orders, words = model
    options = PrefixOptions(**EVERYTHING, lm_weight=0.7, word_bonus=0.4, oov_cost=9.0, letter_cost=0.8)
    log_posteriors = posteriors(8)
    found = PrefixDecoder(UNITS, options, read_arpa(path)).decode(log_posteriors)
    table = SymbolTable.of(["<eps>", *words, "#0", "<s>", "</s>"])
    peer, unknown = BackoffLm.read(path, table, oov_cost=9.0), table.get("<unk>", 0)
    expected = {}
    for text, score in exact(log_posteriors).items():
        cost = peer.cost([table.get(word, unknown) or 10**6 for word in text])
        cost += 0.8 * sum(len(word) for word in text if word not in [*WORDS, "<unk>"])
        if all(word in WORDS for word in text):
            assert cost == pytest.approx(-math.log(10) * sentence_log10(orders, list(text)), abs=1e-4)
        expected[text] = score - 0.7 * cost + 0.4 * len(text)
    assert any(set(text) - set(words) for text in expected)
    assert {one.words: one.score(0.7, 0.4) for one in found} == pytest.approx(expected, abs=1e-6)
    assert [one.words for one in found] == sorted(expected, key=lambda text: -expected[text])


def test_defaults_equal_those_tuned_in_recipe(model):
    """Tuned on dev; without a language model, there is no word bonus."""
    log_posteriors, arpa = posteriors(9), read_arpa(model[0])
    for lm, message in ((arpa, dict(lm_weight=0.5, word_bonus=3.0)), (None, dict(word_bonus=0.0))):
        chosen, message = (
            PrefixDecoder(UNITS, options, lm).decode(log_posteriors)
            for options in (PrefixOptions(), PrefixOptions(**message))
        )
        assert chosen == message


@pytest.mark.parametrize("num_prefixes", [1, 3, 8])
def test_narrow_beam_counts_each_alignment_once(num_prefixes):
    for seed in range(5):
        log_posteriors = posteriors(seed)
        expected = all_sums(log_posteriors)
        found = PrefixDecoder(UNITS, PrefixOptions(num_prefixes=num_prefixes, num_best=100)).decode(
            log_posteriors
        )
        assert 1 <= len(found) <= num_prefixes
        together = exact(log_posteriors)
        assert all(-one.ctc_cost <= together[one.words] + 1e-9 and one.units in expected for one in found)


def test_default_beam_finds_result_of_wider_beam(model):
    """Words of the model with two to three noisy frames per unit."""
    rng, path = np.random.default_rng(1), []
    for unit in [2, 3, 2, 4, 3, 2, 3, 4, 3, 3, 2, 2]:
        path += [0] * int(rng.integers(1, 3)) + [unit] * int(rng.integers(2, 4))
    logits = 5 * np.eye(len(UNITS))[path] + rng.standard_normal((len(path), len(UNITS))) - [0, 5, 0, 0, 0]
    log_posteriors, arpa = logits - np.log(np.exp(logits).sum(1, keepdims=True)), read_arpa(model[0])
    narrow, wide = (
        PrefixDecoder(UNITS, PrefixOptions(num_prefixes=num, word_bonus=0.0), arpa).decode(log_posteriors)[0]
        for num in (64, 1000)
    )
    assert " ".join(narrow.words) == "ab a b ab bb a a" and narrow.lm_cost == pytest.approx(
        wide.lm_cost, abs=1e-9
    )
    assert narrow.words == wide.words and wide.ctc_cost - 1e-9 <= narrow.ctc_cost <= wide.ctc_cost + 0.2


@pytest.mark.parametrize("num_prefixes", [1, 2, 3])
def test_oov_cost_is_added_as_soon_as_unit_ends_word(tmp_path, num_prefixes):
    """Otherwise the x, slightly more likely than the b, would remove the word from a beam of one."""
    units, rare = ["<blk>", "<unk>", "\u2581a", "b", "x"], 1e-4
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, ["ab", "ac"], (0,)))
    posteriors = [
        [rare, rare, 1 - 4 * rare, rare, rare],
        [rare, rare, rare, 0.48, 0.52 - 3 * rare],
        [1 - 4 * rare, rare, rare, rare, rare],
    ]
    found = PrefixDecoder(
        units, PrefixOptions(num_prefixes=num_prefixes), read_arpa(tmp_path / "lm.arpa")
    ).decode(np.log(posteriors))
    assert found[0].words == ("ab",)


def test_words_without_spelling_are_reported(tmp_path, caplog):
    """Words in capitals, and words with letters that only <unk> contains."""

    def decoder(*words):
        write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, [*words, "<unk>"], (0,)))
        return PrefixDecoder(UNITS, arpa=read_arpa(tmp_path / "lm.arpa"), lm_name="lm.arpa")

    with pytest.raises(
        UserError,
        match="lm.arpa: none of its words can be spelled .*; 2 of them can in another case: convert",
    ):
        decoder("AB", "BA")
    with pytest.raises(
        UserError, match="lm.arpa: none of its words can be spelled .*; give a model of words in the spelling"
    ):
        decoder("unk", "aunk")
    decoder("ab", "bax", "BA")
    output = caplog.text
    assert (
        "2 of its 3 words have letters that are in no unit, so they cannot be recognised (bax BA); 1 of "
        "them can in another case: con"
    ) in output
    decoder("ab", "b")
    assert caplog.text == output


def test_improbable_units_are_pruned():
    log_posteriors = np.log(np.array([[0.5, 0.0001, 0.45, 0.0499, 0.0]]) + 1e-12)
    found = PrefixDecoder(UNITS, PrefixOptions(unit_beam=2.5)).decode(log_posteriors)
    assert [one.words for one in found] == [(), ("a",), ("b",)]
    assert len(PrefixDecoder(UNITS, PrefixOptions(unit_beam=1.0)).decode(log_posteriors)) == 2


@pytest.mark.parametrize("decode", [PrefixDecoder(UNITS).decode, lambda x, name: greedy(x, UNITS, name)])
def test_invalid_posteriors_are_refused(decode):
    with pytest.raises(UserError, match=r"utt7: log posteriors of shape \(3, 4\), expected \(frames, 5\)"):
        decode(np.zeros((3, 4)), "utt7")
    with pytest.raises(UserError, match="utt7: the log posterior of unit 2 at frame 1 is nan"):
        decode(np.where(np.arange(15).reshape(3, 5) == 7, np.nan, -1.6), "utt7")
    for scores in (
        posteriors(0) + 0.2,
        0.5 * posteriors(0),
        np.exp(posteriors(0)),
        10 * posteriors(0),
        1e4 + posteriors(0),
    ):
        with pytest.raises(
            UserError,
            match=(
                r"utt7: the probabilities of the units at frame 0 add up to \S+, not to 1; give natural "
                r"logarithms"
            ),
        ):
            decode(scores, "utt7")
    # rounding of a compressed table
    decode(posteriors(0) + 0.05 * np.random.default_rng(0).uniform(-1, 1, (5, 5)), "utt7")
