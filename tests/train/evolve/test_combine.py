"""Combination of the last models against finite differences, brute force and known optima."""

import numpy as np
import pytest
import torch
from training_corpora import DIM, frames_of, random_pdfs

from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts, initialise
from pyasr.parallel.communication.comm import SoloComm
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.data.sample import Sample
from pyasr.train.evolve.combine import Combination, CombineOptions, RecentModels, combine
from pyasr.train.sgd.learner import Learner, LearnerOptions

NUM_PDFS, NUM_FRAMES, NUM_MODELS = 4, 400, 3
OPTIONS = DnnOptions(hidden_layers=2, hidden_dim=6, activation="pnorm", pnorm_group=2)
FIXED = FixedParts(extras=torch.tensor([1, 1]))


def network(seed=0):
    made = FeedForward(OPTIONS, DIM, NUM_PDFS, FIXED)
    initialise(made, OPTIONS, torch.Generator().manual_seed(seed))
    return made


def frames():
    rng = np.random.default_rng(4)
    pdfs = random_pdfs(NUM_FRAMES, NUM_PDFS, rng)
    return torch.from_numpy(frames_of(pdfs, NUM_PDFS, rng)), torch.from_numpy(pdfs.astype(np.int64))


def trained_models():
    """A few models of one training."""
    learner = Learner(network(), LearnerOptions(precision="float32", device="cpu"))
    x, pdfs = frames()
    models = []
    for step in range(30):
        learner.step(x[step % 4 :: 4], pdfs[step % 4 :: 4], 0.01)
        learner.flat.refresh()
        if step % 10 == 9:
            models.append([value.clone() for value in learner.flat.values()])
    return models


MODELS = trained_models()


def combination(comm=SoloComm(), models=MODELS):
    x, pdfs = frames()
    return Combination(
        network(), models, Sample(x[comm.rank :: comm.size], pdfs[comm.rank :: comm.size], comm)
    )


