"""Numerator graphs against all paths of phones through their HMMs and all paths of the denominator."""

import numpy as np
import pytest
import torch
from lfmmi_toys import (
    allowed_strings,
    chain_model,
    enumerated,
    random_sequences,
    skipping_model,
    string_weight,
)

from pyasr.base.errors import UserError
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.sequence.lfmmi.chain import AlignedPhones, chain_topology
from pyasr.sequence.lfmmi.denominator_graph import make_denominator_graph
from pyasr.sequence.lfmmi.lfmmi import lf_mmi_with_posteriors
from pyasr.sequence.lfmmi.phone_lm import PhoneLmOptions, estimate_phone_lm
from pyasr.sequence.lfmmi.supervision import SupervisionMaker, SupervisionOptions

SEQUENCES = random_sequences(0)
PHONE_LM = estimate_phone_lm(SEQUENCES, PhoneLmOptions(3, 2, 4))
MODELS = [
    pytest.param(chain_model(1, 0), id="no context"),
    pytest.param(chain_model(2, 1), id="left"),
    pytest.param(chain_model(3, 1), id="both"),
    pytest.param(chain_model(2, 1, tied=True), id="tied"),
    pytest.param(skipping_model(), id="skips"),
]
ALIGNED = [
    AlignedPhones(np.array(phones, np.int32), np.array(starts))
    for phones, starts in (
        ([1, 2, 1], [0, 3, 9, 16]),
        ([3, 3, 1], [0, 6, 9, 15]),
        ([2], [0, 4]),
        ([1, 1, 1, 2], [0, 2, 6, 10, 17]),
    )
]


def maker(model, *tolerances, factor=3) -> SupervisionMaker:
    return SupervisionMaker(
        make_denominator_graph(PHONE_LM, *model), *model, SupervisionOptions(*tolerances, factor)
    )


def strings_of(supervision) -> dict:
    """{string of pdfs: probability} by following every path."""
    found = {}

    def walk(state, pdfs, log_prob):
        if supervision.finals[state] == 0:
            found[pdfs] = found.get(pdfs, 0.0) + np.exp(log_prob)
        for a in np.flatnonzero(supervision.sources == state):
            slot = supervision.slots[a]
            assert supervision.slot_frames[slot] == len(pdfs)
            walk(
                supervision.targets[a],
                (*pdfs, int(supervision.slot_pdfs[slot])),
                log_prob + supervision.log_probs[a],
            )

    walk(0, (), 0.0)
    return found


def weighed(graph, strings) -> dict:
    weights = {pdfs: string_weight(graph, pdfs) for pdfs in strings}
    return {pdfs: weight for pdfs, weight in weights.items() if weight}


@pytest.mark.parametrize("aligned", ALIGNED)
@pytest.mark.parametrize("model", MODELS)
def test_whole_utterance_has_strings_within_tolerances(model, aligned):
    for tolerances in ((5, 5), (1, 4), (20, 20)):
        made = maker(model, *tolerances)
        allowed = allowed_strings(aligned, made.options, *model)
        if not weighed(made.graph, allowed):
            with pytest.raises(UserError, match="utt: "):
                made.whole("utt", aligned)
        else:
            assert strings_of(made.whole("utt", aligned)) == pytest.approx(
                weighed(made.graph, allowed), rel=1e-6
            )


@pytest.mark.parametrize("model", MODELS)
def test_chunks_have_parts_of_strings(model):
    made = maker(model, 4, 4)
    for aligned in ALIGNED:
        states = made.utterance("utt", aligned)
        allowed = allowed_strings(aligned, made.options, *model)
        for first in range(states.num_frames):
            for num_frames in range(1, states.num_frames - first + 1):
                parts = {pdfs[first : first + num_frames] for pdfs in allowed}
                expected = weighed(made.graph, parts)
                if expected:
                    assert strings_of(made.chunk(states, first, num_frames)) == pytest.approx(
                        expected, rel=1e-6
                    )
                else:
                    with pytest.raises(UserError, match="no path"):
                        made.chunk(states, first, num_frames)


def test_posteriors_equal_enumeration_and_sum_to_one():
    model = chain_model(3, 1)
    made = maker(model)
    supervisions = [made.whole("a", ALIGNED[0]), made.whole("b", ALIGNED[3])]
    logits = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 7, made.graph.num_pdfs)) * 3)
    found = lf_mmi_with_posteriors(logits, supervisions, made.graph)[1].numpy()
    for number, supervision in enumerate(supervisions):
        num_frames = supervision.num_frames
        _, expected = enumerated(strings_of(supervision), logits[number, :num_frames].numpy())
        assert found[number, :num_frames] == pytest.approx(expected, abs=1e-9)
        assert found[number, :num_frames].sum(axis=1) == pytest.approx(1)
        assert not found[number, num_frames:].any()


def test_every_state_is_on_a_path_and_arcs_are_in_time_order():
    supervision = maker(chain_model(2, 1), 9, 9).whole("utt", ALIGNED[3])
    assert (np.diff(supervision.sources) >= 0).all() and (supervision.targets > supervision.sources).all()
    num_states = len(supervision.finals)
    assert set(supervision.targets.tolist()) == set(range(1, num_states))
    assert set(supervision.sources.tolist()) == set(np.flatnonzero(supervision.finals > 0).tolist())


def test_impossible_supervision_is_refused_by_name():
    made = maker(chain_model(2, 1), 0, 0)
    with pytest.raises(UserError, match="late: the 4 aligned phones do not fit in 3 frames"):
        made.whole("late", AlignedPhones(np.array([1, 2, 1, 2], np.int32), np.array([0, 2, 4, 6, 8])))
    for phones, starts in (([], [0]), ([], [5]), ([1], [0, 0])):
        with pytest.raises(UserError, match="empty: an utterance without"):
            made.whole("empty", AlignedPhones(np.array(phones, np.int32), np.array(starts)))
    with pytest.raises(UserError, match="phone 7"):
        made.whole("unknown", AlignedPhones(np.array([7], np.int32), np.array([0, 9])))
    states = made.utterance("utt", ALIGNED[0])
    for first, num_frames in ((0, 0), (-1, 2), (4, 3)):
        with pytest.raises(ValueError, match="utt: frames"):
            made.chunk(states, first, num_frames)
    with pytest.raises(UserError, match="create the graph from this model"):
        SupervisionMaker(made.graph, *chain_model(3, 1))
    unseen = AlignedPhones(np.array([3, 3, 3, 3, 3, 3], np.int32), np.array([0, 3, 6, 9, 12, 15, 18]))
    with pytest.raises(UserError, match="unseen: the denominator graph has no path"):
        made.whole("unseen", unseen)


def test_chunk_after_reach_of_initial_states_is_refused():
    """The language has one sentence with 150 phones of two outputs each. A chunk may begin in the first 100
    at most."""
    phones = np.arange(1, 151)
    tree = monophone_tree([[phone] for phone in phones.tolist()], dict.fromkeys(phones.tolist(), 2))
    model = TransitionModel.from_tree(chain_topology(phones.tolist()), tree), tree
    made = SupervisionMaker(make_denominator_graph(estimate_phone_lm([phones]), *model), *model)
    states = made.utterance("utt", AlignedPhones(phones.astype(np.int32), 6 * np.arange(151)))
    assert made.chunk(states, 0, 50).num_frames == 50
    with pytest.raises(
        UserError,
        match="utt: .* for the phones of frames 240 .. 289; estimate .* with this utterance and many others",
    ):
        made.chunk(states, 240, 50)
