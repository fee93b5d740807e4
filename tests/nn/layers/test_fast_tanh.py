"""The fast hyperbolic tangent against torch's in float64."""

import pytest
import torch

from pyasr.nn.layers.fast_tanh import Tanh


def test_all_bfloat16_numbers_are_accurate():
    """Including infinities and the smallest normal numbers (smaller ones may become 0); at most one unit in
    the last place from the nearest."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.abs() >= torch.finfo(x.dtype).tiny]
    exact = torch.tanh(x.double()).to(torch.bfloat16)
    bits = (Tanh()(x[None])[0].view(torch.int16).int() - exact.view(torch.int16).int()).abs()
    assert len(x) > 64000 and bits.max() <= 1
    assert Tanh()(torch.zeros(1, 1, dtype=torch.bfloat16)) == 0
    assert Tanh()(torch.tensor([[torch.nan]], dtype=torch.bfloat16)).isnan().all()


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 4), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_derivative_equals_formula(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).requires_grad_()
    y = Tanh()(x)
    grad = torch.randn(shape).to(dtype)
    y.backward(grad)
    torch.testing.assert_close(x.grad, grad * (1 - y.detach() ** 2), rtol=0.02, atol=0.01)
