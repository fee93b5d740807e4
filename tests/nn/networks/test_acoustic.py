"""The feed-forward model: scores, initial weights, file."""

import dataclasses

import numpy as np
import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.nn.dropout import ByteDropout
from pyasr.nn.networks.acoustic import MODEL_FILE, AcousticModel, load_scorer, log_priors
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts, initialise
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.tensor.file import load_tensors, save_tensors

FIXED = FixedParts(
    torch.randn(6, 7, generator=torch.Generator().manual_seed(1)),
    torch.tensor([0.5, 2.0, 1.0, 0.7]),
    torch.tensor([2, 0, 2]),
)


def model(activation="relu", fixed=FixedParts(), normalize=False):
    options = DnnOptions(
        hidden_layers=2, hidden_dim=8, activation=activation, pnorm_group=3, normalize=normalize
    )
    network = FeedForward(options, 6, 4, fixed).eval()
    initialise(network, options, torch.Generator().manual_seed(3))
    torch.nn.init.normal_(network.layers[-1].weight, generator=torch.Generator().manual_seed(4))
    return AcousticModel(
        network, torch.arange(6.0), torch.full((6,), 0.5), log_priors(np.array([9, 0, 4, 4]))
    )


def hidden_units(activation, h):
    if activation == "pnorm":
        return np.sqrt(sum(part**2 for part in np.split(h, 3, 1)))
    return {"relu": np.maximum(h, 0), "sigmoid": 1 / (1 + np.exp(-h)), "tanh": np.tanh(h)}[activation]


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "pnorm"])
@pytest.mark.parametrize("fixed", [FixedParts(), FIXED], ids=["plain", "fixed parts"])
@pytest.mark.parametrize("normalize", [False, True])
def test_scores_are_log_posteriors_minus_log_priors(activation, fixed, normalize):
    scorer = model(activation, fixed, normalize)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    weights = [p.detach().double().numpy() for p in scorer.network.parameters()]
    h = (x - np.arange(6)) * 0.5
    if fixed is FIXED:
        h = h @ FIXED.transform.numpy()[:, :6].T + FIXED.transform.numpy()[:, 6]
    for w, b in zip(weights[0:4:2], weights[1:4:2]):
        h = hidden_units(activation, h @ w.T + b)
        if normalize or activation == "pnorm":
            h /= np.sqrt((h**2).mean(1, keepdims=True))
    exponentials = h @ weights[4].T + weights[5]
    if fixed is FIXED:
        exponentials = np.exp(exponentials * np.array([0.5, 2, 1, 0.7, 1, 0.5, 1]))
        exponentials[:, 0] += exponentials[:, 5]
        exponentials[:, 2] += exponentials[:, 4] + exponentials[:, 6]
        exponentials = np.log(exponentials[:, :4])
    expected = (
        exponentials
        - np.log(np.exp(exponentials).sum(1, keepdims=True))
        - np.log(np.array([10, 1, 5, 5]) / 21)
    )
    np.testing.assert_allclose(scorer.log_likelihoods(x), expected, atol=1e-4)


