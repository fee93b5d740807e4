"""RBMs whose states can be enumerated, in float64 by other methods than the module's."""

import itertools
import math

import numpy as np
import pytest
import torch

from pyasr.nn.networks.rbm import Rbm, Reconstruction, descend, explosion, squared_error
from pyasr.tensor.random_bits import random_integers

L2 = 0.01


def machine(visible_dim, hidden_dim, gaussian, seed=1, stddev=0.7):
    torch.manual_seed(seed)
    rbm = Rbm(visible_dim, hidden_dim, gaussian)
    for parameter in rbm.parameters():
        parameter.normal_(0, stddev)
        parameter.grad = torch.zeros_like(parameter)
    return rbm


def arrays(rbm):
    """W, b, a in float64."""
    return [parameter.double().numpy() for parameter in rbm.parameters()]


def gradients(rbm):
    return [parameter.grad.double().numpy() for parameter in rbm.parameters()]


def logistic(x):
    return 1 / (1 + np.exp(-x))


def states(num):
    return np.array(list(itertools.product([0.0, 1.0], repeat=num)))


def data_of(num, dim, gaussian, seed=2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num, dim)) if gaussian else (rng.random((num, dim)) < 0.3).astype(float)


def energy(rbm, v, h):
    """E(v, h) of one pair, term by term."""
    W, b, a = arrays(rbm)
    own = sum((v[i] - a[i]) ** 2 / 2 if rbm.gaussian else -a[i] * v[i] for i in range(len(a)))
    return (
        own
        - sum(b[j] * h[j] for j in range(len(b)))
        - sum(h[j] * W[j, i] * v[i] for j in range(len(b)) for i in range(len(a)))
    )


def log_partition(rbm):
    """log Z: Bernoulli by enumeration of all pairs of states; Gaussian by the integral over v for every h."""
    W, b, a = arrays(rbm)
    hidden = states(len(b))
    if rbm.gaussian:
        pull = hidden @ W
        terms = hidden @ b + 0.5 * (pull**2).sum(1) + pull @ a + 0.5 * len(a) * math.log(2 * math.pi)
    else:
        terms = np.array([-energy(rbm, v, h) for v in states(len(a)) for h in hidden])
    return np.logaddexp.reduce(terms)


def log_likelihood(rbm, v):
    """Mean over rows of log p(v), by sums over all hidden states."""
    hidden = states(len(rbm.hidden_bias))
    return np.mean(
        [np.logaddexp.reduce([-energy(rbm, row, h) for h in hidden]) for row in v]
    ) - log_partition(rbm)


def statistics(rbm, v, sample):
    """(5) for the rows `v` and hidden samples `sample`, row by row in float64."""
    W, b, a = arrays(rbm)
    dW, db, da = np.zeros_like(W), np.zeros_like(b), np.zeros_like(a)
    for row, drawn in zip(v, sample):
        up = logistic(W @ row + b)
        down = W.T @ drawn + a
        down = down if rbm.gaussian else logistic(down)
        again = logistic(W @ down + b)
        dW += np.outer(up, row) - np.outer(again, down)
        db += up - again
        da += row - down
    return dW - len(v) * L2 * W, db, da


@pytest.mark.parametrize("gaussian", [True, False])
def test_gradients_equal_dense_formula_with_same_random_bits(gaussian):
    rbm, v = machine(7, 5, gaussian), data_of(33, 7, gaussian)
    of = rbm.reconstruct(torch.from_numpy(v).float(), torch.Generator().manual_seed(4))
    descend(rbm, of, L2)
    bits = (
        random_integers(
            torch.Size((33, 5)), torch.int16, torch.device("cpu"), torch.Generator().manual_seed(4)
        )
        .double()
        .numpy()
    )
    W, b, _ = arrays(rbm)
    drawn = (bits + 32768 + 0.5) / 65536 < logistic(v @ W.T + b)
    for found, expected in zip(gradients(rbm), statistics(rbm, v, drawn.astype(float))):
        np.testing.assert_allclose(-found, expected, atol=2e-5)
    down = of.reconstruction.double().numpy()
    assert squared_error(of).item() == pytest.approx(((v - down) ** 2).sum() / 7, rel=1e-5)


