"""The topology that a phone can pass in one frame, and conversion of alignments to it."""

import numpy as np
import pytest
import tree_toys
from lfmmi_toys import chain_model

from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.hmm.trees.phone_segments import split_to_phones
from pyasr.hmm.trees.questions import make_questions
from pyasr.hmm.trees.tree_building import Roots, build_tree
from pyasr.hmm.trees.tree_stats import accumulate_tree_stats
from pyasr.sequence.lfmmi.chain import (
    AlignedPhones,
    aligned_phones,
    chain_alignment,
    chain_alignments,
    chain_topology,
    subsample,
)

OLD_TREE = monophone_tree(tree_toys.SETS, dict.fromkeys(tree_toys.topology().phones, 3))
OLD = TransitionModel.from_tree(tree_toys.topology(), OLD_TREE)


def corpus(seed=0, num=30):
    made = tree_toys.random_corpus(np.random.default_rng(seed), num)
    return {
        utt: (phones, *tree_toys.alignment_of(path, phones, OLD, OLD_TREE))
        for utt, (phones, path) in made.items()
    }


def test_n_frames_have_probability_two_to_the_minus_n(tmp_path):
    topology = chain_topology([1, 4])
    topology.write(tmp_path / "topo")
    assert Topology.read(tmp_path / "topo") == topology
    first, second, final = topology.entry(4)
    assert final.transitions == () and first.self_loop(0) is None and second.self_loop(1) == 0
    inner = np.array([[0, 0.5], [0, 0.5]])
    for n in range(1, 6):
        assert (np.linalg.matrix_power(inner, n - 1) @ [0.5, 0.5])[0] == 0.5**n


def test_phones_of_alignments():
    made = corpus()
    for utt, aligned in aligned_phones(OLD, {utt: tids for utt, (_, tids, _) in made.items()}):
        phones, tids, places = made[utt]
        assert aligned.phones.tolist() == phones and aligned.num_frames == len(tids)
        assert np.repeat(np.arange(len(phones)), np.diff(aligned.starts)).tolist() == places


@pytest.mark.parametrize(
    "starts, factor, expected",
    [
        ([0, 9, 12, 20], 3, [0, 3, 4, 7]),
        ([0, 7, 8, 20], 3, [0, 3, 4, 7]),  # no third frame in 7 .. 7
        ([0, 1, 2, 9], 3, [0, 1, 2, 3]),
        ([0, 7, 8, 9], 3, [0, 1, 2, 3]),
        ([0, 7, 8, 9], 1, [0, 7, 8, 9]),
        ([0, 3, 4, 5], 3, None),
    ],
)
def test_subsampling_keeps_a_frame_per_phone(starts, factor, expected):
    low = subsample(AlignedPhones(np.array([1, 2, 3], np.int32), np.array(starts)), factor)
    assert expected is None and low is None or low.starts.tolist() == expected


def test_chain_alignments_are_paths_of_their_phones():
    trans, tree = chain_model(3, 1)
    rng, made = np.random.default_rng(0), {}
    for number in range(30):
        phones, durations = rng.choice([1, 2, 3], 6).astype(np.int32), rng.integers(1, 5, 6)
        made[f"u{number}"] = AlignedPhones(phones, np.r_[0, np.cumsum(durations)])
    alignments = {utt: chain_alignment(aligned, trans, tree) for utt, aligned in made.items()}
    for utt, found in aligned_phones(trans, alignments):
        assert (found.phones == made[utt].phones).all() and (found.starts == made[utt].starts).all()
    segments = split_to_phones(trans, alignments)
    windows = segments.windows(3, 1)[segments.phone_of]
    is_later = (np.diff(segments.phone_of, prepend=-1) == 0).astype(int)
    assert (trans.tid2pdf[segments.tids] == tree.pdfs(windows, is_later)).all()


def test_tree_of_left_biphones_from_chain_alignments():
    """Alignments of three-state HMMs, every third frame, and from these a tree of left biphones by the code
    for other trees."""
    made = corpus(1, 60)
    trans, alignments = chain_alignments(
        OLD, {utt: tids for utt, (_, tids, _) in made.items()}, tree_toys.SETS
    )
    kept = {utt for utt, (phones, tids, _) in made.items() if len(phones) <= -(-len(tids) // 3)}
    assert set(alignments) == kept and len(kept) > 0
    rng = np.random.default_rng(2)
    feats = {utt: rng.standard_normal((len(made[utt][1]), 2)).astype(np.float32)[::3] for utt in alignments}
    assert all(len(feats[utt]) == len(alignments[utt]) for utt in alignments)
    stats = accumulate_tree_stats(
        trans, alignments, feats, tree_toys.SIL, context_width=2, central_position=1
    )
    questions = make_questions(stats, tree_toys.SETS, [], seed=1)
    roots = Roots(tree_toys.SETS, [True] * 5, [True] * 5)
    tree = build_tree(
        stats, questions, roots, chain_topology(OLD.topology.phones), 10, thresh=0.0, cluster_thresh=0.0
    )
    assert (
        tree.context_width == 2
        and TransitionModel.from_tree(chain_topology(OLD.topology.phones), tree).num_pdfs
        == tree.num_pdfs
        == 10
    )
