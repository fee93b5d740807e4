"""Nonlinearities of the LSTM loops, over the whole relevant range of float32."""

import numpy as np
import torch
from numba import njit

from pyasr.tensor import lstm_kernels


@njit
def both(x):
    sigma, tanh = np.empty_like(x), np.empty_like(x)
    for i in range(len(x)):
        sigma[i], tanh[i] = lstm_kernels._sigma(x[i]), lstm_kernels._tanh(x[i])
    return sigma, tanh


def test_sigmoid_and_tanh_equal_torch():
    x = np.concatenate(
        [np.linspace(-30, 30, 200_001), [-1e30, 1e30, -88.7, 88.7, -104, 104, 0, 1e-30]]
    ).astype(np.float32)
    sigma, tanh = both(x)
    wide = torch.from_numpy(x).double()
    np.testing.assert_allclose(sigma, wide.sigmoid().numpy(), rtol=3e-6, atol=1e-37)
    np.testing.assert_allclose(tanh, wide.tanh().numpy(), rtol=0, atol=2e-7)
    assert np.isnan(both(np.array([np.nan], np.float32))[0][0])