@pytest.mark.parametrize("gaussian", [True, False])
def test_mean_gradient_equals_enumerated_samples(gaussian):
    """The mean over many draws for one row equals the sum over all 2^H samples weighted by their
    probabilities."""
    rbm, num = machine(4, 3, gaussian), 40_000
    row = data_of(1, 4, gaussian)
    W, b, _ = arrays(rbm)
    up = logistic(W @ row[0] + b)
    samples = states(3)
    weights = np.prod(np.where(samples == 1, up, 1 - up), axis=1)
    assert weights.sum() == pytest.approx(1)
    each = [statistics(rbm, row, [drawn]) for drawn in samples]
    v = torch.from_numpy(row).float().expand(num, -1)
    descend(rbm, rbm.reconstruct(v, torch.Generator().manual_seed(5)), L2)
    for found, parts in zip(gradients(rbm), zip(*each)):
        mean = np.tensordot(weights, np.array(parts), 1)
        spread = np.sqrt(np.tensordot(weights, (np.array(parts) - mean) ** 2, 1) / num)
        assert (np.abs(-found / num - mean) < 5 * spread + 1e-4).all()


@pytest.mark.parametrize("gaussian", [True, False])
def test_free_energy_sums_over_all_hidden_states(gaussian):
    rbm, v = machine(4, 5, gaussian), data_of(6, 4, gaussian)
    found = rbm.free_energy(torch.from_numpy(v).float()).numpy()
    expected = [-np.logaddexp.reduce([-energy(rbm, row, h) for h in states(5)]) for row in v]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_partition_function_of_gaussian_rbm():
    """The closed form equals a sum over a grid, for one visible unit."""
    rbm = machine(1, 3, True)
    grid = np.linspace(-12, 12, 4001)
    density = np.exp(-rbm.free_energy(torch.from_numpy(grid[:, None]).float()).double().numpy())
    assert np.log(density.sum() * (grid[1] - grid[0])) == pytest.approx(log_partition(rbm), abs=1e-4)


def exact_gradient(rbm, v, step=1e-3):
    """d log p / d theta for all parameters, by finite differences of the enumerated likelihood."""
    found = []
    for parameter in rbm.parameters():
        flat = parameter.view(-1)
        for i in range(len(flat)):
            ends = []
            for sign in (1, -1):
                flat[i] += sign * step
                ends.append(log_likelihood(rbm, v))
                flat[i] -= sign * step
            found.append((ends[0] - ends[1]) / (2 * step))
    return np.array(found)


@pytest.mark.parametrize("gaussian", [True, False])
def test_direction_is_close_to_exact_gradient(gaussian):
    rbm, v = machine(4, 3, gaussian, stddev=0.1), patterns(gaussian, 12)
    exact = exact_gradient(rbm, v.double().numpy())
    descend(rbm, rbm.reconstruct(v.repeat(2000, 1), torch.Generator().manual_seed(6)), 0.0)
    ours = -np.concatenate([g.ravel() for g in gradients(rbm)])
    assert exact @ ours / np.linalg.norm(exact) / np.linalg.norm(ours) > 0.7


