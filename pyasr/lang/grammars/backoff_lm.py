"""A back-off n-gram model as an automaton for composition on the fly: cost and next history of a word after
any history.

    lm = BackoffLm.read(Path("data/lang_test"), SymbolTable.read("data/lang_test/words.txt"))
    lm.cost([12, 7, 391])                                # -ln p(words, sentence end)

The states of G are histories. An arc without a word leads from a history to the next shorter one. Not every
history has an arc for every word, so there are two interpretations of G:

strict   back off only if the n-gram is not listed: the probability of the model, as in Kaldi's const-arpa
best     the cheapest path through G, which is what a decoder puts into a lattice, since it backs off whenever
         that is cheaper

Under `strict`, the states of the automaton are those of G. Under `best`, they are sets of states of G, each
with its excess cost over the best one: G determinised on the fly (Mohri, "Finite-state transducers in
language and speech processing", 1997, section 3.3). A state is dropped from a set if another state of the set
reaches it by backing off at no greater cost. The sets of an n-gram model have at most n states, mostly one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.io.mapped_files import mapped
from pyasr.io.mapped_files.mapped import derived, digest_of_parts
from pyasr.io.openfst import Fst, read_fst
from pyasr.lang.fst.fst_ops import infinite_arcs
from pyasr.lang.grammars.backoff_tables import tables_of_arpa
from pyasr.lang.grammars.backoff_tables_kernels import arc_of
from pyasr.lang.symbols import BACKOFF, SymbolTable

OOV_COST = 15.0
_LAYOUT = "back-off tables 1"  # changes with the content of the tables
_TOLERANCE = 1e-6


class BackoffTables(NamedTuple):
    """Arrays of the compiled loops. Arcs of state s are offsets[s]:offsets[s + 1], by word; backoffs[s] is -1
    for the empty history.

    Costs are float32, offsets int64, all others int32: 12 bytes per arc, 20 per state. The arrays are
    read-only.
    """

    start: int
    offsets: np.ndarray
    words: np.ndarray
    costs: np.ndarray
    targets: np.ndarray
    backoffs: np.ndarray
    backoff_costs: np.ndarray
    finals: np.ndarray
    best: bool
    oov_cost: float


@dataclass(frozen=True)
class BackoffLm:
    """A back-off model over word ids; `name` is its source file, `known` the sorted ids with a unigram."""

    tables: BackoffTables
    known: np.ndarray
    name: str

    @classmethod
    def read(
        cls,
        source: Path,
        words: SymbolTable,
        *,
        best: bool = False,
        oov_cost: float = OOV_COST,
        more: Sequence[Path] = (),
    ) -> BackoffLm:
        """The model in `source` (see `model_file`) over the ids of `words`.

        more  further directories for the memory-mapped file of a large model
              (`pyasr.io.mapped_files.mapped`), if its own directory is not writable

        A word that the model lacks costs the back-off to the empty history plus `oov_cost`; no history
        extends over it. Raises UserError if there is no such file, or if a G.fst is not a back-off model.
        """
        path, backoff = model_file(source), words.get(BACKOFF, -1)
        if path.suffix == ".fst":
            key = digest_of_parts(_LAYOUT, str(backoff))
            make = lambda: tables_of_fst(read_fst(path), backoff, str(path))
        else:
            key = digest_of_parts(_LAYOUT, *words.symbols, repr(list(words.ids.values())))
            make = lambda: tables_of_arpa(path, words)
        return cls.of_tables(
            derived(path, "ngrams", key, make, more), str(path), best=best, oov_cost=oov_cost
        )

    @classmethod
    def from_fst(
        cls,
        fst: Fst,
        backoff_label: int,
        name: str = "G.fst",
        *,
        best: bool = False,
        oov_cost: float = OOV_COST,
    ) -> BackoffLm:
        """The model of a grammar transducer: words are output labels; epsilon or `backoff_label` marks a
        back-off arc."""
        return cls.of_tables(tables_of_fst(fst, backoff_label, name), name, best=best, oov_cost=oov_cost)

    @classmethod
    def of_tables(cls, tables: mapped.MappedTables, name: str, *, best: bool, oov_cost: float) -> BackoffLm:
        """The model of `tables_of_fst` or `tables_of_arpa`."""
        arrays = dict(tables.arrays)
        known = arrays.pop("known")
        return cls(
            BackoffTables(tables.values["start"], **arrays, best=bool(best), oov_cost=float(oov_cost)),
            known,
            name,
        )

    def missing(self, words: np.ndarray) -> np.ndarray:
        """Sorted ids among `words` (except 0) without a unigram in the model."""
        absent = absent_from(self.known, words)
        return absent[absent != 0]

    def cost(self, words) -> float:
        """-ln p(words, sentence end | sentence begin)."""
        length = len(words)
        chain = np.arange(length + 2).clip(max=length)
        _, ends, _, _, _, costs = self.compose(
            chain, chain[1:-1].astype(np.int32), np.asarray(words, np.int32), chain[:-1] == length
        )
        return float(ends.sum() + costs.sum())

    def compose(
        self, arc_offsets: np.ndarray, targets: np.ndarray, words: np.ndarray, is_final: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Composition with an acceptor of words (epsilon 0) whose state 0 is the start and whose arcs all go
        to higher states.

        The states of the result are the reachable pairs of an acceptor state and a history; pair 0 is the
        start. Returns
            states, end_costs              int64, float64 (num_pairs): the acceptor state; cost of the
                                           sentence end, 0 if it is not final
            sources, targets, arcs, costs  int64, float64 (num_new_arcs): pairs, the arc of the acceptor, cost
                                           of its word
        """
        return _compose(self.tables, np.asarray(arc_offsets, np.int64), targets, words, is_final)


