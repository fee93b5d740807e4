"""AD-PSGD with the neighbours of a topology, in a scripted order of events, against dense matrices in
float64, without threads and messages."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.mixing.payload_codec import PayloadCodec
from pyasr.parallel.simulation.simulator import ClusterNetwork, run_simulated
from pyasr.parallel.strategies import SchemeOptions, make_strategy, mixing_options
from pyasr.parallel.strategies.neighbours import LastPublication
from pyasr.parallel.topology.agreement import disagreement_of
from pyasr.parallel.topology.topologies import TOPOLOGIES, matrix

DIM, LATENCY_S = 6, 1e-8
NETWORK = ClusterNetwork(latency_s=LATENCY_S, bandwidth=1e15)
NAMES = ["fixed-ring", "random-ring", "exponential"]
SEGMENT = 1  # the first segment of mixings, which seeds random rounds


@dataclass
class Script:
    """Script of the learners: `seconds[r][k]` is the time of step k of learner r, which has no data after its
    last step; `moves[r][k]` is the change of its weights by that step, (steps, DIM). All start at `start`."""

    name: str
    seconds: list[np.ndarray]
    moves: list[np.ndarray]
    start: np.ndarray

    @property
    def num_ranks(self) -> int:
        return len(self.seconds)

    @property
    def ends(self) -> list[np.ndarray]:
        """Times at which the steps of each learner end."""
        return [np.cumsum(seconds) for seconds in self.seconds]

    def t(self, k: int) -> np.ndarray:
        """T_k, float64 (P, P)."""
        return matrix(TOPOLOGIES[self.name].round(self.num_ranks, k, SEGMENT))

    def number_read(self, reader: int, k: int, other: int) -> int:
        """Number of updates that the other had published when the reader requested the mixture of its step
        k."""
        asked = self.ends[reader][k - 1] if k else 0.0
        apart = np.abs(self.ends[other] - asked)
        assert np.all((apart == 0) | (apart > 100 * LATENCY_S)), "the script does not say which comes first"
        return int((self.ends[other] <= asked).sum())


def script(name: str, num_ranks: int, num_steps: list[int], same_time: bool, seed: int = 0) -> Script:
    rng = np.random.default_rng(seed)
    slow = rng.uniform(0.5, 3, num_ranks)
    seconds = [
        np.full(n, 0.25) if same_time else 0.01 * slow[r] * rng.uniform(0.5, 2, n)
        for r, n in enumerate(num_steps)
    ]
    moves = [rng.standard_normal((n, DIM)) for n in num_steps]
    return Script(name, seconds, moves, rng.standard_normal(DIM).astype(np.float32))


def learn(script: Script, **more):
    """Weights of each learner after each of its steps, float64 (steps + 1, DIM), the final model, and the
    strategies."""
    options = mixing_options("adpsgd", topology=script.name, **more)

    def learner(comm):
        strategy, master = make_strategy(comm, options), torch.from_numpy(script.start.copy())
        strategy.restart(master)
        strategy.begin_epoch(10**6, 10)
        after = [master.double().numpy()]
        for seconds, move in zip(script.seconds[comm.rank], script.moves[comm.rank]):
            comm.sleep(seconds)
            strategy.step(master.add_(torch.from_numpy(move).float()), 10)
            after.append(master.double().numpy())
        assert strategy.step(master, 0).equal
        return np.array(after), master.double().numpy(), strategy

    return [list(of_ranks) for of_ranks in zip(*run_simulated(script.num_ranks, learner, NETWORK))]


def events(script: Script):
    """(time, 0, r, k): learner r ends its step k; (time, 1, r, k): it reads for step k. Simultaneous events
    are in this order."""
    steps = [(time, 0, r, k) for r, ends in enumerate(script.ends) for k, time in enumerate(ends)]
    reads = [
        (time, 1, r, k) for r, ends in enumerate(script.ends) for k, time in enumerate([0.0, *ends[:-1]])
    ]
    return sorted(steps + reads)


def matrices(script: Script):
    """(learner, step, matrix) of each event, in float64 on the 2 P rows of all weights and of what each
    learner has read. A read changes only the latter, and has step None. After the matrix of a step, its
    update is added."""
    num = script.num_ranks
    for _, reads, r, k in events(script):
        change, row = np.eye(2 * num), script.t(k)[r]
        if reads:
            change[num + r] = 0
            change[num + r, :num] = row * (np.arange(num) != r)
        else:
            change[r] = 0
            change[r, [r, num + r]] = row[r], 1
        yield r, None if reads else k, change


# steps of each learner; some end much earlier than others
UNEVEN = {3: [12, 3, 20], 4: [15, 15, 4, 9], 8: [9, 2, 14, 7, 9, 11, 5, 10]}


@pytest.mark.parametrize("num_ranks", UNEVEN)
@pytest.mark.parametrize("name", [*NAMES, "static-exponential", "base2"])
@pytest.mark.parametrize("same_time", [False, True], ids=["any-order", "rounds"])
def test_weights_equal_products_of_matrices(name, num_ranks, same_time):
    """After every step of every learner. Learners that have ended are still read. The model is the mean of
    all learners' last weights."""
    plan = script(name, num_ranks, UNEVEN[num_ranks], same_time)
    after, models, _ = learn(plan)
    rows = np.vstack([np.tile(plan.start, (num_ranks, 1)), np.zeros((num_ranks, DIM))]).astype(np.float64)
    for r, k, change in matrices(plan):
        rows = change @ rows
        if k is not None:
            rows[r] += plan.moves[r][k]
            np.testing.assert_allclose(after[r][k + 1], rows[r], atol=2e-5)
    for model in models:
        np.testing.assert_allclose(model, rows[:num_ranks].mean(0), atol=2e-5)


