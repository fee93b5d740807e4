"""One minibatch's update against the formula."""

import dataclasses

import pytest
import torch

from pyasr.nn.feed_forward import DnnOptions, FeedForward, initialise
from pyasr.train.learner import Learner, LearnerOptions

OPTIONS = LearnerOptions(precision="float32", device="cpu")


def change(options: LearnerOptions, rate: float, num_steps: int = 1) -> torch.Tensor:
    """What `num_steps` equal minibatches change in the same network."""
    dnn = DnnOptions(hidden_layers=1, hidden_dim=24)
    network = FeedForward(dnn, 10, 7)
    initialise(network, dnn, torch.Generator().manual_seed(3))
    torch.manual_seed(3)
    x, pdfs = torch.randn(64, 10), torch.randint(7, (64,))
    learner = Learner(network, options)
    before = learner.flat.master.clone()
    for _ in range(num_steps):
        learner.step(x.to(learner.flat.work.dtype), pdfs, rate)
        learner.flat.refresh()
    return learner.flat.master - before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_greatest_change_of_a_minibatch(precision):
    options = dataclasses.replace(OPTIONS, precision=precision)
    free = change(options, 0.05)
    limited = change(dataclasses.replace(options, max_change=0.1), 0.05)
    assert free.norm() > 0.3
    assert limited.norm() == pytest.approx(0.1, rel=1e-3)
    torch.testing.assert_close(limited / limited.norm(), free / free.norm(), rtol=1e-3, atol=1e-5)


def test_small_changes_are_not_limited():
    free = change(OPTIONS, 1e-4, num_steps=5)
    torch.testing.assert_close(change(dataclasses.replace(OPTIONS, max_change=10.0), 1e-4, num_steps=5), free)


def test_momentum_adds_up_earlier_gradients():
    """Two equal gradients g (tiny rate): g + (0.5 g + g) = 2.5 g."""
    first = change(OPTIONS, 1e-6)
    torch.testing.assert_close(change(dataclasses.replace(OPTIONS, momentum=0.5), 1e-6, num_steps=2), 2.5 * first, rtol=0.02, atol=1e-8)