def tables_of_fst(fst: Fst, backoff_label: int, name: str) -> mapped.MappedTables:
    """The arrays of `MappedTables`, and `known`, of a grammar transducer as in `BackoffLm.from_fst`."""
    labels = np.where(fst.olabels == backoff_label, 0, fst.olabels)
    order = np.lexsort((labels, fst.sources))
    sources, labels = fst.sources[order], labels[order]
    costs, targets = fst.weights[order], fst.nextstates[order]
    _check(fst, sources, labels, targets, name)
    backing = labels == 0
    backoffs, backoff_costs = np.full(fst.num_states, -1, np.int32), np.zeros(fst.num_states, np.float32)
    backoffs[sources[backing]], backoff_costs[sources[backing]] = targets[backing], costs[backing]
    spoken = ~backing
    offsets = np.searchsorted(sources[spoken], np.arange(fst.num_states + 1))
    arrays = {
        "offsets": offsets,
        "words": labels[spoken].astype(np.int32),
        "costs": costs[spoken].astype(np.float32),
        "targets": targets[spoken].astype(np.int32),
        "backoffs": backoffs,
        "backoff_costs": backoff_costs,
        "finals": fst.finals.astype(np.float32),
        "known": np.unique(labels[spoken & (backoffs[sources] < 0)]),
    }
    return mapped.MappedTables(arrays, {"start": int(fst.start)})


