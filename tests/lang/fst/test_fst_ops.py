import kaldi_binaries
import numpy as np
import pytest
from fst_paths import best_cost, random_paths

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.fst import fst_ops as ops


def chain_with_shortcuts(
    seed: int, num_states: int = 120, num_extra: int = 60, epsilon: float = 0.6, num_labels: int = 30
) -> Fst:
    """A random acyclic transducer with many epsilon labels and some final states."""
    rng = np.random.default_rng(seed)
    sources = np.r_[np.arange(num_states - 1), rng.integers(0, num_states - 1, num_extra)]
    targets = np.r_[
        np.arange(1, num_states),
        np.minimum(sources[num_states - 1 :] + rng.integers(1, 6, num_extra), num_states - 1),
    ]
    labels = np.where(
        rng.random((2, len(sources))) < epsilon, 0, rng.integers(1, num_labels, (2, len(sources)))
    )
    finals = {int(state): float(rng.random()) for state in rng.integers(0, num_states, num_states // 10)} | {
        num_states - 1: 0.5
    }
    return Fst.from_arcs(num_states, 0, sources, *labels, 3 * rng.random(len(sources)), targets, finals)


def assert_equivalent(one: Fst, other: Fst, num: int = 30, stop: float = 0.3, abs: float = 2e-3):
    """Both have the same best cost for the labels of random paths of either."""
    for fst in (one, other):
        paths = random_paths(fst, num, stop=stop)
        assert paths
        for ilabels, olabels, _ in paths:
            assert best_cost(one, ilabels, olabels) == pytest.approx(
                best_cost(other, ilabels, olabels), abs=abs
            )


@pytest.mark.parametrize("seed", range(6))
def test_local_epsilon_removal_keeps_all_costs(seed):
    fst = chain_with_shortcuts(seed)
    assert_equivalent(fst, ops.remove_epsilons_local(fst))


@kaldi_binaries.needed
@pytest.mark.parametrize("seed", range(6))
def test_local_epsilon_removal_equals_kaldi(tmp_path, seed):
    fst = chain_with_shortcuts(seed, num_states=300, num_extra=100)
    ours = ops.remove_epsilons_local(fst)
    theirs = ops.connect(kaldi_binaries.apply("fstrmepslocal", fst, tmp_path))
    assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)
    assert ops.stochasticity(ours) == pytest.approx(ops.stochasticity(theirs), abs=1e-3)


def test_local_epsilon_removal_ends_on_epsilon_cycles():
    fst = Fst.from_arcs(
        4, 0, [0, 1, 2, 2], [1, 0, 0, 2], [0, 0, 0, 0], [0.5, 0.25, 0.25, 1.0], [1, 2, 1, 3], {3: 0.0}
    )
    assert best_cost(ops.remove_epsilons_local(fst), [1, 2], []) == pytest.approx(1.75)
    trap = Fst.from_arcs(3, 0, [0, 0, 1, 2], [1, 2, 0, 0], [0] * 4, [0.0] * 4, [1, 0, 2, 1], {0: 0.0})
    assert best_cost(ops.remove_epsilons_local(trap), [2], []) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_pushing_equalises_sums_and_keeps_all_costs(seed):
    fst = chain_with_shortcuts(seed, num_states=25, num_extra=20)
    pushed = ops.push_special(fst)
    least, greatest = ops.stochasticity(pushed)
    assert greatest - least < 5e-3 < np.subtract(*ops.stochasticity(fst)[::-1])
    assert_equivalent(fst, pushed)


@kaldi_binaries.needed
def test_stochasticity_equals_kaldi(tmp_path):
    fst = chain_with_shortcuts(5)
    write_fst(tmp_path / "a.fst", fst)
    report = kaldi_binaries.run_any("fstisstochastic", tmp_path / "a.fst")
    greatest, least = (float(value) for value in report.split())
    assert ops.stochasticity(fst) == pytest.approx((least, greatest), abs=1e-3)


def test_connect_removes_dead_ends():
    fst = Fst.from_arcs(5, 1, [1, 1, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [0.0] * 4, [2, 3, 1, 2], {2: 0.5})
    assert ops.connect(fst).text() == "0\t1\t1\t1\t0\n0\t2\t2\t2\t0\n1\t0.5\n2\t0\t3\t3\t0\n"
    assert ops.connect(Fst.from_arcs(2, 0, [0], [1], [1], [0.0], [1])).num_states == 0


@pytest.mark.parametrize("seed", range(8))
def test_connect_words_equals_connect_of_their_arcs(seed):
    fst = chain_with_shortcuts(seed, num_labels=6)
    words = np.random.default_rng(seed).choice(12, 4, replace=False)
    for some in (words, np.append(words, 0), words[:0], np.arange(6)):
        expected, found = ops.connect(fst.keep_arcs(np.isin(fst.olabels, some))), ops.connect_words(fst, some)
        assert found.start == expected.start
        for name in ("arc_offsets", "ilabels", "olabels", "weights", "nextstates", "finals"):
            ours, theirs = getattr(found, name), getattr(expected, name)
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_connect_equals_openfst():
    kaldifst = pytest.importorskip("kaldifst")
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 60, (2, 70))
    fst = Fst.from_arcs(
        60, 0, sources, *rng.integers(1, 9, (2, 70)), rng.random(70), targets, {50: 0.0, 7: 1.0, 9: 0.5}
    )
    native = ops.to_kaldifst(fst)
    kaldifst.connect(native)
    theirs, ours = ops.from_kaldifst(native), ops.connect(fst)
    assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)


def test_symbols_are_removed():
    fst = Fst.from_arcs(2, 0, [0, 0, 1], [5, 6, 7], [5, 6, 7], [0.0] * 3, [1, 1, 0], {1: 0.0})
    assert ops.remove_symbols(fst, [5, 7]).ilabels.tolist() == [0, 6, 0] and fst.ilabels.tolist() == [5, 6, 7]


def test_composition_and_determinisation_keep_costs():
    left = Fst.from_arcs(
        3, 0, [0, 0, 1, 2], [1, 1, 2, 2], [3, 4, 0, 0], [0.5, 0.25, 0.0, 0.5], [1, 2, 0, 0], {0: 0.0}
    )
    right = Fst.from_arcs(2, 0, [0, 0, 1], [3, 4, 3], [3, 4, 3], [1.0, 2.0, 0.5], [1, 1, 1], {1: 0.125})
    both = ops.compose(left, right)
    assert best_cost(both, [1, 2, 1, 2], [4, 3]) == pytest.approx(0.25 + 2.0 + 0.5 + 0.5 + 0.5 + 0.125)
    both = both.replaced(olabels=np.zeros_like(both.olabels))
    single = ops.determinize_star(both, use_log=False)
    assert all(
        len(set(single.ilabels[a:b])) == b - a for a, b in zip(single.arc_offsets, single.arc_offsets[1:])
    )
    assert best_cost(single, [1, 2, 1, 2]) == pytest.approx(best_cost(both, [1, 2, 1, 2]))


def test_infinite_determinisation_is_stopped():
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 40, (2, 200))
    fst = Fst.from_arcs(
        40, 0, sources, rng.integers(1, 3, 200), np.zeros(200), rng.random(200), targets, {5: 0.0}
    )
    with pytest.raises(UserError, match="passed 50 states"):
        ops.determinize_star(fst, max_states=50)
