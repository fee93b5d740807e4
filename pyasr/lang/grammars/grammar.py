"""G: an n-gram model in ARPA format as a transducer over the words of a lang dir; and the lang dir with it or
with another grammar."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.utf8 import text_of
from pyasr.io.content import read_content
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.grammars.grammar_fst import is_grammar_fst, read_grammar_fst
from pyasr.lang.ngrams.arpa import Arpa, parse_arpa
from pyasr.lang.ngrams.arpa_reader import refuse_kenlm
from pyasr.lang.symbols import BACKOFF, SymbolTable

BOS, EOS = "<s>", "</s>"
_LN10 = math.log(10.0)


@dataclass(frozen=True)
class Dropped:
    """Parts of an ARPA file that are not in G: words without an id, n-grams with such a word, n-grams whose
    history is not listed."""

    words: tuple[str, ...]
    num_oov_ngrams: int
    num_orphans: int


class _Histories:
    """The states of G, a trie over histories: state 0 is the empty history, each listed n-gram below the
    highest order has one.

    For each length, the sorted `keys` are `state of all but the last word * vocabulary + last word`; `states`
    are their target states.
    """

    def __init__(self, vocabulary: int):
        self.vocabulary, self.num_states = vocabulary, 1
        self.keys: list[np.ndarray] = []
        self.states: list[np.ndarray] = []

    def add(self, parents: np.ndarray, words: np.ndarray) -> np.ndarray:
        """New states for histories one word longer than before, int64 (num)."""
        keys = parents * self.vocabulary + words
        states = self.num_states + np.arange(len(keys))
        order = np.argsort(keys)
        self.keys.append(keys[order])
        self.states.append(states[order])
        self.num_states += len(keys)
        return states

    def find(self, ids: np.ndarray) -> np.ndarray:
        """States of the histories in the rows of `ids` (num, length), -1 if there is none."""
        found = np.zeros(len(ids), np.int64)
        for column, (keys, states) in zip(ids.T, self._levels(ids.shape[1])):
            wanted = found * self.vocabulary + column
            at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
            matches = (found >= 0) & (keys[at] == wanted) if len(keys) else np.zeros(len(ids), bool)
            found = np.where(matches, states[at] if len(keys) else 0, -1)
        return found

    def _levels(self, length: int):
        empty = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        return [(self.keys[i], self.states[i]) if i < len(self.keys) else empty for i in range(length)]

    def longest_suffix(self, ids: np.ndarray) -> np.ndarray:
        """State of the longest history that is a suffix of each row of `ids` (num, length)."""
        found = self.find(ids)
        for drop in range(1, ids.shape[1] + 1):
            missing = np.flatnonzero(found < 0)
            found[missing] = self.find(ids[missing, drop:])
        return found


def arpa_to_fst(arpa: Arpa, words: SymbolTable) -> tuple[Fst, Dropped]:
    """G as Kaldi's `arpa2fst --disambig-symbol=#0` builds it, arcs sorted by input label.

    A state is a history. Its arc for a word costs -ln p(word | history) and leads to the longest listed
    history. Its arc #0:epsilon costs -ln of the backoff weight. `<s>` and `</s>` are not labels: the history
    `<s>` is the start, p(</s> | history) a final cost. States with only a backoff arc are bypassed. N-grams
    with a word without an id, or with an unlisted history, are skipped.
    """
    check_symbols(words)
    ids = np.array(
        [-1 if word in ("<eps>", BACKOFF) else words.get(word, -1) for word in arpa.words], np.int64
    )
    builder = _GrammarBuilder(words)
    dropped_ngrams = 0
    for order, table in enumerate(arpa.tables, 1):
        rows = ids[table.ids]
        known = (rows >= 0).all(axis=1)
        dropped_ngrams += int((~known).sum())
        builder.add(
            rows[known],
            -_LN10 * table.logprob[known],
            -_LN10 * table.backoff[known],
            highest=order == len(arpa.tables),
        )
    missing = tuple(word for word, number in zip(arpa.words, ids) if number < 0 and word not in (BOS, EOS))
    return builder.fst(), Dropped(missing, dropped_ngrams, builder.num_orphans)


def check_symbols(words: SymbolTable) -> None:
    """Raise UserError if words.txt lacks a symbol that G needs."""
    for symbol, of in ((BACKOFF, "backoff arcs"), (BOS, "sentence begins"), (EOS, "sentence ends")):
        if symbol not in words:
            raise UserError(
                f"words.txt has no {symbol}, the symbol of {of}; create the lang dir with "
                "utils/prepare_lang.py"
            )


class _GrammarBuilder:
    """Collects states and arcs order by order; see `arpa_to_fst`."""

    def __init__(self, words: SymbolTable):
        self.bos, self.eos, self.backoff_label = words.get(BOS, -1), words.get(EOS, -1), words[BACKOFF]
        self.histories = _Histories(max(words.ids.values()) + 1)
        self.arcs: list[tuple[np.ndarray, ...]] = []  # source, label, cost, destination
        self.finals: list[tuple[np.ndarray, np.ndarray]] = []
        self.backoffs: list[tuple[np.ndarray, ...]] = []  # state, cost, destination
        self.start = 0
        self.num_orphans = 0

    def add(self, ids: np.ndarray, costs: np.ndarray, backoff_costs: np.ndarray, highest: bool) -> None:
        """Add all n-grams of one order, `ids` (num, order); call it in rising order."""
        sources = self.histories.find(ids[:, :-1])
        sound = (ids[:, 1:] != self.bos).all(axis=1) & (ids[:, :-1] != self.eos).all(axis=1)
        self.num_orphans += int((sound & (sources < 0)).sum())
        keep = sound & (sources >= 0)
        ends = keep & (ids[:, -1] == self.eos)
        self.finals.append((sources[ends], costs[ends]))
        keep &= ~ends
        ids, costs, backoff_costs, sources = ids[keep], costs[keep], backoff_costs[keep], sources[keep]
        suffixes = self.histories.longest_suffix(ids[:, 1:])
        if highest:
            targets = suffixes
        else:
            targets = self.histories.add(sources, ids[:, -1])
            self.backoffs.append((targets, backoff_costs, suffixes))
        spoken = ids[:, -1] != self.bos
        self.start = int(targets[~spoken][0]) if (~spoken).any() else self.start
        self.arcs.append((sources[spoken], ids[spoken, -1], costs[spoken], targets[spoken]))

    def fst(self) -> Fst:
        """G without redundant states, its arcs sorted by input label."""
        num_states = self.histories.num_states
        finals = np.full(num_states, np.inf)
        for states, costs in self.finals:
            finals[states] = costs
        sources, labels, costs, targets = (np.concatenate(column) for column in zip(*self.arcs))
        states, backoff_costs, backoff_targets = self._joined_backoffs()
        bypassed = (np.bincount(sources, minlength=num_states) == 0) & np.isinf(finals)
        bypassed[[0, self.start]] = False
        onward, extra = np.arange(num_states), np.zeros(num_states)
        onward[states], extra[states] = backoff_targets, backoff_costs
        onward[~bypassed], extra[~bypassed] = np.flatnonzero(~bypassed), 0.0
        while bypassed[onward].any():
            extra += extra[onward]
            onward = onward[onward]
        kept = ~bypassed[states]
        all_sources = np.r_[sources, states[kept]]
        all_targets = np.r_[targets, backoff_targets[kept]]
        ilabels = np.r_[labels, np.full(kept.sum(), self.backoff_label)]
        olabels = np.r_[labels, np.zeros(kept.sum(), np.int64)]
        all_costs = np.r_[costs, backoff_costs[kept]] + extra[all_targets]
        number = np.cumsum(~bypassed) - 1
        order = np.lexsort((ilabels, all_sources))
        return Fst.from_arcs(
            int((~bypassed).sum()),
            int(number[self.start]),
            number[all_sources][order],
            ilabels[order],
            olabels[order],
            all_costs[order],
            number[onward[all_targets]][order],
            finals[~bypassed],
        )

    def _joined_backoffs(self):
        if not self.backoffs:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
        return tuple(np.concatenate(column) for column in zip(*self.backoffs))


def make_grammar(lang: Path, source: Path, out: Path, acceptor: bool | None = None) -> None:
    """Fill `out` with a copy of the lang dir and the `G.fst` of an ARPA file, as Kaldi's format_lm.sh does,
    or of an FST.

    acceptor  see `pyasr.lang.grammars.grammar_fst.read_grammar_fst`
    """
    words, content = SymbolTable.read(lang / "words.txt"), read_content(source)
    if is_grammar_fst(content):
        check_symbols(words)
        grammar = read_grammar_fst(content, source, words, acceptor)
    elif acceptor is not None:
        raise UserError(f"--acceptor cannot be used with {source}, which is not an FST; omit --acceptor")
    elif b"\\data\\" not in content:
        refuse_kenlm(content, source)
        fault = (
            "neither a \\data\\ line, as in ARPA files, nor an arc 'FROM TO WORD [COST]' on the first "
            "line, as in text FSTs"
        )
        raise UserError(f"{source}:1: {fault}; give an ARPA file, a text FST or a binary FST")
    else:
        grammar = _of_arpa(content, source, lang, words)
    copy_lang(lang, out)
    write_fst(out / "G.fst", grammar)
    log.info(f"G.fst: {grammar.num_states} states, {grammar.num_arcs} arcs")


def _of_arpa(content: bytes, path: Path, lang: Path, words: SymbolTable) -> Fst:
    """G of an ARPA file. Warns of skipped words and n-grams; raises UserError if nothing is left."""
    text_of(content, path)
    grammar, dropped = arpa_to_fst(parse_arpa(content, path), words)
    hint = _other_case(dropped.words, words)
    if (grammar.ilabels == words[BACKOFF]).all():
        raise UserError(
            f"{path}: none of its words is in {lang}/words.txt; {hint or 'build both from the same text'}"
        )
    if dropped.words:
        shown = " ".join(dropped.words[:10]) + " ..." * (len(dropped.words) > 10)
        fault = f"{len(dropped.words)} words are not in {lang}/words.txt ({shown})"
        log.warning(f"{path}: {fault}; {dropped.num_oov_ngrams} n-grams dropped{hint and '; ' + hint}")
    if dropped.num_orphans:
        log.warning(f"{path}: {dropped.num_orphans} n-grams dropped because their history is not listed")
    return grammar


def _other_case(missing: tuple[str, ...], words: SymbolTable) -> str:
    """Hint if words are in the table in upper or lower case; '' if they are not."""
    known = {symbol.casefold(): symbol for symbol in words.symbols}
    pairs = [(word, known[word.casefold()]) for word in missing if word.casefold() in known]
    if not pairs:
        return ""
    return (
        f"{len(pairs)} of its words are there in another case, {pairs[0][0]} as {pairs[0][1]}: convert "
        "one of the two, as by tr A-Z a-z"
    )


def copy_lang(lang: Path, out: Path) -> None:
    """Copy the files of a lang dir including `phones/`, except its logs, done-file and G.fst."""
    for path in sorted(lang.iterdir()):
        if path.is_file() and path.name != "G.fst" and not path.name.startswith("."):
            shutil.copy2(path, out / path.name)
    shutil.copytree(lang / "phones", out / "phones", dirs_exist_ok=True)


def copy_symbols(lang: Path, out: Path) -> None:
    """Copy the files of a lang dir that decoding and scoring need: words.txt, phones.txt, phones/."""
    for name in ("words.txt", "phones.txt"):
        shutil.copy2(lang / name, out / name)
    shutil.copytree(lang / "phones", out / "phones", dirs_exist_ok=True)