def absent_from(listed: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Sorted unique ids among `words` that are not in the sorted `listed`. The time depends on the size of
    `words`, not of `listed`."""
    words = np.unique(words)
    places = np.searchsorted(listed, words)
    found = places < len(listed)
    found[found] = listed[places[found]] == words[found]
    return words[~found]


def model_file(source: Path) -> Path:
    """File of a language model: `source` itself (FST if its name ends in .fst, else ARPA), or G.fst or
    lm.arpa.gz in a directory."""
    source = Path(source)
    if not source.is_dir():
        return source
    found = [source / name for name in ("G.fst", "lm.arpa.gz") if (source / name).exists()]
    if not found:
        raise UserError(
            f"{source}: neither G.fst nor lm.arpa.gz in it; create one with utils/make_grammar.py or "
            "utils/train_lm.py"
        )
    return found[0]


def _check(fst: Fst, sources: np.ndarray, labels: np.ndarray, targets: np.ndarray, name: str) -> None:
    """Raise UserError unless the labels of the arcs of a state differ, back-off arcs form no cycle, and all
    costs are finite."""
    fault = "rescoring needs a back-off n-gram model; create it with utils/make_grammar.py"
    if fst.num_states == 0 or fst.start < 0:
        raise UserError(f"{name}: the grammar is empty; create it again with utils/make_grammar.py")
    if problem := infinite_arcs(fst):
        raise UserError(f"{name}: {problem}")
    twice = np.flatnonzero((sources[1:] == sources[:-1]) & (labels[1:] == labels[:-1]))
    if len(twice):
        what = f"word {labels[twice[0]]}" if labels[twice[0]] else "backing off"
        raise UserError(f"{name}: state {sources[twice[0]]} has two arcs for {what}; {fault}")
    onward = np.full(fst.num_states, -1, np.int64)
    onward[sources[labels == 0]] = targets[labels == 0]
    here, steps = onward.copy(), 0
    while (here >= 0).any():
        here[here >= 0] = onward[here[here >= 0]]
        steps += 1
        if steps > fst.num_states:
            raise UserError(f"{name}: arcs without a word form a cycle; {fault}")


@njit(nogil=True, cache=True)
def _new_histories(lm):
    """Storage of the histories found so far. The first one is the sentence begin.

    (begins, states, excess, first, others): history h is the set states[begins[h]:begins[h + 1]] of states of
    G with their excess costs over the best one; `first` and `others` find a history by its hash.
    """
    first = {_hash_step(0, lm.start, 0.0): np.int64(0)}
    return [0, 1], [np.int64(lm.start)], [0.0], first, [-1]


@njit(nogil=True, cache=True)
def _hash_step(value, state, excess):
    """Mix a pair into a hash. Costs that differ only by rounding mostly get the same hash; if not, the result
    is still correct."""
    mixed = (np.uint64(value) ^ np.uint64(state)) * np.uint64(1099511628211)
    mixed = (mixed ^ np.uint64(np.int64(np.rint(excess * 4096.0)))) * np.uint64(1099511628211)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(1))


@njit(nogil=True, cache=True)
def strict_word(lm, state, word):
    """(cost of a word after the history `state`, next history) under `strict`; 0 is not a word of any
    model."""
    cost = 0.0
    while True:
        arc = arc_of(lm, state, word)
        if arc >= 0:
            return cost + lm.costs[arc], lm.targets[arc]
        if lm.backoffs[state] < 0:
            return cost + lm.oov_cost, state
        cost += lm.backoff_costs[state]
        state = lm.backoffs[state]


@njit(nogil=True, cache=True)
def strict_end(lm, state):
    """Cost of the sentence end after the history `state` under `strict`."""
    cost = 0.0
    while lm.finals[state] == np.inf:
        if lm.backoffs[state] < 0:
            return lm.oov_cost
        cost += lm.backoff_costs[state]
        state = lm.backoffs[state]
    return cost + lm.finals[state]


@njit(nogil=True, cache=True)
def _follow(lm, state, cost, word, states, costs):
    """Add the target states of `word`, from the longest history that lists it (strict) or from each (best),
    to `states` and `costs`."""
    bottom, listed = state, False
    while state >= 0:
        arc = arc_of(lm, state, word)
        if arc >= 0:
            _add(states, costs, np.int64(lm.targets[arc]), cost + lm.costs[arc])
            listed = True
            if not lm.best:
                return
        bottom = state
        cost += lm.backoff_costs[state]
        state = lm.backoffs[state]
    if not listed:
        _add(states, costs, np.int64(bottom), cost + lm.oov_cost)


@njit(nogil=True, cache=True)
def _add(states, costs, state, cost):
    """Keep the lowest cost of each state."""
    for i in range(len(states)):
        if states[i] == state:
            costs[i] = min(costs[i], cost)
            return
    states.append(state)
    costs.append(cost)


@njit(nogil=True, cache=True)
def _drop_dominated(lm, states, costs):
    """Set the cost of states that another one reaches by backing off at no greater cost to infinity."""
    for i in range(len(states)):
        cost, state = costs[i] + lm.backoff_costs[states[i]], lm.backoffs[states[i]]
        while state >= 0 and cost < np.inf:
            for j in range(len(states)):
                if states[j] == state and costs[j] >= cost - _TOLERANCE:
                    costs[j] = np.inf
            cost += lm.backoff_costs[state]
            state = lm.backoffs[state]


@njit(nogil=True, cache=True)
def _advance(lm, histories, history, word):
    """(cost of `word` after a history, next history)."""
    begins, members, excess, _, _ = histories
    states, costs = [np.int64(0) for _ in range(0)], [0.0 for _ in range(0)]
    for m in range(begins[history], begins[history + 1]):
        _follow(lm, members[m], excess[m], word, states, costs)
    if len(states) > 1:
        _drop_dominated(lm, states, costs)
    least = min(costs)
    return least, _number(histories, states, costs, least)


@njit(nogil=True, cache=True)
def _number(histories, states, costs, least):
    """Number of the history with this set of states; a new number for a new history."""
    begins, members, excess, first, others = histories
    key, size = np.int64(0), 0
    for i in range(len(states)):
        if costs[i] < np.inf:
            key, size = _hash_step(key, states[i], costs[i] - least), size + 1
    newest = first[key] if key in first else -1
    found = newest
    while found >= 0:
        if _same(begins, members, excess, found, states, costs, least, size):
            return found
        found = others[found]
    new = len(begins) - 1
    others.append(newest)
    first[key] = new
    for i in range(len(states)):
        if costs[i] < np.inf:
            members.append(states[i])
            excess.append(costs[i] - least)
    begins.append(len(members))
    return new


@njit(nogil=True, cache=True)
def _same(begins, members, excess, history, states, costs, least, size):
    at = begins[history]
    if begins[history + 1] - at != size:
        return False
    for i in range(len(states)):
        if costs[i] < np.inf:
            if members[at] != states[i] or abs(excess[at] - (costs[i] - least)) > _TOLERANCE:
                return False
            at += 1
    return True


@njit(nogil=True, cache=True)
def _end_cost(lm, histories, history):
    """Cost of the sentence end after a history."""
    begins, members, excess, _, _ = histories
    least = np.inf
    for m in range(begins[history], begins[history + 1]):
        cost, state = excess[m], members[m]
        while state >= 0:
            least = min(least, cost + lm.finals[state])
            if not lm.best and lm.finals[state] < np.inf:
                break
            cost += lm.backoff_costs[state]
            state = lm.backoffs[state]
    return least if least < np.inf else lm.oov_cost


@njit(nogil=True, cache=True)
def _compose(lm, offsets, acceptor_targets, words, is_final):
    """See `BackoffLm.compose`."""
    histories = _new_histories(lm)
    places = {np.int64(0): np.int64(0)}
    # linked lists of the pairs of each state
    first, following = np.full(len(offsets) - 1, -1), [np.int64(-1)]
    states, mine, ends = [np.int64(0)], [np.int64(0)], [0.0]
    first[0] = 0
    # entry 0 sets the type
    sources, targets, arcs, costs = [np.int64(0)], [np.int64(0)], [np.int64(0)], [0.0]
    for state in range(len(offsets) - 1):
        pair = first[state]
        while pair >= 0:
            if is_final[state]:
                ends[pair] = _end_cost(lm, histories, mine[pair])
            for a in range(offsets[state], offsets[state + 1]):
                cost, history = 0.0, mine[pair]
                if words[a] != 0:
                    cost, history = _advance(lm, histories, history, words[a])
                key = (np.int64(acceptor_targets[a]) << 32) | np.int64(history)
                if key in places:
                    target = places[key]
                else:
                    target = len(states)
                    places[key] = target
                    states.append(np.int64(acceptor_targets[a]))
                    mine.append(np.int64(history))
                    ends.append(0.0)
                    following.append(first[acceptor_targets[a]])
                    first[acceptor_targets[a]] = target
                sources.append(pair)
                targets.append(target)
                arcs.append(np.int64(a))
                costs.append(cost)
            pair = following[pair]
    return (
        np.array(states),
        np.array(ends),
        np.array(sources)[1:],
        np.array(targets)[1:],
        np.array(arcs)[1:],
        np.array(costs)[1:],
    )
