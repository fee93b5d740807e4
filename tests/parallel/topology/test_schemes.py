"""Delayed, elastic and outer-optimiser schemes against their equations in float64."""

import numpy as np
import pytest
import torch
from scheme_toys import mixing_of

from pyasr.base.errors import UserError
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import make_strategy
from pyasr.parallel.topology.agreement import models_sent
from pyasr.parallel.topology.topologies import TOPOLOGIES, matrix

DIM, START = 12, np.random.default_rng(99).standard_normal(12).astype(np.float32)
RATES = [0.4, 0.4, 0.2, 0.2, 0.1, 0.1]


def move(rank, step):
    """Change of the parameters by a minibatch of a rank."""
    return np.random.default_rng([rank, step]).standard_normal(DIM)


def trained(num_ranks, options, num_steps=6, resume_after=None, seconds=0.0):
    """Every rank takes `num_steps` minibatches of 10 frames. Returns its parameters after each, (step, rank,
    DIM), and whether a mixing changed them. After `resume_after` steps, a new strategy with the saved state
    replaces the strategy."""

    def rank(comm):
        strategy, master = make_strategy(comm, options), torch.from_numpy(START.copy())
        strategy.restart(master)
        strategy.begin_epoch(10 * num_steps, 10)
        report = []
        for step in range(num_steps):
            strategy.training.rate = RATES[step]
            master += torch.from_numpy(move(comm.rank, step)).float()
            comm.sleep(seconds * comm.rank)
            mixing = strategy.step(master, 10)
            report.append(master.double().numpy())
            if step + 1 == resume_after:
                state, strategy = strategy.state_dict(), make_strategy(comm, options)
                strategy.begin_epoch(10 * num_steps, 10)
                strategy.restart(master)
                strategy.load_state_dict(state)
        assert mixing.last and mixing.equal
        return report

    return np.array(run_threads(num_ranks, rank)).swapaxes(0, 1)


def blocks(num_ranks, period):
    """(local changes of each rank (P, DIM), rate in the block) of each block of `period` steps."""
    for begin in range(0, 6, period):
        yield (
            sum(np.stack([move(r, step) for r in range(num_ranks)]) for step in range(begin, begin + period)),
            RATES[begin],
        )


def options(name, period=20, momentum=None, rate=None, **more):
    return mixing_of(name, period_frames=period, outer_momentum=momentum, outer_rate=rate, **more)


def outer_oracle(name, num_ranks, eta, zeta):
    """Parameters of the ranks at the beginning of each next block, and w, both after each block."""
    w = START.astype(np.float64)
    d = np.zeros(DIM)
    begin = START.astype(np.float64)
    report = []
    rate_before = None
    for moves, rate in blocks(num_ranks, 2):
        g = (begin + moves).mean(0) - begin
        if name == "diloco":
            d = eta * d + g
            w = w + zeta * (g + eta * d)
        elif name == "slowmo":
            # the paper's u; ours is D = -rate u
            u = (eta * (-d / rate_before) if rate_before else 0.0) - g / rate
            d, rate_before = -rate * u, rate
            w = w - zeta * rate * u
        else:
            d = eta * d + zeta * g
            w = w + d
        begin = w + eta * d if name == "bmuf" else w
        report.append((begin, w))
    return report


@pytest.mark.parametrize(
    "name, defaults",
    [
        ("bmuf", (2 / 3, 1.0)),
        ("bmuf-classical", (2 / 3, 1.0)),
        ("slowmo", (0.5, 1.0)),
        ("diloco", (0.9, 0.7)),
    ],
)
@pytest.mark.parametrize("given", [None, (0.3, 0.8)])
def test_outer_optimisers_equal_equations(name, defaults, given):
    """All ranks start blocks with the same parameters. At the end they have w."""
    eta, zeta = given or defaults
    states = trained(3, options(name, momentum=given[0] if given else None, rate=given[1] if given else None))
    for block, (begin, w) in enumerate(outer_oracle(name, 3, eta, zeta)):
        expected = w if block == 2 else begin
        np.testing.assert_allclose(states[2 * block + 1], np.tile(expected, (3, 1)), atol=1e-5)


@pytest.mark.parametrize("name", ["bmuf", "bmuf-classical", "slowmo", "diloco"])
def test_model_of_outer_optimiser_is_w(name):
    """Also within an epoch, where BMUF ranks are ahead of w, and on all ranks. Evaluation changes nothing."""

    def rank(comm):
        strategy, master = make_strategy(comm, options(name)), torch.from_numpy(START.copy())
        strategy.restart(master)
        strategy.begin_epoch(60, 10)
        found = []
        for step in range(6):
            strategy.training.rate = RATES[step]
            master += torch.from_numpy(move(comm.rank, step))
            if mixing := strategy.step(master, 10):
                before = master.clone()
                found.append((before if mixing.equal else strategy.model(master)).numpy())
                assert torch.equal(master, before)
        return found

    defaults = {
        "bmuf": (2 / 3, 1.0),
        "bmuf-classical": (2 / 3, 1.0),
        "slowmo": (0.5, 1.0),
        "diloco": (0.9, 0.7),
    }
    for found in run_threads(3, rank):
        for model, (_, w) in zip(found, outer_oracle(name, 3, *defaults[name]), strict=True):
            np.testing.assert_allclose(model, w, atol=1e-5)