def mixed(weights):
    """The network of the weighted sum, layer by layer."""
    made = network(9).eval()
    for place, parameter in enumerate(made.parameters()):
        parameter.data = sum(float(weights[n, place // 2]) * MODELS[n][place] for n in range(NUM_MODELS))
    return made


def log_probability(weights, part=slice(None)):
    x, pdfs = frames()
    with torch.no_grad():
        return float(
            mixed(weights)(x[part]).double().log_softmax(1)[torch.arange(len(pdfs[part])), pdfs[part]].mean()
        )


def some_weights(seed=0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(0.2, 0.5, (NUM_MODELS, 3)))


def slopes(weights, part=slice(None), step=1e-2):
    """dF/dw by central differences of fourth order."""
    gradient = torch.zeros_like(weights)
    for place in np.ndindex(*weights.shape):
        for steps, factor in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            moved = weights.clone()
            moved[place] += steps * step
            gradient[place] += factor * log_probability(moved, part) / (12 * step)
    return gradient


def test_objective_and_gradient_equal_finite_differences():
    weights = some_weights()
    value, gradient = combination().gradient(weights)
    assert value == pytest.approx(log_probability(weights), abs=1e-6)
    assert combination().objective(weights) == pytest.approx(value, abs=1e-6)
    torch.testing.assert_close(gradient, slopes(weights), atol=2e-5, rtol=1e-3)


def test_fisher_matrix_equals_definition():
    weights, expected = some_weights(), torch.zeros(9, 9, dtype=torch.float64)
    for begin in range(0, NUM_FRAMES, 64):
        part = slice(begin, min(begin + 64, NUM_FRAMES))
        gradient = (part.stop - part.start) * slopes(weights, part).flatten()
        expected += torch.outer(gradient, gradient)
    expected *= 9 / expected.trace()
    expected += 0.01 * expected.diag().diag()
    torch.testing.assert_close(combination().fisher(weights), expected, atol=1e-3, rtol=1e-2)


class Quadratic:
    """Replaces a combination by F(w) = -(w - o)^T A (w - o) / 2, whose optimum is o."""

    num_models, num_layers, comm = 3, 2, SoloComm()

    def __init__(self, precondition_well):
        rng = np.random.default_rng(1)
        root = rng.standard_normal((6, 6)) * 10.0 ** rng.uniform(-1, 1, 6)
        self.matrix = torch.from_numpy(root @ root.T + 0.1 * np.eye(6))
        self.optimum = torch.from_numpy(rng.standard_normal((3, 2)))
        self.metric = self.matrix if precondition_well else torch.eye(6, dtype=torch.float64)

    def set(self, weights):
        self.weights = weights

    def objective(self, weights):
        return self.gradient(weights)[0]

    def gradient(self, weights):
        away = (weights - self.optimum).flatten()
        slope = -self.matrix @ away
        return float(0.5 * away @ slope), slope.view(3, 2)

    def fisher(self, weights):
        return self.metric


@pytest.mark.parametrize("precondition_well, iterations, error", [(True, 3, 1e-6), (False, 60, 1e-3)])
def test_quadratic_objective_has_known_optimum(precondition_well, iterations, error):
    toy = Quadratic(precondition_well)
    weights, value = combine(CombineOptions(combine="weights", combine_iterations=iterations), toy)
    torch.testing.assert_close(weights, toy.optimum, atol=error, rtol=0)
    assert value == pytest.approx(0, abs=1e-5) and toy.weights is weights


def starts():
    unit = torch.eye(NUM_MODELS)
    return [
        log_probability(row[:, None].expand(-1, 3))
        for row in [*unit, torch.full((NUM_MODELS,), 1 / NUM_MODELS)]
    ]


@pytest.mark.parametrize(
    "start, begun_at", [("better", lambda: max(starts())), ("average", lambda: starts()[-1])]
)
def test_search_starts_from_best_candidate(start, begun_at, caplog):
    """These models differ so much that their average is worse than some of them."""
    assert starts()[-1] < max(starts()) - 1e-3
    with caplog.at_level("INFO"):
        combine(CombineOptions(combine="weights", combine_start=start), combination())
    assert f"objective {begun_at():.4f} to" in caplog.text


@pytest.mark.parametrize("iterations", [1, 5, 25])
def test_weights_are_never_worse_than_start(iterations):
    made = combination()
    weights, value = combine(CombineOptions(combine="weights", combine_iterations=iterations), made)
    assert value >= max(starts()) - 1e-6
    assert value == pytest.approx(log_probability(weights), abs=1e-5)
    if iterations == 25:
        assert value > max(starts()) + 0.01
    for parameter, expected in zip(made.network.parameters(), mixed(weights).parameters()):
        torch.testing.assert_close(parameter, expected, atol=1e-5, rtol=1e-4)


def test_best_average_of_last_models_is_found():
    def of_last(n):
        weights = torch.zeros(NUM_MODELS, 3)
        weights[-n:] = 1 / n
        return log_probability(weights)

    weights, value = combine(CombineOptions(combine="average"), combination())
    candidates = [of_last(n) for n in (1, 2, 3)]
    assert value == pytest.approx(max(candidates), abs=1e-6)
    assert (weights[:, 0] > 0).sum() == 1 + int(np.argmax(candidates))


def test_single_model_equals_its_average():
    made = combination(models=MODELS[-1:])
    combine(CombineOptions(combine="average"), made)
    assert all(
        torch.equal(parameter, value) for parameter, value in zip(made.network.parameters(), MODELS[-1])
    )


def test_single_model_gets_factor_per_layer():
    weights, value = combine(CombineOptions(combine="weights"), combination(models=MODELS[-1:]))
    assert (
        weights.shape == (1, 3)
        and value > log_probability(torch.tensor([[0.0] * 3, [0.0] * 3, [1.0] * 3])) + 1e-3
    )


def test_ranks_agree_with_each_other_and_with_one_rank():
    value, slope = combination().gradient(some_weights())
    single, average = combine(CombineOptions(combine="average"), combination())

    def rank(comm):
        made = combination(comm)
        return (
            made.gradient(some_weights()),
            combine(CombineOptions(combine="average"), made),
            combine(CombineOptions(combine="weights"), made),
        )

    results = run_threads(3, rank)
    for (rank_value, rank_slope), (weights, rank_average), (optimal, best) in results:
        assert rank_value == pytest.approx(value, abs=1e-6) and rank_average == pytest.approx(
            average, abs=1e-6
        )
        torch.testing.assert_close(rank_slope, slope, atol=1e-6, rtol=1e-5)
        assert (
            torch.equal(weights, single)
            and torch.equal(optimal, results[0][2][0])
            and best > max(starts()) + 0.01
        )


def test_last_models_are_kept(tmp_path):
    options = CombineOptions(combine="weights", combine_models=3, combine_period_frames=100)
    recent = RecentModels(tmp_path / "models", options, SoloComm())
    learner = Learner(network(), LearnerOptions(precision="float32", device="cpu"))
    for frames in (100, 200, 300, 400):
        learner.flat.master.fill_(frames)
        recent.keep(learner.flat.values(), frames)
    learner.flat.master.fill_(450)
    models = recent.load(learner, 450)
    assert [float(model[0][0, 0]) for model in models] == [300, 400, 450] and len(
        list((tmp_path / "models").iterdir())
    ) == 3
    assert [float(model[0][0, 0]) for model in recent.load(learner, 400)] == [200, 300, 450]


def test_models_of_other_shape_are_skipped(tmp_path):
    recent = RecentModels(tmp_path, CombineOptions(combine="weights"), SoloComm())
    learner = Learner(network(), LearnerOptions(precision="float32", device="cpu"))
    recent.keep(learner.flat.values(), 100)
    learner.adopt(FeedForward(OPTIONS, DIM, NUM_PDFS))
    recent.keep(learner.flat.values(), 200)
    assert len(recent.load(learner, 300)) == 2
