"""Word and phone alignment of lattices, path by path against the phones of each path's transition-ids."""

from __future__ import annotations

import numpy as np
import pytest
from spoken_toys import SCALE, System, make_system

from pyasr.base.errors import UserError
from pyasr.decode.align.align_lexicon import align_lexicon
from pyasr.decode.align.align_phones import align_phones, phone_lattice
from pyasr.decode.align.align_words import align_words
from pyasr.decode.lattices.compact_lattice import (
    CompactLattice,
    compact_from_arcs,
    empty_compact,
    state_times,
)
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice import best_path, prune
from pyasr.decode.lattices.lattice_posteriors import arc_posteriors
from pyasr.decode.lattices.nbest import n_best
from pyasr.hmm.trees.phone_segments import split_to_phones


@pytest.fixture(scope="module", params=[True, False], ids=["positions", "plain"])
def system(request, tmp_path_factory) -> System:
    return make_system(tmp_path_factory.mktemp("spoken"), position_dependent_phones=request.param)


@pytest.fixture(scope="module")
def compact(system) -> list[CompactLattice]:
    return [determinize(system.lattice(seed), 5.0, SCALE)[0] for seed in range(6)]


@pytest.fixture(scope="module")
def lexicon(system):
    return align_lexicon(system.lang.align_lexicon)


def paths(lattice: CompactLattice, limit: int = 4000) -> list:
    """(arcs, end) of all paths."""
    found, stack = [], [(0, ())]
    while stack and len(found) < limit:
        state, arcs = stack.pop()
        if np.isfinite(lattice.final_graph[state]):
            found.append((np.array(arcs, int), state))
        stack += [
            (int(lattice.targets[a]), (*arcs, int(a))) for a in np.flatnonzero(lattice.sources == state)
        ]
    return found


def content(lattice: CompactLattice) -> dict:
    """{words: (transition-ids, total cost)} of all paths, which must have distinct words."""
    found: dict = {}
    for arcs, end in paths(lattice):
        path = lattice.path(arcs, end)
        assert tuple(path.words) not in found
        found[tuple(path.words)] = (tuple(path.tids.tolist()), path.graph_cost + SCALE * path.acoustic_cost)
    return found


def same_content(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        one[words][0] == other[words][0] and one[words][1] == pytest.approx(other[words][1], abs=0.01)
        for words in one
    )


def spans(lattice: CompactLattice, arcs) -> list:
    """(label, first frame, end) of the arcs of a path that have frames."""
    times, lengths = state_times(lattice), lattice.lengths
    return [
        (int(lattice.words[a]), int(times[lattice.sources[a]]), int(times[lattice.sources[a]] + lengths[a]))
        for a in arcs
        if lengths[a]
    ]


def phone_spans(system: System, tids) -> list:
    """(phone, first frame, end) by `split_to_phones`."""
    segments = split_to_phones(system.trans, {"path": np.array(tids)})
    return list(zip(segments.phones.tolist(), segments.starts[:-1].tolist(), segments.starts[1:].tolist()))


def prons_of(system: System) -> dict:
    """{word: its pronunciations}"""
    found: dict = {}
    for word, phones in system.lang.align_lexicon:
        found.setdefault(word, set()).add(phones)
    return found


def divisions(prons: dict, words: tuple, phones: list) -> list:
    """Every way to divide the phones of a path among its words and silences: lists of (word, first frame,
    end)."""

    def divide(i, w):
        if i == len(phones) and w == len(words):
            yield []
        for word, after in ((0, w), *((word, w + 1) for word in words[w : w + 1])):
            for pron in prons[word]:
                if tuple(phone for phone, _, _ in phones[i : i + len(pron)]) == pron:
                    yield from (
                        [(word, phones[i][1], phones[i + len(pron) - 1][2]), *rest]
                        for rest in divide(i + len(pron), after)
                    )

    return list(divide(0, 0))


def chosen(found: list) -> list:
    """The division whose last piece, then the one before, ... is the shortest, a silence rather than a
    word."""
    return min(found, key=lambda spans: [(end - begin, word != 0) for word, begin, end in reversed(spans)])


def mixed_chain(rng, words, tids, first: str = "") -> CompactLattice:
    """A lattice of one path with a word or a transition-id per arc, in random order, or all words or all
    transition-ids first."""
    order = rng.permuted(np.repeat([True, False], [len(words), len(tids)]))
    order = np.sort(order)[:: -1 if first == "words" else 1] if first else order
    words, tids = iter(words), iter(tids)
    return chain(*zip(*[(next(words), []) if is_word else (0, [next(tids)]) for is_word in order]))