@pytest.mark.parametrize(
    "name, after",
    [("bmuf-classical", 8.0), ("slowmo", 8.0), ("diloco", 6 + 0.7 * 1.9 * 2), ("bmuf", 8 + 0.5 * 2)],
)
def test_two_ranks_resume_model_of_one(name, after):
    """It has made six steps, which are kept, without outer momentum. The new ranks have that of two more."""

    def begun(comm, master):
        strategy = make_strategy(comm, options(name))
        strategy.training.rate = 0.1
        strategy.restart(master)
        return strategy

    def alone(comm):
        strategy = begun(comm, master := torch.zeros(1))
        strategy.begin_epoch(100, 10)
        for _ in range(6):
            master += 1
            strategy.step(master, 10)
        return strategy.model(master), strategy.state_dict()

    ((model, state),) = run_threads(1, alone)

    def together(comm):
        strategy = begun(comm, master := model.clone())
        strategy.resume_resized(state)
        strategy.begin_epoch(100, 10)
        for _ in range(2):
            master += 1
            mixing = strategy.step(master, 10)
        assert mixing
        return float(master)

    assert run_threads(2, together) == pytest.approx([after] * 2)


def test_bmuf_without_momentum_equals_averaging():
    for name in ("bmuf", "bmuf-classical", "slowmo"):
        np.testing.assert_allclose(
            trained(3, options(name, momentum=0.0)), trained(3, options("allreduce")), atol=1e-5
        )


@pytest.mark.parametrize(
    "name, rate_grows", [("bmuf", 1), ("bmuf-classical", 1), ("slowmo", 2), ("diloco", 1), ("allreduce", 4)]
)
def test_outer_rate_compensates_averaging(name, rate_grows):
    """In each block, another of four ranks moves by 1. The mean moves by 1/4, and the model, in the end, by
    more."""

    def rank(comm):
        strategy, master = make_strategy(comm, options(name, period=10)), torch.zeros(1)
        assert strategy.num_averaged == pytest.approx(rate_grows)
        strategy.restart(master)
        moved = []
        for epoch in range(100):
            strategy.begin_epoch(10, 10)
            before = master.clone()
            strategy.step(master.add_(float(epoch % 4 == comm.rank)), 10)
            moved.append(float(master - before))
        return moved[-1]

    speed = run_threads(4, rank)[0]
    if name == "diloco":  # it moves further than all ranks together
        assert speed > 1
    else:
        assert speed * rate_grows == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_elastic_averaging_equals_equations(alpha):
    states = trained(3, options("easgd", elastic_rate=alpha))
    alpha, x, c = alpha or 0.3, np.tile(START, (3, 1)).astype(np.float64), START.astype(np.float64)
    for block, (moves, _) in enumerate(blocks(3, 2)):
        x = x + moves
        d = alpha * (x - c)
        x, c = x - d, c + d.sum(0)
        np.testing.assert_allclose(states[2 * block + 1], np.tile(c, (3, 1)) if block == 2 else x, atol=1e-5)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 9])
def test_unstable_elastic_rates_are_refused(num_ranks):
    """The equations, as one matrix for all ranks and the centre, then have an eigenvalue above 1."""
    for alpha in np.linspace(0.013, 0.987, 50):
        step = np.eye(num_ranks + 1) * (1 - alpha)
        step[:-1, -1] = step[-1, :-1] = alpha
        step[-1, -1] = 1 - alpha * num_ranks
        given = options("easgd", elastic_rate=alpha)
        if np.abs(np.linalg.eigvalsh(step)).max() < 1 + 1e-9:
            run_threads(num_ranks, lambda comm: make_strategy(comm, given))
        else:
            with pytest.raises(
                UserError, match=f"--elastic-rate .* diverges with {num_ranks} ranks; give less than 2 / "
            ):
                run_threads(num_ranks, lambda comm: make_strategy(comm, given))


DELAYED = [("d1d", "complete", 1), ("delayed", "complete", 2)] + [
    ("dpsgd", name, 1) for name in ("fixed-ring", "random-ring", "pairs", "base2")
]


@pytest.mark.parametrize("name, topology, period", DELAYED)
@pytest.mark.parametrize("seconds", [0.0, 0.003])
def test_delayed_mixings_apply_update_to_mixture_of_sent_parameters(name, topology, period, seconds):
    """x_(k+1) = W_k x_k + the change since x_k, for any speeds of the ranks. The last mixing is the mean."""
    states = trained(5, options(name, period=10 * period, topology=topology), seconds=seconds)
    x = np.tile(START, (5, 1)).astype(np.float64)
    mixed = x
    for k, (moves, _) in enumerate(blocks(5, period)):
        x = mixed + moves
        last = k == 6 // period - 1
        if last:
            x = np.tile(x.mean(0), (5, 1))
        np.testing.assert_allclose(states[(k + 1) * period - 1], x, atol=1e-5)
        mixed = matrix(TOPOLOGIES[topology].round(5, k)) @ x


