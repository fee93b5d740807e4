"""Tree statistics, questions and decision trees against exhaustive search and plain loops."""

import itertools
import json

import numpy as np
import pytest
from tree_toys import (
    PHONES,
    SETS,
    SIL,
    alignment_of,
    emission,
    plain_log_like,
    plain_stats,
    random_corpus,
    topology,
)

from pyasr.base.errors import UserError
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import PDF_CLASS, ContextTree, Leaf, Split, leaves, monophone_tree
from pyasr.hmm.trees import phone_segments, tree_stats
from pyasr.hmm.trees.leaf_clustering import cluster_leaves
from pyasr.hmm.trees.questions import cluster_phones, make_questions
from pyasr.hmm.trees.tree_building import Roots, build_tree, grow_tree, init_model_from_stats, read_roots
from pyasr.hmm.trees.tree_stats import TreeStats, accumulate_tree_stats, log_likelihood
from pyasr.parallel.communication.rank_threads import run_threads

TOPO = topology()
TREE = monophone_tree(SETS, dict.fromkeys(TOPO.phones, 3))
TRANS = TransitionModel.from_tree(TOPO, TREE)
_rng = np.random.default_rng(3)
CORPUS = random_corpus(_rng, 60)
ALIGNMENTS = {utt: alignment_of(path, phones, TRANS, TREE)[0] for utt, (phones, path) in CORPUS.items()}
FEATS = {utt: emission(_rng, phones, path) for utt, (phones, path) in CORPUS.items()}
ROOTS = Roots(SETS, [True, True, True, False, True], [True, True, True, True, True])


@pytest.fixture(scope="module")
def stats() -> TreeStats:
    return accumulate_tree_stats(TRANS, ALIGNMENTS, FEATS, SIL)


@pytest.fixture(scope="module")
def questions(stats):
    return make_questions(stats, SETS, [[3, 5, 7], [4, 6]])


def test_statistics_equal_loops(stats):
    expected = plain_stats(TRANS, CORPUS, FEATS, SIL)
    assert list(map(tuple, stats.events.tolist())) == sorted(expected)
    assert np.allclose(stats.sums, [expected[event] for event in sorted(expected)], rtol=1e-12)
    assert stats.num_frames == sum(map(len, FEATS.values()))


def with_phones_times(factor):
    """TRANS with other phone ids, for which the same alignments are valid."""
    topo = Topology(TOPO.entries, {phone * factor: entry for phone, entry in TOPO.phone_to_entry.items()})
    return TransitionModel(topo, TRANS.tuples * [factor, 1, 1])


def test_statistics_with_large_phone_ids(stats):
    many = accumulate_tree_stats(with_phones_times(4000), ALIGNMENTS, FEATS, [4000 * phone for phone in SIL])
    windows = stats.events[:, :3]
    assert (many.events[:, :3] == np.where(windows > 0, 4000 * windows, windows)).all()
    assert (many.events[:, 3] == stats.events[:, 3]).all() and (many.sums == stats.sums).all()
    with pytest.raises(
        UserError, match="the topology has a phone 32768, but the tree statistics support phones up to 32766"
    ):
        accumulate_tree_stats(with_phones_times(4096), ALIGNMENTS, FEATS)
    with pytest.raises(UserError, match="a context of 4 phones is too wide for the tree statistics"):
        accumulate_tree_stats(TRANS, ALIGNMENTS, FEATS, context_width=4)


def test_statistics_of_parts_sum_to_whole(stats, tmp_path):
    utts = list(ALIGNMENTS)
    shares = ({utt: ALIGNMENTS[utt] for utt in share} for share in (utts[:5], utts[5:50], utts[50:]))
    parts = [accumulate_tree_stats(TRANS, share, FEATS, SIL) for share in shares]
    parts[1].save(tmp_path / "stats")
    total = TreeStats.add([parts[0], TreeStats.load(tmp_path / "stats"), parts[2]])
    assert (total.events == stats.events).all() and np.allclose(total.sums, stats.sums, rtol=1e-12)


