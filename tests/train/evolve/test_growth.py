"""Growing networks: layers, outputs, saturated units; equal on all ranks."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scheme_toys import mixing_of
from training_corpora import DIM

from pyasr.base.errors import UserError
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts, initialise
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.parallel.strategies import make_strategy, mixing_options
from pyasr.train.data.sample import Sample
from pyasr.train.evolve.growth import (
    Growth,
    GrowthOptions,
    first_shape,
    mixed_up,
    split_outputs,
    with_new_layer,
)
from pyasr.train.evolve.saturation import SaturationFix, average_derivatives
from pyasr.train.evolve.shrinking import Shrinking
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.training_options import check_growth

NUM_PDFS = 5
COUNTS = np.array([400, 0, 30, 90, 10])
CPU = LearnerOptions(precision="float32", device="cpu", momentum=0.5)


def network(activation="pnorm", hidden_layers=1, fixed=FixedParts(), seed=0):
    options = DnnOptions(hidden_layers=hidden_layers, hidden_dim=8, activation=activation, pnorm_group=3)
    made = FeedForward(options, DIM, NUM_PDFS, fixed).eval()
    random = torch.Generator().manual_seed(seed)
    initialise(made, options, random)
    torch.nn.init.normal_(made.layers[-1].weight, generator=random)
    torch.nn.init.normal_(made.layers[-1].bias, generator=random)
    return made


def inputs(seed=5, number=40):
    return torch.randn(number, DIM, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "pnorm"])
def test_new_layer_keeps_lower_layers_and_zeroes_output(activation):
    small, x = network(activation, 2), inputs()
    grown = with_new_layer(small, torch.Generator().manual_seed(1))
    assert grown.options.hidden_layers == 3
    below = len(small.layers) - 1
    assert torch.equal(grown.layers[:below](x), small.layers[:below](x))
    assert not grown(x).any()
    assert grown.affine_layers[2].weight.std() > 0.1 and not torch.equal(
        grown.affine_layers[2].weight, grown.affine_layers[1].weight
    )


def log_posteriors(net, x):
    with torch.no_grad():
        return net(x).double().log_softmax(1)


@pytest.mark.parametrize("scales", [None, torch.tensor([0.5, 2.0, 1.0, 1.5, 0.8])])
@pytest.mark.parametrize("mix_up", [5, 6, 9, 40])
def test_mixing_up_without_noise_keeps_posteriors(scales, mix_up):
    small, x = network(fixed=FixedParts(prior_scales=scales)), inputs()
    grown = mixed_up(
        small,
        COUNTS,
        GrowthOptions(mix_up=mix_up, mix_up_min_count=1, mix_up_stddev=0.0),
        np.random.default_rng(0),
    )
    assert grown.layers[-1].out_features == mix_up
    torch.testing.assert_close(log_posteriors(grown, x), log_posteriors(small, x), atol=1e-5, rtol=0)


def test_mixing_up_perturbs_copies_symmetrically():
    small = network()
    grown = mixed_up(small, COUNTS, GrowthOptions(mix_up=8, mix_up_stddev=0.01), np.random.default_rng(0))
    before, after = small.layers[-1].weight.detach(), grown.layers[-1].weight.detach()
    pdfs = torch.cat([torch.arange(NUM_PDFS), grown.fixed.extras])
    for pdf in range(NUM_PDFS):
        torch.testing.assert_close(after[pdfs == pdf].mean(0), before[pdf], atol=0.02, rtol=0)
    moved = (after - before[pdfs])[torch.isin(pdfs, grown.fixed.extras)]
    assert 0.005 < moved.std() < 0.03
    assert 0 < (log_posteriors(grown, inputs()) - log_posteriors(small, inputs())).abs().max() < 0.1


def split_by_hand(weights, biases, numbers, halving, stddev, rng):
    """{pdf: [(weights, bias) of each copy]}: of n copies, copy n - 2^floor(log2 n) is split into
    w + e and w - e; all pdfs of a round draw their e together."""
    copies = {pdf: [(weights[pdf].astype(np.float64), float(biases[pdf]))] for pdf in range(len(numbers))}
    for n in range(1, max(numbers)):
        split = [pdf for pdf in copies if numbers[pdf] > n]
        noise = stddev * rng.standard_normal((len(split), weights.shape[1]), np.float32).astype(np.float64)
        for pdf, e in zip(split, noise):
            place = n - 2 ** int(np.log2(n))
            weight, bias = copies[pdf][place]
            copies[pdf][place] = weight + e, bias - halving[pdf]
            copies[pdf].append((weight - e, bias - halving[pdf]))
    return copies


@pytest.mark.parametrize("numbers", [[2, 1, 1], [2, 2, 3], [1, 5, 9]])
def test_copies_are_perturbed_with_opposite_signs(numbers):
    """The two copies of a split by the same noise, with opposite signs."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((3, 4)).astype(np.float32)
    biases = rng.standard_normal(3).astype(np.float32)
    halving = np.log(2) / np.array([1.0, 0.5, 2.0])
    made, made_biases, extras = split_outputs(
        weights, biases, np.array(numbers), halving, 0.1, np.random.default_rng(7)
    )
    expected = split_by_hand(weights, biases, numbers, halving, 0.1, np.random.default_rng(7))
    pdfs = np.r_[np.arange(3), extras]
    for pdf, copies in expected.items():
        rows = np.flatnonzero(pdfs == pdf)
        np.testing.assert_allclose(made[rows], [weight for weight, _ in copies], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(made_biases[rows], [bias for _, bias in copies], rtol=1e-5, atol=1e-6)
        if len(copies) == 2:
            np.testing.assert_allclose(made[rows].sum(0), 2 * weights[pdf], rtol=1e-5, atol=1e-6)
            assert (np.abs(made[rows[0]] - made[rows[1]]) > 1e-4).all()


def test_copies_of_a_pdf_differ_at_most_by_factor_two():
    small = network()
    for mix_up in range(6, 30):
        grown = mixed_up(
            small,
            COUNTS,
            GrowthOptions(mix_up=mix_up, mix_up_min_count=0, mix_up_stddev=0.0),
            np.random.default_rng(0),
        )
        pdfs = torch.cat([torch.arange(NUM_PDFS), grown.fixed.extras])
        halvings = ((small.layers[-1].bias[pdfs] - grown.layers[-1].bias) / np.log(2)).detach()
        assert all(
            float(halvings[pdfs == pdf].max() - halvings[pdfs == pdf].min()) < 1.01 for pdf in range(NUM_PDFS)
        )


def best_allocation(counts, total):
    """The numbers of outputs with the smallest maximum of count^0.25 per output, then the smallest second
    largest, and so on, by trying all."""
    choices = [n for n in itertools.product(range(1, total), repeat=len(counts)) if sum(n) == total]
    return min(choices, key=lambda n: sorted((c**0.25 / k for c, k in zip(counts, n)), reverse=True))


@pytest.mark.parametrize("total", [5, 7, 9, 11])
def test_allocation_equals_exhaustive_search(total):
    counts = np.array([400, 7, 31, 93])
    grown = mixed_up(
        FeedForward(DnnOptions(hidden_layers=1, hidden_dim=3), DIM, 4),
        counts,
        GrowthOptions(mix_up=total, mix_up_min_count=0),
        np.random.default_rng(0),
    )
    numbers = 1 + np.bincount(grown.fixed.extras.numpy(), minlength=4)
    assert tuple(numbers) == best_allocation(counts, total)


def test_rare_pdfs_get_no_further_output():
    grown = mixed_up(
        network(), COUNTS, GrowthOptions(mix_up=100, mix_up_min_count=10), np.random.default_rng(0)
    )
    numbers = 1 + np.bincount(grown.fixed.extras.numpy(), minlength=NUM_PDFS)
    assert (numbers[1], numbers[4]) == (1, 1) and (COUNTS / numbers)[[0, 2, 3]].min() >= 10


GROWTH = GrowthOptions(layer_period_frames=100, mix_up=9, mix_up_min_count=1)
FULL = DnnOptions(hidden_layers=3, hidden_dim=8, activation="pnorm", pnorm_group=3)


def growing(comm=SoloComm()):
    options = first_shape(GROWTH, FULL)
    net = FeedForward(options, DIM, NUM_PDFS)
    initialise(net, options, torch.Generator().manual_seed(0))
    return Learner(net, CPU), Growth(GROWTH, FULL, COUNTS, 1000, 3, comm)


def step(learner, seed):
    learner.step(inputs(seed), torch.arange(40) % NUM_PDFS, 0.01)
    learner.flat.refresh()


def shape(learner):
    return learner.network.options.hidden_layers, learner.network.layers[-1].out_features


def test_growth_happens_at_scheduled_frames():
    learner, growth = growing()
    seen, acted = [], []
    growth.actions = [(250, lambda learner, frames: acted.append(frames)), (0, None)]
    for frames in range(0, 1000, 30):
        before = shape(learner)
        if growth.due(frames):
            growth.grow(learner, frames)
            assert not growth.due(frames)
        if shape(learner) != before:
            seen.append((frames, *shape(learner)))
        step(learner, frames)
    assert seen == [(120, 2, 5), (210, 3, 5), (600, 3, 9)]
    assert acted == [270, 510, 750]


def test_other_changes_precede_growth():
    """Saturated units are searched, and layers scaled, in the trained network, not in a new layer. Actions
    that only read parameters come between them and growth."""
    learner, growth = growing()
    shapes, kept = [], []
    growth.keeping = [(100, lambda parameters, frames: kept.append([len(shapes), *map(len, parameters)]))]
    growth.actions = [(100, lambda learner, frames: shapes.append(shape(learner)))]
    assert growth.grow(learner, 100) and not growth.grow(learner, 101)
    assert shapes == [(1, 5)] and kept == [[1, 24, 24, 5, 5]] and shape(learner) == (2, 5)


def test_training_continues_after_growth():
    learner, growth = growing()
    growth.grow(learner, 700)
    assert shape(learner) == (3, 9)
    losses = []
    for _ in range(100):
        losses.append(float(learner.step(inputs(1), inputs(1)[:, :NUM_PDFS].argmax(1), 0.01)[0]))
        learner.flat.refresh()
    assert losses[0] == pytest.approx(40 * np.log(NUM_PDFS), rel=1e-2) and losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_checkpoint_shape_of_grown_network_is_checked(precision):
    """For any first change, and for any number type of the learner."""
    options = dataclasses.replace(GROWTH, layer_period_frames=0)
    learner = Learner(network(), dataclasses.replace(CPU, precision=precision))
    growth = Growth(options, learner.network.options, COUNTS, 1000, 3, SoloComm())
    initial = learner.network
    assert growth.expected(initial, 400).layers[-1].out_features == NUM_PDFS
    expected = growth.expected(initial, 600)
    growth.grow(learner, 600)
    assert [value.shape for value in expected.parameters()] == [
        value.shape for value in learner.network.parameters()
    ]
    assert expected.layers[-1].out_features == 9


def test_ranks_grow_equally_and_resume():
    def rank(comm):
        learner, growth = growing(comm)
        growth.grow(learner, 150)
        torch.manual_seed(comm.rank)
        description, master = learner.network.describe(), learner.flat.master.clone()
        learner, growth = growing(comm)
        growth.resume(learner, description, 150)
        learner.flat.master.copy_(master)
        growth.grow(learner, 1000)
        return learner.flat.master

    learner, growth = growing()
    growth.grow(learner, 1000)
    for master in run_threads(2, rank):
        assert torch.equal(master, learner.flat.master)


def test_impossible_growth_is_refused():
    with pytest.raises(UserError, match="may return to an earlier model of another shape"):
        check_growth(GROWTH, True)
    with pytest.raises(UserError, match="--mix-up 9: each of 12 pdfs needs an output"):
        Growth(GROWTH, FULL, np.ones(12), 1000, 3, SoloComm())
    with pytest.raises(UserError, match="training ends at 150 frames.*lower --layer-period-frames"):
        Growth(GROWTH, FULL, COUNTS, 150, 3, SoloComm())
    with pytest.raises(
        UserError,
        match=(
            r"due at 600 \(outputs\), when ranks next mix at 1000; lower .* or --period-frames or raise "
            r"--num-epochs"
        ),
    ):
        Growth(
            GROWTH,
            FULL,
            COUNTS,
            1000,
            3,
            SoloComm(),
            next_synchronisation=lambda frames: -(-frames // 1000) * 1000,
        )
    with pytest.raises(
        UserError,
        match=(
            r"training has ended after 1000 frames, but changes of the network are still due \(layer, "
            r"layer, outputs\)"
        ),
    ):
        growing()[1].check_whole(1000)


def test_upcoming_growth_is_listed():
    growth = growing()[1]
    growth.actions, growth.keeping = [(250, None), (0, None)], [(400, None)]
    assert growth.ahead(120) == [80, 480, 130, 280] and growth.ahead(800) == [200, 400]


@pytest.mark.parametrize(
    "name, frames, expected",
    [
        ("allreduce", 0, 0),
        ("allreduce", 1, 400),
        ("allreduce", 400, 400),
        ("allreduce", 401, 800),
        ("allreduce", 801, 1000),
        ("allreduce", 1000, 1000),
        ("allreduce", 1001, 1400),
        ("adpsgd", 401, 401),
        ("hadpsgd", 801, 801),
        ("gradient", 401, 600),
        ("d1d", 999, 1000),
        ("post-local", 401, 600),
        ("post-local", 1401, 1800),
    ],
)
def test_mixing_times_around_growth(name, frames, expected):
    """Two ranks, in epochs of 1000 frames, with a period of 150 frames each, which are two minibatches of
    100."""

    def rank(comm):
        return make_strategy(comm, mixing_of(name, period_frames=150)).next_synchronisation(frames, 1000, 100)

    assert run_threads(2, rank) == [expected] * 2


@pytest.mark.parametrize("epoch", [0, 1])
def test_mixing_times_with_growing_number_of_ranks(epoch):
    """Kaldi's iterations, with two ranks at first and four at the end, against their simulation."""

    def rank(comm):
        strategy = make_strategy(comm, mixing_options("kaldi", period_frames=100, initial_ranks=2))
        strategy.training.num_epochs, ends, master = 2, [0], torch.zeros(3)
        strategy.restart(master)
        strategy.compares = False
        for _ in range(epoch + 1):
            strategy.begin_epoch(3000, 50)
            mixing, ends = None, [ends[-1] if ends[-1] >= 3000 else 0]
            while not (mixing and mixing.last):
                if mixing := strategy.step(master, 0 if strategy.is_idle else 50):
                    ends.append(ends[-1] + mixing.frames)
        within = [end - ends[0] for end in ends]
        return all(
            strategy.next_synchronisation(3000 * epoch + frames, 3000, 50)
            == 3000 * epoch + min([end for end in within if end >= frames][0], 3000)
            for frames in range(0, 3000, 70)
        )

    assert all(run_threads(4, rank))


@pytest.mark.parametrize(
    "activation, derivative",
    [("tanh", lambda a: 1 / np.cosh(a) ** 2), ("sigmoid", lambda a: 1 / np.cosh(a / 2) ** 2)],
)
def test_saturated_units_are_scaled_down_and_linear_ones_up(activation, derivative):
    """Against d sigma(a) / da relative to its value at 0, by an independent formula, over the frames of two
    ranks."""
    net, x = network(activation, 1), inputs(number=100)
    layer = net.affine_layers[0]
    with torch.no_grad():
        for unit, (scale, bias) in enumerate([(100, 0), (0.01, 1.4), (0.01, 1.9), (0.01, 0.02), (0.01, 0.5)]):
            layer.weight[unit] *= scale
            layer.bias[unit] = bias * (2 if activation == "sigmoid" else 1)
    activations = (x @ layer.weight.T + layer.bias).detach().double().numpy()
    expected = derivative(activations).mean(0)

    def rank(comm):
        sample = Sample(x[comm.rank :: 2], torch.zeros(50, dtype=torch.int64), comm)
        learner = Learner(network(activation, 1), CPU)
        learner.adopt(net.with_parameters(net.parameters()))
        # a copy, in which the other rank's thread counts no frames
        found = average_derivatives(copy.deepcopy(net), sample)[0]
        SaturationFix(sample)(learner, 0)
        return found, learner.flat.values()

    factors = np.where(
        expected < 0.1,
        1 / np.minimum(2, 0.1 / expected),
        np.where(expected > 0.75, np.minimum(2, expected / 0.75), 1),
    )
    assert (
        factors[0] == 0.5
        and factors[1] == 1
        and 0.5 < factors[2] < 1
        and factors[3] > 1.3
        and 1 < factors[4] < 1.1
    )
    for found, (weight, bias, *_) in run_threads(2, rank):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(
            weight.numpy(), layer.weight.detach().numpy() * factors[:, None], rtol=1e-4
        )
        np.testing.assert_allclose(bias.numpy(), layer.bias.detach().numpy() * factors, rtol=1e-4)


def test_layer_factors_equal_grid_search():
    """A network whose layers have wrong scales: the resulting factors are as good as the best of a grid, and
    equal on both ranks. Targets are drawn from the posteriors of the correct network."""
    net, x = network("tanh", 1), inputs(number=300)
    pdfs = net(x).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(0))[:, 0]
    wrong = net.with_parameters(
        [value * scale for value, scale in zip(net.parameters(), (0.3, 0.3, 0.05, 0.05))]
    )

    def objective(first, second):
        scaled = net.with_parameters(
            [value * scale for value, scale in zip(wrong.parameters(), (first, first, second, second))]
        )
        with torch.no_grad():
            return float(scaled(x).double().log_softmax(1)[torch.arange(300), pdfs].mean())

    def rank(comm):
        learner = Learner(network("tanh", 1), CPU)
        learner.adopt(wrong.with_parameters(wrong.parameters()))
        Shrinking(Sample(x[comm.rank :: 2], pdfs[comm.rank :: 2], comm))(learner, 0)
        return learner.flat.values()

    values, others = run_threads(2, rank)
    assert all(torch.equal(value, other) for value, other in zip(values, others))
    factors = [float((value / old.detach()).mean()) for value, old in zip(values, wrong.parameters())]
    assert factors[0] == pytest.approx(factors[1], rel=1e-4) and factors[2] == pytest.approx(
        factors[3], rel=1e-4
    )
    grid = max(
        objective(first, second) for first in np.geomspace(0.5, 20, 15) for second in np.geomspace(1, 100, 15)
    )
    assert objective(factors[0], factors[2]) > max(grid - 1e-3, objective(1.0, 1.0) + 0.5)


def test_shrinking_uses_part_of_sample():
    def rank(comm):
        sample = Sample(
            inputs(number=4000 if comm.rank else 1000),
            torch.zeros(4000 if comm.rank else 1000, dtype=torch.int64),
            comm,
        )
        return Shrinking(sample).sample

    parts = run_threads(3, rank)
    assert [len(part.pdfs) for part in parts] == [223, 889, 889] and parts[0].num_frames == 2001