@pytest.mark.parametrize(
    "name", ["bmuf", "slowmo", "diloco", "easgd", "d1d", "delayed", "dpsgd", "base2", "gradient", "allreduce"]
)
def test_resumed_strategy_gives_same_bits(name):
    """Also with a mixing in progress."""
    for after in (2, 4):
        assert np.array_equal(trained(3, options(name), resume_after=after), trained(3, options(name)))


@pytest.mark.parametrize("name", ["bmuf", "bmuf-classical", "slowmo", "diloco", "easgd"])
@pytest.mark.parametrize("is_resized", [False, True])
def test_state_stays_on_device_of_parameters(name, is_resized):
    """A checkpoint is read into host memory. The device of this test has no memory."""
    strategy, saved = (make_strategy(SoloComm(), options(name)) for _ in range(2))
    saved.restart(torch.zeros(3))
    strategy.restart(torch.zeros(3, device="meta"))
    (strategy.resume_resized if is_resized else strategy.load_state_dict)(saved.state_dict())
    kept = [value for value in strategy.state_dict().values() if isinstance(value, torch.Tensor)]
    assert kept and all(tensor.device.type == "meta" for tensor in kept)


def test_schemes_continue_from_replaced_parameters():
    """For example if a schedule returns to an earlier model."""
    for name in ("bmuf", "diloco", "slowmo", "easgd", "d1d", "dpsgd"):

        def rank(comm):
            strategy, master = make_strategy(comm, options(name)), torch.zeros(3)
            strategy.restart(master)
            strategy.begin_epoch(80, 10)
            for step in range(8):
                strategy.step(master.add_(1), 10)
                if step == 3:
                    strategy.adopt(master.fill_(50.0))
            return master

        for master in run_threads(2, rank):
            assert 50 < master.min() < 60, name


def test_schemes_that_average_after_every_minibatch():
    """`gradient` always, `post-local` in its first epochs. The drift of ranks within a period shows it."""

    def epochs(name):
        def rank(comm):
            strategy, report = make_strategy(comm, options(name, post_local_epochs=1)), []
            for _ in range(2):
                strategy.begin_epoch(60, 10)
                report.append([strategy.step(torch.zeros(3), 10) is not None for _ in range(6)])
            return report

        return run_threads(2, rank)[0]

    every, second = [True] * 6, [False, True] * 3
    assert (
        epochs("gradient") == [every, every]
        and epochs("post-local") == [every, second]
        and epochs("allreduce") == [second, second]
    )


def test_first_epochs_use_all_reduce():
    def rank(comm):
        strategy, report = make_strategy(comm, options("ring", all_reduce_epochs=1)), []
        for _ in range(2):
            master = torch.tensor([float(comm.rank)])
            strategy.begin_epoch(40, 10)
            strategy.step(master, 10)
            report.append((strategy.step(master, 10).equal, master.item()))
            strategy.step(master, 10), strategy.step(master, 10)
        return report

    assert run_threads(4, rank) == [[(True, 1.5), (False, own)] for own in (1.5, 0.5, 1.5, 2.5)]


@pytest.mark.parametrize(
    "name, more", [("ring", dict(all_reduce_epochs=1)), ("dpsgd", dict(topology="complete"))]
)
def test_cost_of_mean_equals_topologies_page(name, more):
    def rank(comm):
        strategy, sent = make_strategy(comm, options(name, 10, all_reduce="ring", **more)), []
        codec_comm = strategy.codec.comm
        start_exchange = codec_comm.start_exchange
        codec_comm.start_exchange = lambda outgoing, *others: (
            sent.append(len(outgoing)),
            start_exchange(outgoing, *others),
        )[1]
        strategy.restart(torch.zeros(DIM))
        strategy.begin_epoch(20, 10)
        strategy.step(torch.zeros(DIM), 10)
        strategy.wait()
        return sum(sent)

    assert run_threads(4, rank) == [models_sent(TOPOLOGIES["complete"], 4) * DIM] * 4


def test_invalid_options_are_refused():
    with pytest.raises(UserError, match="--topology 'star': unknown topology; choose one of complete, "):
        make_strategy(SoloComm(), options("dpsgd", topology="star"))
    for name, more in (
        ("butterfly", {}),
        ("butterfly", dict(all_reduce_epochs=1)),
        ("dpsgd", dict(topology="butterfly")),
    ):
        with pytest.raises(
            UserError, match="butterfly mixing takes 2, 4, 8, ... ranks, not 3; base2 supports any number"
        ):
            run_threads(3, lambda comm: make_strategy(comm, options(name, **more)))