@pytest.mark.parametrize("without", [(), (0,), (2,), (0, 1, 3)])
def test_statistics_of_ranks_are_summed_on_rank_0_in_short_messages(monkeypatch, without):
    """Bit-identical to the statistics of all ranks added in order. A rank may have none."""
    monkeypatch.setattr(tree_stats, "_MESSAGE_BYTES", 5000)
    shares = [dict(list(ALIGNMENTS.items())[begin::4]) for begin in range(4)]
    parts = [
        None if rank in without else accumulate_tree_stats(TRANS, share, FEATS, SIL)
        for rank, share in enumerate(shares)
    ]
    sent = []

    def rank(comm):
        real = comm.send
        comm.send = lambda array, to, tag: sent.append((to, array.nbytes)) or real(array, to, tag)
        return tree_stats.reduced(parts[comm.rank], comm)

    total, *others = run_threads(4, rank)
    expected = TreeStats.add([part for part in parts if part])
    assert np.array_equal(total.events, expected.events) and np.array_equal(total.sums, expected.sums)
    assert (
        others == [None] * 3
        and {to for to, _ in sent} == {0}
        and max(num_bytes for _, num_bytes in sent) <= 5000
    )
    assert sum(num_bytes for _, num_bytes in sent) == 3 * 32 + sum(
        part.events.nbytes + part.sums.nbytes for part in parts[1:] if part
    )


def test_statistics_of_groups_equal_whole(monkeypatch):
    """Only the frames of one group are in memory."""
    expected = accumulate_tree_stats(TRANS, ALIGNMENTS, FEATS, SIL)
    real = phone_segments.groups
    monkeypatch.setattr(tree_stats, "groups", lambda alignments: real(alignments, 7))
    found = accumulate_tree_stats(TRANS, ALIGNMENTS, FEATS, SIL)
    assert np.array_equal(found.events, expected.events) and np.array_equal(found.sums, expected.sums)


def test_likelihood_equals_kaldi(root, stats):
    for row in json.loads((root / "tests/fixtures/kaldi_hmm.json").read_text())["gaussians"]:
        assert log_likelihood(np.array(row["sums"])) == pytest.approx(row["objf"], rel=1e-5)
    assert log_likelihood(stats.sums[5]) == pytest.approx(plain_log_like([stats.sums[5]]))


def test_questions_contain_every_set_and_extra_ones(stats, questions):
    assert questions[PDF_CLASS] == [frozenset({0}), frozenset({0, 1})]
    for position in range(3):
        asked = questions[position]
        assert {frozenset(members) for members in SETS} | {frozenset({3, 5, 7}), frozenset({4, 6})} <= set(
            asked
        )
        assert len(set(asked)) == len(asked) and frozenset(TOPO.phones) in asked
    for question, members in itertools.product(cluster_phones(stats, SETS), map(frozenset, SETS)):
        assert members <= question or not members & question


def test_first_phone_split_is_optimal(stats):
    """No other two clusters of the phones' central states have a larger likelihood."""
    central = [
        stats.sums[np.isin(stats.key(1), members) & (stats.key(PDF_CLASS) == 1)].sum(axis=0)
        for members in SETS
    ]
    sides = [side for size in (1, 2) for side in itertools.combinations(range(len(SETS)), size)]

    def value(side):
        return plain_log_like([central[i] for i in side]) + plain_log_like(
            [central[i] for i in range(len(SETS)) if i not in side]
        )

    best = {phone for i in max(sides, key=value) for phone in SETS[i]}
    found = cluster_phones(stats, SETS)
    assert best in found and set(TOPO.phones) - best in found


def test_questions_are_deterministic(stats):
    assert make_questions(stats, SETS) == make_questions(stats, SETS)


def events_below(stats, rows, key, values):
    yes = [i for i in rows if stats.key(key)[i] in values]
    return yes, [i for i in rows if i not in yes]


def best_gain(stats, questions, rows):
    """Largest gain of all questions about the events `rows`, by exhaustive search."""
    own, best = plain_log_like(stats.sums[rows]), 0.0
    for key, sets in questions.items():
        if any(stats.key(key)[i] < 0 for i in rows):
            continue
        for values in sets:
            yes, no = events_below(stats, rows, key, values)
            best = max(best, plain_log_like(stats.sums[yes]) + plain_log_like(stats.sums[no]) - own)
    return best


