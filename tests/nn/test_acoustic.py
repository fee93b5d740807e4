"""The feed-forward model: its scores, its initial weights, its file."""

import numpy as np
import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.nn.acoustic import MODEL_FILE, AcousticModel, load_scorer, log_priors
from pyasr.nn.feed_forward import ByteDropout, DnnOptions, FeedForward, initialise


def model(activation="relu"):
    options = DnnOptions(hidden_layers=2, hidden_dim=8, activation=activation)
    network = FeedForward(options, 6, 4).eval()
    initialise(network, options, torch.Generator().manual_seed(3))
    return AcousticModel(options, network, torch.arange(6.0), torch.full((6,), 0.5), log_priors(np.array([9, 0, 4, 4])))


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_scores_are_log_posteriors_less_log_priors(activation):
    scorer = model(activation)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    weights = [p.detach().double().numpy() for p in scorer.network.parameters()]
    h = (x - np.arange(6)) * 0.5
    for w, b in zip(weights[0:4:2], weights[1:4:2]):
        h = h @ w.T + b
        h = np.maximum(h, 0) if activation == "relu" else 1 / (1 + np.exp(-h))
    logits = h @ weights[4].T + weights[5]
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True)) - np.log(np.array([10, 1, 5, 5]) / 21)
    np.testing.assert_allclose(scorer.log_likelihoods(x), expected, atol=1e-5)


def test_file_round_trip(tmp_path):
    original = model()
    original.save(tmp_path / MODEL_FILE)
    copy = load_scorer(tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    np.testing.assert_array_equal(copy.log_likelihoods(x), original.log_likelihoods(x))
    assert copy.options == original.options and copy.num_pdfs == 4


def test_bad_files(tmp_path):
    with pytest.raises(UserError, match="no such file; train the model first"):
        load_scorer(tmp_path)
    model().save(tmp_path / MODEL_FILE)
    content = (tmp_path / MODEL_FILE).read_bytes()
    for damaged in (content[:-200], b"", b"nonsense"):
        (tmp_path / MODEL_FILE).write_bytes(damaged)
        with pytest.raises(UserError, match="not a whole model file"):
            load_scorer(tmp_path)


def test_wrong_features():
    with pytest.raises(UserError, match="takes 6 columns a frame, the features have 13"):
        model().log_likelihoods(np.zeros((3, 13), np.float32))


def test_initial_weights():
    relu, sigmoid = (DnnOptions(hidden_layers=2, hidden_dim=400, activation=a) for a in ("relu", "sigmoid"))
    for options, stds in ((relu, (np.sqrt(2 / 300), np.sqrt(2 / 400), 0)), (sigmoid, (0.0540, 0.175, 0.202))):
        network = FeedForward(options, 300, 200)
        initialise(network, options, torch.Generator().manual_seed(0))
        weights = [p for p in network.parameters() if p.ndim == 2]
        np.testing.assert_allclose([float(w.detach().std()) for w in weights], stds, rtol=0.03)
    biases = [p for p in network.parameters() if p.ndim == 1]
    assert -4 <= biases[0].min() and biases[0].max() <= 0 and abs(biases[0].mean() + 2) < 0.2
    assert not biases[-1].any()


def test_dropout_leaves_out_the_given_share_and_keeps_the_mean():
    layer, x = ByteDropout(0.25), torch.ones(300, 301)
    y = layer(x)
    assert torch.allclose(y.unique(), torch.tensor([0, 4 / 3]))
    assert abs(float((y == 0).float().mean()) - 0.25) < 0.01 and abs(float(y.mean()) - 1) < 0.01
    assert torch.equal(layer.eval()(x), x)