@pytest.mark.parametrize("activation, fixed", [("relu", FixedParts()), ("pnorm", FIXED)])
def test_model_survives_file_round_trip(tmp_path, activation, fixed):
    original = model(activation, fixed)
    original.save(tmp_path / MODEL_FILE)
    copy = load_scorer(tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    np.testing.assert_array_equal(copy.log_likelihoods(x), original.log_likelihoods(x))
    assert copy.network.options == original.network.options and copy.num_pdfs == 4


def test_score_factor_is_applied_and_saved(tmp_path):
    plain, x = model(), np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    for factor, number in ((1.0, 2), (10.0, 3)):
        dataclasses.replace(plain, factor=factor).save(tmp_path / MODEL_FILE)
        assert load_tensors(tmp_path / MODEL_FILE)["format"] == number
        copy = load_scorer(tmp_path)
        np.testing.assert_allclose(copy.log_likelihoods(x), factor * plain.log_likelihoods(x), rtol=1e-6)
        np.testing.assert_array_equal(copy.log_posteriors(x), plain.log_posteriors(x))


def test_subsampling_networks_are_refused_where_all_frames_are_needed():
    model().check_answers_on_all("exp/dnn", "an alignment")
    sparse = AcousticModel(
        LayeredNetwork(["affine dim=3", "tdnn splice=0 dim=3 stride=3"], 6, 4),
        torch.zeros(6),
        torch.ones(6),
        torch.zeros(4),
    )
    assert sparse.subsampling == 3 and sparse.log_likelihoods(np.zeros((7, 6), np.float32)).shape == (3, 4)
    with pytest.raises(
        UserError,
        match=(
            "exp/dnn: its network has an output for one of 3 frames, but an alignment needs all; use a model"
        ),
    ):
        sparse.check_answers_on_all("exp/dnn", "an alignment")


def rewrite(path, change):
    content = load_tensors(path)
    change(content)
    save_tensors(path, content)


def test_files_of_later_format_are_refused(tmp_path):
    model().save(tmp_path / MODEL_FILE)
    rewrite(tmp_path / MODEL_FILE, lambda content: content.update(format=4))
    with pytest.raises(UserError, match="final.nnet: model file of format 4, but this pyasr reads 2 and 3"):
        load_scorer(tmp_path)


def test_invalid_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file; train the model first"):
        load_scorer(tmp_path)
    model().save(tmp_path / MODEL_FILE)
    content = (tmp_path / MODEL_FILE).read_bytes()
    middle = len(content) // 2
    for damaged in (
        content[:-200],
        b"",
        b"nonsense",
        content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
    ):
        (tmp_path / MODEL_FILE).write_bytes(damaged)
        with pytest.raises(UserError, match="not a whole model file"):
            load_scorer(tmp_path)


def test_wrong_features_are_refused():
    with pytest.raises(UserError, match="expects 6 columns per frame, but the features have 13"):
        model().log_likelihoods(np.zeros((3, 13), np.float32))


@pytest.mark.parametrize(
    "activation, stds, biases",
    [
        ("relu", (np.sqrt(2 / 300), np.sqrt(2 / 400), 0), (0, 0)),
        ("sigmoid", (0.0540, 0.175, 0.202), (-2, np.sqrt(16 / 12))),
        ("tanh", (0.05, 0.05, 0), (0, 0.5)),
        ("pnorm", (1 / np.sqrt(1200), 1 / np.sqrt(1200), 0), (0, 0.5)),
    ],
)
def test_initial_weights_have_given_deviations(activation, stds, biases):
    options = DnnOptions(hidden_layers=2, hidden_dim=400, activation=activation, pnorm_group=3)
    network = FeedForward(options, 300, 200)
    initialise(network, options, torch.Generator().manual_seed(0))
    weights = [p.detach() for p in network.parameters() if p.ndim == 2]
    np.testing.assert_allclose([float(w.std()) for w in weights], stds, rtol=0.03)
    hidden = torch.cat([layer.bias.detach() for layer in network.affine_layers[:-1]])
    np.testing.assert_allclose([float(hidden.mean()), float(hidden.std())], biases, atol=0.1)
    assert not network.affine_layers[-1].bias.any() and (
        activation != "sigmoid" or -4 <= hidden.min() <= hidden.max() <= 0
    )


def test_dropout_zeroes_given_fraction_and_keeps_mean():
    layer, x = ByteDropout(0.25), torch.ones(300, 301)
    y = layer(x)
    assert torch.allclose(y.unique(), torch.tensor([0, 4 / 3]))
    assert abs(float((y == 0).float().mean()) - 0.25) < 0.01 and abs(float(y.mean()) - 1) < 0.01
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["network"]["options"].update(hidden_dim=1 << 20),
        lambda content: content["network"].update(num_pdfs=1 << 40),
        lambda content: content.update(log_priors=torch.zeros(3)),
        lambda content: content["mean"].fill_(float("nan")),
        lambda content: content["parameters"].popitem()[1],
        lambda content: next(iter(content["parameters"].values())).fill_(float("inf")),
    ],
    ids=["hidden units", "outputs", "priors", "mean", "a parameter less", "infinite"],
)
def test_description_not_matching_parameters_is_refused(change, tmp_path):
    """Including networks that exceed any memory."""
    model().save(tmp_path / MODEL_FILE)
    rewrite(tmp_path / MODEL_FILE, change)
    with pytest.raises(UserError, match="final.nnet: not a whole model file"):
        load_scorer(tmp_path)