def greedy(stats, questions, start, num_splits):
    """Gains of a greedy search that examines all leaves and all questions before each split."""
    parts, gains = [rows for rows in start if rows], []
    for _ in range(num_splits):
        found = []
        for number, rows in enumerate(parts):
            own = plain_log_like(stats.sums[rows])
            for key, sets in questions.items():
                for values in sets if min(stats.key(key)[rows]) >= 0 else []:
                    yes, no = events_below(stats, rows, key, values)
                    if yes and no:
                        found.append(
                            (
                                plain_log_like(stats.sums[yes]) + plain_log_like(stats.sums[no]) - own,
                                number,
                                yes,
                                no,
                            )
                        )
        gain, number, yes, no = max(found, key=lambda item: item[0])
        parts[number : number + 1] = [yes, no]
        gains.append(gain)
    return gains


def test_each_split_equals_exhaustive_search(stats, questions):
    built = grow_tree(stats, questions, ROOTS, TOPO, max_leaves=7 + 12, thresh=0.0, cluster_thresh=0.0)
    start = [[i for i in range(len(stats.events)) if stats.key(1)[i] in members] for members in SETS[:3]]
    start += [
        [i for i in range(len(stats.events)) if stats.key(1)[i] == 6 and stats.key(PDF_CLASS)[i] == c]
        for c in range(3)
    ]
    start += [[i for i in range(len(stats.events)) if stats.key(1)[i] in SETS[4]]]
    assert np.allclose([gain for gain, *_ in built.splits], greedy(stats, questions, start, 12), rtol=1e-9)
    assert built.num_split_leaves == built.tree.num_pdfs == 19
    assert built.split_log_like - built.stub_log_like == pytest.approx(sum(gain for gain, *_ in built.splits))
    assert built.stub_log_like == pytest.approx(sum(plain_log_like(stats.sums[rows]) for rows in start))


def test_tree_leaves_have_reported_data(stats, questions):
    built = grow_tree(stats, questions, ROOTS, TOPO, max_leaves=40, thresh=5.0, round_leaves_to=1)
    pdfs = built.tree.pdfs(stats.events[:, :3], stats.events[:, 3])
    assert sum(
        plain_log_like(stats.sums[pdfs == pdf]) for pdf in range(built.tree.num_pdfs)
    ) == pytest.approx(built.log_like)
    assert built.tree.num_pdfs < built.num_split_leaves and built.log_like < built.split_log_like
    assert {leaf.pdf for leaf in leaves(built.tree.root)} == set(range(built.tree.num_pdfs))


def test_growth_stops_at_threshold(stats, questions):
    built = grow_tree(stats, questions, ROOTS, TOPO, max_leaves=10**6, thresh=20.0, cluster_thresh=0.0)
    assert min(gain for gain, *_ in built.splits) >= 20.0
    pdfs = built.tree.pdfs(stats.events[:, :3], stats.events[:, 3])
    assert all(
        best_gain(stats, questions, np.flatnonzero(pdfs == pdf).tolist()) < 20.0
        for pdf in range(built.tree.num_pdfs)
    )


def test_unsplit_roots_have_one_leaf_per_state(stats, questions):
    roots = Roots(SETS, [False] * 5, [False, False, True, True, True])
    tree = build_tree(stats, questions, roots, TOPO, 60, thresh=1.0, cluster_thresh=0.0)
    for phone in (1, 2, 3, 4):
        assert all(len(tree.reachable(phone, c)) == 1 for c in range(3))
    assert any(len(tree.reachable(5, c)) > 1 for c in range(3))


def test_silence_is_split_only_by_state(stats, questions):
    tree = build_tree(stats, questions, ROOTS, TOPO, 60, thresh=1.0, cluster_thresh=0.0)
    windows = np.array([(left, 1, right) for left in (0, *PHONES) for right in (0, *PHONES)])
    assert all(len(set(tree.pdfs(windows, np.full(len(windows), c)).tolist())) == 1 for c in range(3))


@pytest.mark.parametrize("round_to, expected", [(1, None), (8, 0), (5, 0)])
def test_number_of_pdfs_is_rounded(stats, questions, round_to, expected):
    built = grow_tree(stats, questions, ROOTS, TOPO, 45, thresh=1.0, round_leaves_to=round_to)
    assert expected is None or built.tree.num_pdfs % round_to == expected