def test_each_arc_has_one_phone_with_its_frames(system, compact):
    for lattice in compact:
        aligned, phones = align_phones(lattice, system.trans), phone_lattice(lattice, system.trans)
        assert same_content(content(aligned), content(lattice))
        for arcs, end in paths(phones):
            tids = phones.path(arcs, end).tids
            assert spans(phones, arcs) == phone_spans(system, tids)


def test_each_arc_has_one_word_or_silence_with_its_frames(system, lexicon, compact):
    num_paths = 0
    for lattice in compact:
        aligned = align_words(lattice, system.trans, lexicon)
        assert (aligned.lengths > 0).all()
        ways: dict = {}
        for arcs, end in paths(aligned):
            path = aligned.path(arcs, end)
            ways.setdefault((tuple(path.words), tuple(path.tids.tolist())), []).append(spans(aligned, arcs))
        for (words, tids), found in ways.items():
            assert found == [chosen(divisions(prons_of(system), words, phone_spans(system, tids)))]
            num_paths += len(found)
        assert ways.keys() == {(words, tids) for words, (tids, _) in content(lattice).items()}
        costs = {tuple(p.words): p.graph_cost + SCALE * p.acoustic_cost for p in n_best(aligned, 5000, SCALE)}
        assert costs == pytest.approx(
            {words: cost for words, (_, cost) in content(lattice).items()}, abs=0.01
        )
    assert num_paths > 100


def chain(words, strings) -> CompactLattice:
    """The lattice of one path; each arc has a word (0: none) and transition-ids."""
    num, tids = len(words), np.concatenate(strings).astype(np.int32)
    ends, finals = np.append(0, np.cumsum([len(string) for string in strings])), [np.inf] * num + [0]
    no_strings = np.zeros(num + 2, int), np.empty(0, np.int32)
    return compact_from_arcs(
        0,
        range(num),
        range(1, num + 1),
        words,
        [1.0] * num,
        [2.0] * num,
        (ends, tids),
        finals,
        finals,
        final_strings=no_strings,
    )


@pytest.mark.parametrize("seed", range(20))
def test_words_may_precede_or_follow_their_phones(system, lexicon, compact, seed):
    """Words and transition-ids keep their order but are interleaved at random, including all words first and
    all words last."""
    rng = np.random.default_rng(seed)
    lattice = compact[seed % len(compact)]
    found = paths(lattice)
    path = lattice.path(*found[rng.integers(len(found))])
    aligned = align_words(
        mixed_chain(rng, path.words, path.tids, ["words", "tids", *[""] * 20][seed]), system.trans, lexicon
    )
    expected = divisions(prons_of(system), tuple(path.words), phone_spans(system, path.tids))
    assert [spans(aligned, arcs) for arcs, _ in paths(aligned)] == [chosen(expected)]


class Ambiguous:
    """Words of one to three phones from a set of two, so that some words are prefixes of others; one phone is
    also the silence."""

    def __init__(self, system: System, seed: int):
        self.rng, self._trans = np.random.default_rng(seed), system.trans
        self._phones = sorted({phones[0] for phones in system.lang.pronunciation_ids})[-2:]
        self.prons = {
            word: {tuple(self.rng.choice(self._phones, self.rng.integers(1, 4)).tolist()) for _ in range(2)}
            for word in (1, 2, 3)
        }
        self.prons |= {0: {(self._phones[1],)}}
        self.lexicon = align_lexicon((word, pron) for word in self.prons for pron in self.prons[word])

    def utterance(self) -> tuple[tuple, list]:
        """(words, transition-ids) with silences between."""
        rng, words = self.rng, tuple(self.rng.integers(1, 4, 4).tolist())
        spoken = [
            sorted(self.prons[word])[rng.integers(len(self.prons[word]))]
            + (self._phones[1],) * rng.integers(2)
            for word in words
        ]
        forward = [
            np.flatnonzero((self._trans.tid2phone == phone) & ~self._trans.is_self_loop)
            for pron in spoken
            for phone in pron
        ]
        return words, np.concatenate(forward).tolist()


def test_ambiguous_path_is_segmented_in_one_way(system):
    num_ambiguous = 0
    for seed in range(40):
        toy = Ambiguous(system, seed)
        words, tids = toy.utterance()
        aligned = align_words(mixed_chain(toy.rng, words, tids), system.trans, toy.lexicon)
        expected = divisions(toy.prons, words, phone_spans(system, tids))
        assert [spans(aligned, arcs) for arcs, _ in paths(aligned)] == [chosen(expected)]
        num_ambiguous += len(expected) > 1
    assert num_ambiguous > 20