@pytest.mark.parametrize("num_ranks", [2, 4, 5, 8])
@pytest.mark.parametrize("name", NAMES)
def test_equally_fast_learners_equal_dpsgd(name, num_ranks):
    """W <- T_k W + updates, with T_k doubly stochastic and the same for all, so that only updates change the
    mean. Differences of learners decrease according to the spectral gap."""
    steps = 12
    plan = script(name, num_ranks, [steps] * num_ranks, same_time=True)
    for move in plan.moves:
        move[1:] = 0
    after, _, strategies = learn(plan)
    w = np.tile(plan.start, (num_ranks, 1)).astype(np.float64)
    for k in range(steps):
        t = plan.t(k)
        np.testing.assert_allclose([t.sum(0), t.sum(1)], 1)
        w = t @ w + [move[k] for move in plan.moves]
        found = np.array([weights[k + 1] for weights in after])
        np.testing.assert_allclose(found, w, atol=1e-5)
        np.testing.assert_allclose(
            found.mean(0), plan.start + np.mean([move[0] for move in plan.moves], axis=0), atol=1e-5
        )
    assert all(set(strategy.peer.staleness) == {0} for strategy in strategies)
    if not TOPOLOGIES[name].random:
        apart = [
            np.linalg.norm([weights[k] - np.mean([own[k] for own in after], axis=0) for weights in after])
            for k in (1, 1 + (steps - 1))
        ]
        falls = disagreement_of(TOPOLOGIES[name], num_ranks)
        assert apart[1] <= (1.01 * falls.contraction ** (steps - 1) * apart[0] if falls.contraction else 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_change_of_mean_is_bounded_by_disagreement(name):
    """For any order of events, a step of l changes the mean by its update plus sum_j T[l, j] (u_j - w_l) / P,
    which (1 - T[l, l]) max |u_j - w_l| / P bounds and which is not zero."""
    plan = script(name, 4, [20] * 4, same_time=False)
    after, *_ = learn(plan)
    drifts = []
    for r, weights in enumerate(after):
        for k in range(20):
            row, others = plan.t(k)[r], [j for j in range(4) if j != r]
            apart = {j: after[j][plan.number_read(r, k, j)] - weights[k] for j in others}
            drift = (weights[k + 1] - weights[k] - plan.moves[r][k]) / 4
            np.testing.assert_allclose(drift, sum(row[j] * apart[j] for j in others) / 4, atol=1e-5)
            assert (
                np.abs(drift).max()
                <= (1 - row[r]) * max(np.abs(apart[j]).max() for j in others if row[j]) / 4 + 1e-6
            )
            drifts.append(drift)
    assert np.abs(np.sum(drifts, axis=0)).max() > 0.1


@pytest.mark.parametrize("payload", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_learners_in_agreement_are_unchanged(name, payload):
    """Bit for bit, in any order of events."""
    plan = script(name, 5, [30] * 5, same_time=False)
    for move in plan.moves:
        move[:] = 0
    after, models, _ = learn(plan, payload=payload)
    assert all((weights == plan.start).all() for weights in [*after, models])


@pytest.mark.parametrize("payload, unit", [("bfloat16", 2**-8), ("float16", 2**-11)])
@pytest.mark.parametrize("name", NAMES)
def test_rounds_in_16_bits_conserve_mean(name, payload, unit):
    """Up to float32 rounding, while weights differ from those of float32 by 16-bit rounding."""
    plan = script(name, 5, [10] * 5, same_time=True)
    wide, narrow = (np.array(learn(plan, payload=given)[0]) for given in ("float32", payload))
    np.testing.assert_allclose(narrow.mean(0), wide.mean(0), atol=1e-5)
    moved = np.abs(wide - plan.start).max()
    assert 0.02 * unit * moved < np.abs(narrow - wide).max() < 10 * unit * moved


def test_publication_in_transit_is_not_overwritten():
    """For any number of later publications. Message buffers that are not in transit are reused."""
    published = LastPublication(PayloadCodec(SoloComm(), SchemeOptions()), 3)
    published.last = published.write(torch.full((3,), 0.0), 0)
    sent, seen = published.acquire(), set()
    for number in range(1, 6):
        published.last = published.write(torch.full((3,), float(number)), number)
        seen.add(id(published.last.message))
        assert (
            sent == (sent.message, 0)
            and (sent.message == 0).all()
            and (published.last.message == number).all()
        )
    published.release()
    assert len(seen) == 2 and published.acquire().number == 5


@pytest.mark.parametrize("name", NAMES)
def test_staleness_equals_script(name):
    """The number of updates by which the mixed weights are older than the reader's own: always the latest
    publication of each neighbour."""
    plan = script(name, 5, [25] * 5, same_time=False)
    *_, strategies = learn(plan)
    for r, strategy in enumerate(strategies):
        expected = Counter()
        for k in range(25 + 1):  # a mixture is read after the last step, too
            neighbours = [j for j in range(5) if j != r and plan.t(k)[r, j]]
            expected.update(k - plan.number_read(r, k, j) for j in neighbours)
        assert strategy.peer.staleness == expected
    together = sum((strategy.peer.staleness for strategy in strategies), Counter())
    assert max(together) > 3 and min(together) < -3


@pytest.mark.parametrize("name", NAMES)
def test_staleness_of_equal_and_slow_learners(name):
    """Learners of one speed, which varies by a tenth, differ by a few updates after 40. Neighbours of a
    learner that is 10 times slower mix ever older weights, without limit."""

    def most(factor):
        plan = script(name, 4, [40] * 4, same_time=True)
        rng = np.random.default_rng(3)
        plan.seconds = [0.01 * (factor if r == 3 else 1) * rng.uniform(0.9, 1.1, 40) for r in range(4)]
        plan.seconds[3] = plan.seconds[3][: 40 // factor]
        *_, strategies = learn(plan)
        return max(abs(number) for strategy in strategies for number in strategy.peer.staleness)

    assert most(1) <= 4 and 32 <= most(10) <= 40