def test_clustering_equals_exhaustive_merging():
    rng = np.random.default_rng(5)
    n = rng.integers(1, 50, 14).astype(float)
    mean = rng.standard_normal((14, 2)) * 2
    sums = np.column_stack([n, n[:, None] * mean, n[:, None] * (mean**2 + rng.uniform(0.5, 2.0, (14, 2)))])
    groups = np.array([0] * 8 + [1] * 6)
    clusters = [([i], groups[i]) for i in range(14)]
    while True:
        losses = [
            (plain_log_like(sums[a]) + plain_log_like(sums[b]) - plain_log_like(sums[a + b]), i, j)
            for i, (a, group) in enumerate(clusters)
            for j, (b, other) in enumerate(clusters[:i])
            if group == other
        ]
        loss, i, j = min(losses)
        if loss >= 15.0:
            break
        clusters[j] = (clusters[j][0] + clusters.pop(i)[0], clusters[j][1])
    found = cluster_leaves(sums, groups, 15.0, 1, 0.01)
    assert {tuple(np.flatnonzero(found == c)) for c in set(found.tolist())} == {
        tuple(sorted(members)) for members, _ in clusters
    }
    assert list(dict.fromkeys(found.tolist())) == list(range(len(clusters)))


def test_first_model_has_one_gaussian_per_pdf(stats, questions):
    tree = build_tree(stats, questions, ROOTS, TOPO, 30, thresh=1.0)
    trans, gmm, occupancies = init_model_from_stats(stats, tree, TOPO)
    pdfs = tree.pdfs(stats.events[:, :3], stats.events[:, 3])
    assert gmm.num_pdfs == trans.num_pdfs == tree.num_pdfs and (gmm.weights == 1).all()
    for pdf in range(tree.num_pdfs):
        n, x, x2 = np.split(stats.sums[pdfs == pdf].sum(axis=0), [1, 4])
        assert occupancies[pdf] == n[0]
        assert np.allclose(gmm.means[pdf], x / n, rtol=1e-4, atol=1e-5)
        assert np.allclose(1 / gmm.inv_vars[pdf], np.maximum(x2 / n - (x / n) ** 2, 0.01), rtol=1e-4)


def test_pdf_without_data_gets_all_data(stats):
    chosen = stats.select(stats.key(1) != 5)
    trans, gmm, occupancies = init_model_from_stats(chosen, monophone_tree_of_three(), TOPO)
    empty = int(np.argmin(occupancies))
    assert occupancies[empty] == 0
    assert np.allclose(gmm.means[empty], chosen.sums.sum(axis=0)[1:4] / chosen.num_frames, rtol=1e-5)


def monophone_tree_of_three():
    return ContextTree(3, 1, Split(1, frozenset({5}), Leaf(0), Split(1, frozenset({1, 2}), Leaf(1), Leaf(2))))


def test_mismatched_features_are_refused():
    with pytest.raises(UserError, match=r"utterance utt-7: \d+ frames in its alignment, 3 in its features"):
        accumulate_tree_stats(TRANS, ALIGNMENTS, FEATS | {"utt-7": np.zeros((3, 3), np.float32)}, SIL)
    with pytest.raises(UserError, match="no alignments"):
        accumulate_tree_stats(TRANS, {}, FEATS)


def test_roots_files_are_read(tmp_path, stats, questions):
    path = tmp_path / "roots.int"
    path.write_text("shared split 2 1\nnot-shared not-split 3\n")
    assert read_roots(path) == Roots([[1, 2], [3]], [True, False], [True, False])
    with pytest.raises(UserError, match="phones 4 5 6 7 8 only in the topology"):
        grow_tree(stats, questions, read_roots(path), TOPO, 10)
    for content, message in (
        ("shared 1 2\n", "roots.int:1: 'shared|not-shared"),
        ("shared split 1\nshared split SIL\n", "roots.int:2: phone ids"),
        ("shared split 1\nshared split 1 2\n", "a phone is in two roots"),
        ("", "or there is no phone"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=message):
            read_roots(path)


def test_statistics_of_other_phones_are_refused(stats, questions):
    with pytest.raises(UserError, match="none of the phones to be clustered"):
        cluster_phones(stats, [[77], [78]])


def test_damaged_statistics_are_refused(tmp_path):
    (tmp_path / "stats").write_bytes(b"PK damaged")
    with pytest.raises(UserError, match="stats: not a file of arrays .*accumulate the tree statistics again"):
        TreeStats.load(tmp_path / "stats")
