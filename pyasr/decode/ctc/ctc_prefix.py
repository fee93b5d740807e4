"""Prefix beam search: the words with the highest probability according to a CTC network, summed over all
their alignments, and an optional n-gram model of words.

    decoder = PrefixDecoder(read_units("data/units"), PrefixOptions(num_prefixes=32), read_arpa("lm.arpa.gz"))
    best = decoder.decode(log_posteriors, "utt1")[0]
    best.words, best.ctc_cost, best.lm_cost

A. Hannun et al., "First-pass large vocabulary continuous speech recognition using bi-directional recurrent
DNNs", arXiv:1408.2873 (2014), algorithm 1. The search can also output words that the language model does not
have. Such a word has the cost of <unk>, or a fixed cost if the model has no <unk>. Each of its letters costs
more, because otherwise one long nonexistent word would cost less than the spoken words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyasr.base import log
from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.decode.ctc import ctc_prefix_kernels as kernels
from pyasr.decode.ctc.ctc_hypotheses import CtcHypothesis, checked_posteriors
from pyasr.io.openfst import Fst
from pyasr.lang.grammars.backoff_lm import OOV_COST, BackoffLm, BackoffTables
from pyasr.lang.grammars.grammar import BACKOFF, BOS, EOS, arpa_to_fst
from pyasr.lang.lang_dirs.subwords import BOUNDARY, UNKNOWN, words_of
from pyasr.lang.ngrams.arpa import Arpa
from pyasr.lang.symbols import EPSILON, SymbolTable

_SPECIAL = (EPSILON, BACKOFF, BOS, EOS)
_SHOWN = 10
_NO_UNIT = -1
_BONUS = 3.0  # default with a language model: without a bonus, the cost of each word causes deletions


@dataclass(frozen=True)
class PrefixOptions:
    """Limits of the prefix beam search, and weights of the language model."""

    heading = "search"

    num_prefixes: int = option(32, "number of prefixes kept at each frame", minimum=1)
    unit_beam: float = option(
        15.0,
        "ignore units whose log posterior is more than this below the frame's best",
        minimum=0.0,
        rare=True,
    )
    lm_weight: float = option(
        0.5, "weight of the language model's log probabilities", minimum=0.0, only=if_set("lm")
    )
    word_bonus: float | None = option(
        None, "added to the log probability for each word; none: 3 with a language model, else 0"
    )
    oov_cost: float = option(
        OOV_COST,
        "-ln probability of an out-of-vocabulary word if the language model has no <unk>",
        minimum=0.0,
        only=if_set("lm"),
    )
    letter_cost: float = option(
        3.4,
        "cost of each letter of an out-of-vocabulary word; 3.4 is -ln(1/30)",
        minimum=0.0,
        only=if_set("lm"),
        rare=True,
    )
    num_best: int = option(10, "maximum number of word sequences per utterance", minimum=1)

    def bonus(self, with_model: bool) -> float:
        """The bonus of a word, with or without a language model."""
        return (_BONUS if with_model else 0.0) if self.word_bonus is None else self.word_bonus


class PrefixDecoder:
    """Decodes utterances; safe to call from several threads at once.

    units    the network's outputs as in units.txt, 0 the blank
    arpa     n-gram model of words, or None
    lm_name  name of the model in messages

    Logs a warning for words of the model that the units cannot spell. Raises UserError if the units can spell
    none of its words.
    """

    def __init__(
        self,
        units: Sequence[str],
        options: PrefixOptions = PrefixOptions(),
        arpa: Arpa | None = None,
        lm_name: str = "the language model",
    ):
        self.units, self.options, self._bonus = list(units), options, options.bonus(arpa is not None)
        words = SymbolTable.of(dict.fromkeys([*_SPECIAL, *(arpa.words if arpa else ())]))
        spoken = {word: number for word, number in words.ids.items() if word not in _SPECIAL}
        _warn_of_unspelled(self.units, [word for word in spoken if word != UNKNOWN], lm_name)
        self._table = spellings(self.units, spoken, options.letter_cost if arpa else 0.0)
        self._lm = (
            _no_model()
            if arpa is None
            else BackoffLm.from_fst(
                arpa_to_fst(arpa, words)[0], words[BACKOFF], oov_cost=options.oov_cost
            ).tables
        )

    def decode(self, log_posteriors: np.ndarray, name: str = "the utterance") -> list[CtcHypothesis]:
        """Up to `num_best` distinct word sequences, the best one first.

        log_posteriors  natural logarithms, float32 (T, num_units)
        name            name of the utterance in messages

        The probability of a word sequence is a sum over all unit sequences that spell it, and over all their
        alignments, within the beam. `units` of a hypothesis is its most likely unit sequence. Raises
        UserError if the number of units is wrong or the values are not posteriors.
        """
        options = self.options
        weights = kernels.Weights(options.num_prefixes, options.unit_beam, options.lm_weight, self._bonus)
        found = kernels.search(
            checked_posteriors(log_posteriors, len(self.units), name), self._table, self._lm, weights
        )
        hypotheses = self._joined(*found)
        return sorted(hypotheses, key=lambda one: -one.score(options.lm_weight, self._bonus))[
            : options.num_best
        ]

    def _joined(self, flat, ends, log_probs, lm_costs) -> list[CtcHypothesis]:
        """One hypothesis for each word sequence: the sum over the unit sequences that spell it."""
        joined: dict[tuple[str, ...], CtcHypothesis] = {}
        strings = np.split(flat, ends[:-1])
        for k in np.argsort(-log_probs, kind="stable"):
            units = tuple(strings[k].tolist())
            words = tuple(words_of(self.units[unit] for unit in units))
            known = joined.get(words)
            cost = (
                -float(log_probs[k]) if known is None else -float(np.logaddexp(-known.ctc_cost, log_probs[k]))
            )
            joined[words] = CtcHypothesis(words, known.units if known else units, cost, float(lm_costs[k]))
        return list(joined.values())


def _warn_of_unspelled(units: list[str], words: list[str], lm_name: str) -> None:
    """Log a warning if some words have letters that are in no unit. Raises UserError if all words have such
    letters."""
    letters = set("".join(unit.removeprefix(BOUNDARY) for unit in units[1:] if unit != UNKNOWN))
    missing = [word for word in words if not letters.issuperset(word)]
    if not missing:
        return
    folded = set("".join(letters).casefold())
    cased = sum(folded.issuperset(word.casefold()) for word in missing)
    hint = (
        f"{cased} of them can in another case: convert words or units, for example with tr A-Z a-z"
        if cased
        else ""
    )
    if len(missing) == len(words):
        raise UserError(
            f"{lm_name}: none of its words can be spelled with the letters of the units; "
            f"{hint or 'give a model of words in the spelling of the text that the units were trained on'}"
        )
    shown = " ".join(missing[:_SHOWN]) + " ..." * (len(missing) > _SHOWN)
    log.warning(
        f"{lm_name}: {len(missing)} of its {len(words)} words have letters that are in no unit, so they "
        f"cannot be recognised ({shown}){hint and '; ' + hint}"
    )


def spellings(units: Sequence[str], words: dict[str, int], letter_cost: float) -> kernels.Spellings:
    """The letters of the units, and the trie of the spellings of `words` with their ids."""
    nodes, ids, letters = _trie(words)
    spelled = [unit.removeprefix(BOUNDARY) if k and unit != UNKNOWN else "" for k, unit in enumerate(units)]
    strings = [[letters.get(letter, -1) for letter in string] for string in spelled]
    unknown = words.get(UNKNOWN, 0)
    num_letters = max(len(letters), 1)
    keys = np.array([node * num_letters + letter for node, letter in nodes], np.int64)
    order = np.argsort(keys)
    return kernels.Spellings(
        np.array([unit.startswith(BOUNDARY) for unit in units]),
        np.cumsum([0, *map(len, strings)]),
        np.array([letter for string in strings for letter in string], np.int64),
        keys[order],
        np.array(list(nodes.values()), np.int64)[order],
        num_letters,
        np.array([ids.get(node, unknown) for node in range(len(nodes) + 1)], np.int64),
        unknown,
        units.index(UNKNOWN) if UNKNOWN in units else _NO_UNIT,
        letter_cost,
    )


def _trie(words: dict[str, int]) -> tuple[dict[tuple[int, int], int], dict[int, int], dict[str, int]]:
    """({(node, letter): node}, {node: id of the word that ends there}, {letter: number})."""
    nodes: dict[tuple[int, int], int] = {}
    ids: dict[int, int] = {}
    letters: dict[str, int] = {}
    for word, number in words.items():
        node = 0
        for letter in word:
            key = (node, letters.setdefault(letter, len(letters)))
            node = nodes.setdefault(key, len(nodes) + 1)
        ids[node] = number
    return nodes, ids, letters


def _no_model() -> BackoffTables:
    """A language model in which every word and the end of the sentence have probability one."""
    return BackoffLm.from_fst(Fst.from_arcs(1, 0, [], [], [], [], [], {0: 0.0}), 0, oov_cost=0.0).tables
