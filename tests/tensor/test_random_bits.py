"""Random units have their probabilities and are independent."""

import torch

from pyasr.tensor.random_bits import sample_bernoulli


def test_bernoulli_samples_have_their_probabilities():
    p = torch.tensor([0.0, 1e-3, 0.03, 0.5, 0.77, 1.0])
    drawn = sample_bernoulli(p.expand(200_000, 6), torch.Generator().manual_seed(3))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    mean = drawn.mean(0)
    assert mean[0] == 0 and mean[-1] == 1
    assert ((mean - p).abs() <= 5 * (p * (1 - p) / 200_000).sqrt() + 2**-16).all()
    assert torch.corrcoef(drawn[:, 1:-1].T).fill_diagonal_(0).abs().max() < 0.015