def patterns(gaussian, num):
    """Rows of two kinds, (1 1 0 0) and (0 0 1 1), with Gaussian noise or with a tenth of the units
    flipped."""
    torch.manual_seed(8)
    rows = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]]).repeat(num // 2, 1)
    return (
        3 * rows - 1.5 + 0.5 * torch.randn(num, 4)
        if gaussian
        else (rows - (torch.rand(num, 4) < 0.1).float()).abs()
    )


@pytest.mark.parametrize("gaussian", [True, False])
def test_training_increases_likelihood(gaussian):
    """From close to independent units to close to the entropy of the data."""
    rbm, v = machine(4, 3, gaussian, stddev=0.1), patterns(gaussian, 100)
    generator, few = torch.Generator().manual_seed(7), v[:40].double().numpy()
    course = [log_likelihood(rbm, few)]
    for _ in range(4):
        for _ in range(250):
            descend(rbm, rbm.reconstruct(v, generator), 0.0)
            for parameter in rbm.parameters():
                parameter -= (0.02 if gaussian else 0.1) / len(v) * parameter.grad
        course.append(log_likelihood(rbm, few))
    assert all(later > earlier - 0.02 for earlier, later in zip(course, course[1:]))
    assert course[-1] > course[0] + 0.7


def test_bfloat16_rounds_difference_once():
    """The gradient of an RBM that reconstructs well is small compared with its two terms, but accurate."""
    rbm = machine(64, 48, False, stddev=0.05)
    v = torch.full((100, 64), 0.5) + 0.01 * torch.randn(100, 64)
    of = rbm.reconstruct(v, torch.Generator().manual_seed(1))
    rounded = type(of)(*(x.bfloat16() for x in of))
    exact = (
        rounded.hidden.double().T @ rounded.data.double()
        - rounded.rehidden.double().T @ rounded.reconstruction.double()
    )
    narrow = Rbm(64, 48, False).bfloat16()
    for parameter in narrow.parameters():
        parameter.grad = torch.zeros_like(parameter)
    descend(narrow, rounded, 0.0)
    torch.testing.assert_close(-narrow.weight.grad.double(), exact, rtol=2**-8, atol=1e-3)


def test_visible_biases_are_logits_of_clipped_means():
    rbm = Rbm(4, 3, False)
    rbm.initialise(0.1, torch.Generator().manual_seed(0), torch.tensor([0.0, 0.25, 0.5, 1.0]))
    expected = [math.log(p / (1 - p)) for p in (1e-4, 0.25, 0.5, 1 - 1e-4)]
    np.testing.assert_allclose(rbm.visible_bias.numpy(), expected, rtol=1e-3, atol=1e-6)
    assert not rbm.hidden_bias.any()


def test_initial_weights_are_gaussian():
    rbm = Rbm(300, 200, True)
    rbm.initialise(0.1, torch.Generator().manual_seed(0))
    assert rbm.weight.std().item() == pytest.approx(0.1, rel=0.02) and abs(rbm.weight.mean().item()) < 1e-3
    assert not rbm.visible_bias.any() and not rbm.hidden_bias.any()


def exploding(num, ratio, noise=1.0):
    """`num` frames around one, and a reconstruction whose standard deviations, summed over columns, are
    `ratio` times theirs."""
    data = torch.from_numpy(data_of(1, 6, True) + noise * data_of(num, 6, True, seed=3)).float()
    hidden = torch.zeros(num, 4)
    return Reconstruction(data, hidden, ratio * data.flip(0) + 5.0, hidden)


def test_explosion_is_ratio_of_deviations():
    rbm, v = machine(6, 4, True, stddev=0.05), torch.from_numpy(data_of(50, 6, True)).float()
    assert explosion(rbm.reconstruct(v)).item() == 1.0
    rbm.weight.mul_(100)
    of = rbm.reconstruct(v)
    deviations = [np.sqrt(x.double().numpy().var(0)).sum() for x in (of.data, of.reconstruction)]
    assert deviations[1] > 2 * deviations[0]
    assert explosion(of).item() == pytest.approx(deviations[0] / deviations[1], rel=1e-5)


@pytest.mark.parametrize(
    "ratio, factor", [(0.5, 1), (1.3, 1), (1.99, 1), (2.01, 1 / 2.01), (3, 1 / 3), (1000, 1 / 1000)]
)
def test_explosion_starts_at_twice_the_data_deviation(ratio, factor):
    assert explosion(exploding(50, ratio)).item() == pytest.approx(factor, rel=1e-4)
    assert explosion(exploding(50, ratio, noise=0.01)).item() == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("num, least_rows", [(1, 16), (2, 16), (3, 16), (15, 16), (49, 50)])
def test_few_rows_are_no_explosion(num, least_rows):
    assert explosion(exploding(num, 1000, noise=0.1), least_rows).item() == 1
    assert explosion(exploding(least_rows, 1000, noise=0.1), least_rows).item() == pytest.approx(
        1 / 1000, rel=1e-3
    )


@pytest.mark.parametrize("num", [2, 3, 50, 99])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_rows_are_no_explosion(num, dtype):
    """For any rounding of their mean."""
    of = exploding(num, 1000)
    data = (100 * torch.randn(1, 6, generator=torch.Generator().manual_seed(1))).to(dtype)
    assert explosion(of._replace(data=data.expand(num, -1)), least_rows=2).item() == 1
