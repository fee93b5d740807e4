"""Saturation of the units of LSTM layers, compared with the equations in numpy, and shrinking of all
parameters by it."""

import numpy as np
import pytest
import torch
from toy_jobs import with_options

from pyasr.base.errors import UserError
from pyasr.nn.networks.feed_forward import DnnOptions
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.sample import Sample
from pyasr.train.evolve.saturation import average_derivatives
from pyasr.train.evolve.shrinking import ShrinkingOfSaturated
from pyasr.train.sgd.learner import Learner, LearnerOptions
from pyasr.train.steps.dnn_step import check_training
from pyasr.train.steps.network_checks import check_shrinking, has_saturating_layers

D, H, CHUNKS, FRAMES = 3, 4, 6, 7
CPU = LearnerOptions(precision="float32", device="cpu")


def network() -> LayeredNetwork:
    """A network with weights so large that units are saturated."""
    lines = ["lstm cells=4 peepholes=true delay=2", "affine dim=5", "blstm cells=4"]
    made, random = LayeredNetwork(lines, D, 5, FRAMES), torch.Generator().manual_seed(1)
    for parameter in made.parameters():
        parameter.data.normal_(0, 1, generator=random)
    return made.eval()


def samples(comm) -> Sample:
    """All samples on rank 0; other ranks have none."""
    x = torch.randn(CHUNKS, FRAMES, D, generator=torch.Generator().manual_seed(2))
    share = CHUNKS if comm.rank == 0 else 0
    return Sample(x[:share], torch.zeros(share, FRAMES, dtype=torch.int64), comm)


def slopes(lstm, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean derivatives of i, f, o, g, tanh c relative to the maximum, (5 H), outputs) for (T, N, D):
    cosh(a)^-2, of half the argument for a sigmoid."""
    weights = {name: value.double().numpy() for name, value in lstm.state_dict().items()}
    p = weights.get("peepholes", np.zeros((3, H)))
    c, m = ([np.zeros((x.shape[1], H))] * lstm.delay for _ in range(2))
    found, sigma = [], lambda a: 1 / (1 + np.exp(-a))
    for x_t in x[::-1] if lstm.backward else x:
        a = (
            x_t @ weights["input.weight"].T
            + weights["input.bias"]
            + m[-lstm.delay] @ weights["recurrent.weight"].T
        )
        i, f, g, o = np.split(a, 4, 1)
        before = c[-lstm.delay]
        i, f = i + p[0] * before, f + p[1] * before
        c = c + [sigma(f) * before + sigma(i) * np.tanh(g)]
        o = o + p[2] * c[-1]
        m = m + [sigma(o) * np.tanh(c[-1])]
        found.append(np.concatenate([np.cosh(a) ** -2.0 for a in (i / 2, f / 2, o / 2, g, c[-1])], 1))
    outputs = np.stack(m[lstm.delay :])
    return np.stack(found).mean((0, 1)), outputs[::-1] if lstm.backward else outputs


def expected_slopes() -> list[np.ndarray]:
    made, x = network(), samples(SoloComm()).x.transpose(0, 1).double().numpy()
    first, y = slopes(made.layers[0].directions[0], x)
    affine = next(module for module in made.layers[1].modules() if isinstance(module, torch.nn.Linear))
    h = np.maximum(y @ affine.weight.detach().double().numpy().T + affine.bias.detach().double().numpy(), 0)
    return [first, *(slopes(lstm, h)[0] for lstm in made.layers[2].directions)]


@pytest.mark.parametrize("threshold, factor", [(0.0, 0.99), (0.99, 1.0)])
def test_parameters_shrink_if_units_are_saturated_on_average(threshold, factor):
    """Seven frames with a delay of two: the appended zeros are not counted. One of the two ranks has no
    frames."""
    expected = expected_slopes()
    assert 0.2 < 1 - np.concatenate(expected).mean() < 0.8

    def rank(comm):
        sample, learner = samples(comm), Learner(network(), CPU)
        found = average_derivatives(network(), sample)
        ShrinkingOfSaturated(sample, 0.99, threshold)(learner, 0)
        return found, learner.flat.values()

    for found, values in run_threads(2, rank):
        for derivatives, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(derivatives.numpy(), wanted, atol=1e-5)
        for value, parameter in zip(values, network().parameters(), strict=True):
            torch.testing.assert_close(value, parameter.detach() * factor)


@pytest.mark.parametrize("offset, factor", [(-1e-4, 0.9), (1e-4, 1.0)])
def test_threshold_is_one_minus_mean_derivative(offset, factor):
    learner, saturation = Learner(network(), CPU), 1 - np.concatenate(expected_slopes()).mean()
    ShrinkingOfSaturated(samples(SoloComm()), 0.9, saturation + offset)(learner, 0)
    torch.testing.assert_close(learner.flat.values()[0], next(network().parameters()).detach() * factor)


def test_inspection_leaves_network_unchanged():
    made, sample = network(), samples(SoloComm())
    before = made(sample.x)
    average_derivatives(made, sample)
    assert torch.equal(made(sample.x), before) and all(
        lstm.watch is None for layer in (made.layers[0], made.layers[2]) for lstm in layer.directions
    )


def check(tmp_path, lines: str) -> None:
    """Check options with a network of these layers."""
    (tmp_path / "a.net").write_text(lines)
    options = with_options(
        growth=dict(shrink_value=0.99), over_time=dict(network=tmp_path / "a.net"), dnn=vars(DnnOptions())
    )
    check_training(options)
    check_shrinking(options.growth, has_saturating_layers(options.over_time.network))


def test_networks_without_saturating_units_are_refused(tmp_path):
    with pytest.raises(
        UserError, match="--shrink-value 0.99: the network has no sigmoid, tanh or lstm units"
    ):
        check(tmp_path, "tdnn dim=8")


@pytest.mark.parametrize(
    "lines",
    [
        "affine dim=4\nblstm cells=8 repeat=2",
        "tdnn dim=8 activation=tanh",
        "tdnn dim=8\naffine dim=8 activation=sigmoid",
    ],
)
def test_layers_with_saturating_units_are_supported(tmp_path, lines):
    check(tmp_path, lines)
