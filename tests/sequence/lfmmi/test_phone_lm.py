"""Phone language models against counts by hand."""

from collections import Counter

import numpy as np
import pytest
from lfmmi_toys import lm_prob, phone_strings, random_sequences

from pyasr.base.errors import UserError
from pyasr.sequence.lfmmi.phone_lm import (
    END,
    PhoneLmOptions,
    count_histories,
    estimate_phone_lm,
    log_like,
    prune_histories,
)

SEQUENCES = random_sequences(0, 40)


def plain_prob(sequences, phones, order) -> float:
    """The product of c(h, p) / c(h), counted by a search through all sequences."""
    prob = 1.0
    for place, phone in enumerate([*phones, END]):
        history = tuple(phones[max(place - order + 1, 0) : place])
        followers = Counter()
        for sequence in sequences:
            whole = [*sequence.tolist(), END]
            for k, follower in enumerate(whole):
                followers[follower] += tuple(whole[max(k - order + 1, 0) : k]) == history
        prob *= followers[phone] / max(sum(followers.values()), 1)
    return prob


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_unpruned_probabilities_are_count_ratios(order):
    fst = estimate_phone_lm(SEQUENCES, PhoneLmOptions(order, 3, 10000))
    seen = {tuple(sequence.tolist()) for sequence in SEQUENCES}
    for phones in [*seen, *phone_strings(2), (3, 3, 3, 3)]:
        assert lm_prob(fst, phones) == pytest.approx(plain_prob(SEQUENCES, phones, order), rel=1e-5)


@pytest.mark.parametrize("num_extra", [0, 3, 8])
def test_pruned_models_are_stochastic_deterministic_and_have_given_size(num_extra):
    fst = estimate_phone_lm(SEQUENCES, PhoneLmOptions(4, 3, num_extra))
    short = set(count_histories(SEQUENCES, 3))
    assert fst.num_states == len(short) + num_extra
    sums = np.bincount(fst.sources, np.exp(-fst.weights.astype(float)), fst.num_states) + np.exp(
        -fst.finals.astype(float)
    )
    assert sums == pytest.approx(1, abs=1e-6)
    assert len(np.unique(np.stack([fst.sources, fst.ilabels]), axis=1).T) == fst.num_arcs
    assert all(lm_prob(fst, sequence.tolist()) > 0 for sequence in SEQUENCES)


@pytest.mark.parametrize(
    "options", [PhoneLmOptions(5, 3, 20), PhoneLmOptions(4, 2, 20), PhoneLmOptions(6, 1, 7)]
)
def test_counts_equal_traversals_of_sequences(options):
    """All sequences are accepted, and probabilities are relative frequencies of arcs on their paths."""
    for seed in range(10):
        sequences, ways = random_sequences(seed, 40), Counter()
        fst = estimate_phone_lm(sequences, options)
        arcs = {key: place for place, key in enumerate(zip(fst.sources.tolist(), fst.ilabels.tolist()))}
        for sequence in sequences:
            state = fst.start
            for phone in sequence.tolist():
                ways[state, phone] += 1
                state = int(fst.nextstates[arcs[state, phone]])
            ways[state, END] += 1
        totals = Counter()
        for (state, _), number in ways.items():
            totals[state] += number
        for (state, phone), number in ways.items():
            cost = fst.finals[state] if phone == END else fst.weights[arcs[state, phone]]
            assert np.exp(-cost) == pytest.approx(number / totals[state], rel=1e-5)
        assert len(ways) == fst.num_arcs + np.isfinite(fst.finals).sum()


def test_no_extra_states_give_lower_order_model():
    """Except for the beginnings of sequences, which have their own histories in both."""
    pruned, lower = (estimate_phone_lm(SEQUENCES, PhoneLmOptions(order, 3, 0)) for order in (4, 3))
    for sequence in SEQUENCES:
        assert lm_prob(pruned, sequence.tolist()) == pytest.approx(
            lm_prob(lower, sequence.tolist()), rel=1e-5
        )


def test_first_pruned_history_costs_least():
    counts = count_histories(SEQUENCES, 4)
    losses = {}
    for history in (history for history in counts if len(history) == 3):
        both = counts[history] + counts.get(history[1:], Counter())
        losses[history] = (
            log_like(counts[history]) + log_like(counts.get(history[1:], Counter())) - log_like(both)
        )
    before = dict(counts)
    prune_histories(counts, 3, len(losses) - 1)
    (gone,) = set(before) - set(counts)
    assert losses[gone] == min(losses.values()) and min(losses.values()) > -1e-9
    assert counts[gone[1:]] == before[gone] + before.get(gone[1:], Counter())


def test_pruning_keeps_counts_and_larger_models_fit_better():
    likes = []
    for num_extra in (0, 2, 5, 10, 1000):
        counts = count_histories(SEQUENCES, 5)
        prune_histories(counts, 3, num_extra)
        assert sum(sum(of.values()) for of in counts.values()) == sum(
            len(sequence) + 1 for sequence in SEQUENCES
        )
        assert sum(len(history) >= 3 for history in counts) <= num_extra
        likes.append(sum(map(log_like, counts.values())))
    assert likes == sorted(likes) and likes[0] < likes[-1]


@pytest.mark.parametrize("sequences", [[], [np.zeros(0, int)], [np.array([1, 0, 2])], [np.array([-1])]])
def test_invalid_sequences_are_refused(sequences):
    with pytest.raises(UserError, match="phone"):
        estimate_phone_lm(sequences)
