"""Phones in alignments and conversion between models, against paths that the tests generate."""

import numpy as np
import pytest
from tree_toys import SETS, alignment_of, random_corpus, topology

from pyasr.base.errors import UserError
from pyasr.hmm.model.topology import Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, Split, TreeTable, monophone_tree
from pyasr.hmm.trees.phone_segments import convert_alignments, split_to_phones

TOPO = topology()
MONO_TREE = monophone_tree(SETS, dict.fromkeys(TOPO.phones, 3))
MONO = TransitionModel.from_tree(TOPO, MONO_TREE)
_states = [TreeTable(-1, tuple(Leaf(3 * i + c) for c in range(3))) for i in range(5)]
TRI_TREE = ContextTree(
    3,
    1,
    Split(
        1,
        frozenset({1, 2}),
        _states[0],
        Split(
            0,
            frozenset({0, 1, 3}),
            _states[1],
            Split(2, frozenset({4, 5, 0}), Split(1, frozenset({3, 5}), _states[2], _states[3]), _states[4]),
        ),
    ),
)
TRI = TransitionModel.from_tree(TOPO, TRI_TREE)
CORPUS = random_corpus(np.random.default_rng(0), 40)


@pytest.mark.parametrize("reordered", [True, False])
def test_phones_and_windows(reordered):
    aligned = {
        utt: alignment_of(path, phones, TRI, TRI_TREE, reordered) for utt, (phones, path) in CORPUS.items()
    }
    segments = split_to_phones(TRI, {utt: tids for utt, (tids, _) in aligned.items()})
    assert segments.phones.tolist() == [phone for phones, _ in CORPUS.values() for phone in phones]
    assert segments.utts.tolist() == [
        number for number, (phones, _) in enumerate(CORPUS.values()) for _ in phones
    ]
    expected, before = [], 0
    for utt, (_, places) in aligned.items():
        expected += [before + place for place in places]
        before += len(CORPUS[utt][0])
    assert segments.phone_of.tolist() == expected
    assert (segments.starts == np.searchsorted(expected, np.arange(before + 1))).all()
    windows = [[0, *phones, 0][i : i + 3] for phones, _ in CORPUS.values() for i in range(len(phones))]
    assert segments.windows(3, 1).tolist() == windows
    assert segments.windows(1, 0)[:, 0].tolist() == segments.phones.tolist()
    assert segments.windows(2, 1).tolist() == [window[:2] for window in windows]


@pytest.mark.parametrize("reordered", [True, False])
def test_alignment_conversion_is_invertible(reordered):
    mono = {
        utt: alignment_of(path, phones, MONO, MONO_TREE, reordered)[0]
        for utt, (phones, path) in CORPUS.items()
    }
    expected = {
        utt: alignment_of(path, phones, TRI, TRI_TREE, reordered)[0] for utt, (phones, path) in CORPUS.items()
    }
    found = convert_alignments(MONO, TRI, TRI_TREE, mono)
    assert list(found) == list(mono) and all((found[utt] == expected[utt]).all() for utt in mono)
    back = convert_alignments(TRI, MONO, MONO_TREE, found)
    assert all((back[utt] == mono[utt]).all() for utt in mono)


def test_self_loop_order_is_detected_from_one_state():
    """The pdf of the first state tells the order."""
    path = [
        (0, 1, 0, 1, 2),
        (0, 1, 1, 2, 0),
        (0, 1, 2, 1, 0),
        (1, 3, 0, 1, 0),
        (1, 3, 1, 1, 0),
        (1, 3, 2, 1, 0),
    ]
    for reordered in (True, False):
        tids, _ = alignment_of(path, [1, 3], MONO, MONO_TREE, reordered)
        segments = split_to_phones(MONO, {"a": tids})
        assert segments.phones.tolist() == [1, 3] and segments.starts.tolist() == [0, 5, 8]


PATH = [(0, 1, 0, 1, 1), (0, 1, 1, 2, 1), (0, 1, 2, 1, 1), (1, 3, 0, 1, 1), (1, 3, 1, 1, 1), (1, 3, 2, 1, 1)]
GOOD = alignment_of(PATH, [1, 3], MONO, MONO_TREE)[0]
OTHER_PHONE = alignment_of([(0, 5, *visit[2:]) for visit in PATH[3:]], [5], MONO, MONO_TREE)[0]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(GOOD[1:], id="begins with a self-loop"),
        pytest.param(GOOD[:4], id="ends within a phone"),
        pytest.param(np.delete(GOOD, [2, 3]), id="skips a state where no arc does"),
        pytest.param(np.insert(GOOD, 4, GOOD[1]), id="self-loop of another state"),
        pytest.param(np.append(GOOD[:8], OTHER_PHONE[2:]), id="changes the phone half way"),
        pytest.param(GOOD[2:], id="begins in the second state"),
    ],
)
def test_invalid_alignments_are_refused(bad):
    with pytest.raises(
        UserError, match=r"alignment of b: not a path through the phones' HMMs around frame \d+; align again"
    ):
        split_to_phones(MONO, {"a": GOOD, "b": bad, "c": GOOD})


def test_alignments_of_other_model_are_refused():
    with pytest.raises(
        UserError, match="alignment of b: transition-id 9999 in frame 0, but the model has 1 to"
    ):
        split_to_phones(MONO, {"a": GOOD, "b": np.array([9999])})
    with pytest.raises(UserError, match="alignment of b: transition-id -1 in frame 0"):
        convert_alignments(MONO, TRI, TRI_TREE, {"b": np.array([-1])})


def test_empty_alignments_are_accepted():
    assert convert_alignments(MONO, TRI, TRI_TREE, {}) == {}
    assert len(split_to_phones(MONO, {}).phones) == 0


def test_models_with_other_hmms_are_refused():
    other = Topology([left_to_right(3)], dict.fromkeys(TOPO.phones, 0))
    with pytest.raises(UserError, match="phone 1 has different HMMs"):
        convert_alignments(MONO, TransitionModel.from_tree(other, TRI_TREE), TRI_TREE, {"a": GOOD})