def test_word_posteriors_are_unchanged_by_alignment(system):
    """The expected count of each word over all paths of the lattice is unchanged, although some paths can be
    divided in several ways."""
    num_ambiguous = 0
    for seed in range(20):
        toy = Ambiguous(system, seed)
        said = [toy.utterance() for _ in range(4)]
        lattice = side_by_side([mixed_chain(toy.rng, *one) for one in said], 3 * toy.rng.random(4))
        ways = [lattice.path(*found) for found in paths(lattice)]
        weights = np.exp([-way.graph_cost - SCALE * way.acoustic_cost for way in ways])
        expected = sum(
            weight * np.bincount(way.words, minlength=4) for weight, way in zip(weights / weights.sum(), ways)
        )
        aligned = align_words(lattice, system.trans, toy.lexicon)
        posteriors, _ = arc_posteriors(aligned, SCALE)
        assert np.bincount(aligned.words, posteriors, minlength=4)[1:] == pytest.approx(
            expected[1:], abs=1e-4
        )
        num_ambiguous += any(
            len(divisions(toy.prons, words, phone_spans(system, tids))) > 1 for words, tids in said
        )
    assert num_ambiguous > 10


def side_by_side(chains: list[CompactLattice], costs) -> CompactLattice:
    """The union of lattices of one path each, with these graph costs and acoustic costs of 0."""
    sources, targets, first = [], [], 1
    for one in chains:
        sources += [0, *range(first, first + one.num_arcs - 1)]
        targets += range(first, first + one.num_arcs)
        first += one.num_arcs
    graph = np.concatenate([cost * (np.arange(one.num_arcs) == 0) for one, cost in zip(chains, costs)])
    strings = (
        np.append(0, np.cumsum(np.concatenate([one.lengths for one in chains]))),
        np.concatenate([one.tids for one in chains]),
    )
    finals = np.where(np.isin(np.arange(first), sources), np.inf, 0.0)
    words = np.concatenate([one.words for one in chains])
    return compact_from_arcs(
        0,
        sources,
        targets,
        words,
        graph,
        0 * graph,
        strings,
        finals,
        finals,
        final_strings=(np.zeros(first + 1, int), strings[1][:0]),
    )


def test_self_loops_may_precede_transitions(system, lexicon, compact):
    """In alignments that are not reordered, phones end at the times of split_to_phones."""
    trans, found = system.trans, 0
    for lattice in compact:
        path = best_path(lattice, SCALE)
        visits = np.split(path.tids, np.flatnonzero(~trans.is_self_loop[path.tids])[1:])
        tids = np.concatenate([np.roll(visit, -1) for visit in visits])
        aligned = phone_lattice(chain([0], [tids]), trans)
        assert [spans(aligned, arcs) for arcs, _ in paths(aligned)] == [phone_spans(system, tids)]
        found += (tids != path.tids).any()
    assert found


def test_incomplete_last_word_keeps_its_frames(system, lexicon):
    """A word without any frame is kept, too."""
    word, pron = next(
        (ids[0], pron) for pron, ids in sorted(system.lang.pronunciation_ids.items()) if len(pron) > 2
    )
    first = [
        tid
        for tid in range(1, system.trans.num_tids + 1)
        if system.trans.tid2phone[tid] == pron[0] and not system.trans.is_self_loop[tid]
    ][:2]
    lattice = chain([word], [first])
    aligned = align_words(lattice, system.trans, lexicon)
    assert content(aligned) == content(lattice) and spans(aligned, range(aligned.num_arcs)) == [(word, 0, 2)]
    late = chain([word, word], [first, []])
    assert content(align_words(late, system.trans, lexicon)) == content(late)


def test_phones_not_matching_words_are_refused(system, compact):
    foreign = align_lexicon([(1, (999,)), (0, (system.lang.phones["SIL"],))])
    spoken = prune(next(lattice for lattice in compact if best_path(lattice, SCALE).words), 0.0, SCALE)
    with pytest.raises(UserError, match="utt-3: its phones do not match its words"):
        align_words(spoken, system.trans, foreign, name="utt-3")


def test_empty_lattice_stays_empty(system, lexicon):
    assert align_words(empty_compact(), system.trans, lexicon).empty
    assert align_phones(empty_compact(), system.trans).empty
