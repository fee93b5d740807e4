"""Products by either library are equal up to rounding for any strides; layers have the derivatives of
torch's."""

import pytest
import torch

from pyasr.nn.layers.linear import Linear
from pyasr.tensor import products
from pyasr.tensor.products import add_mm, affine, minus_mm, mm


@pytest.fixture(params=[True, False], ids=["onednn", "torch"])
def library(request, monkeypatch):
    """Both libraries, for matrices of any size."""
    if request.param and not (
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "prefers_onednn", lambda: request.param)
    monkeypatch.setattr(products, "_MIN_WORK", 1)


def matrix(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def near(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_products_with_any_strides(library):
    a, b, bias = matrix(37, 20), matrix(20, 50), matrix(50)
    for left in (a, a.T.contiguous().T, matrix(37, 41)[:, :20]):
        for right in (b, b.T.contiguous().T, matrix(20, 90)[:, 40:]):
            exact = left.double() @ right.double()
            near(mm(left, right), exact)
            near(affine(left, right.T, bias), exact + bias.double())
            near(minus_mm(matrix(37, 50), left, right), matrix(37, 50).double() - exact)
            total = matrix(37, 50)
            add_mm(total, left, right, -2.5)
            near(total, matrix(37, 50).double() - 2.5 * exact)


def test_empty_and_multidimensional_products(library):
    assert mm(matrix(0, 20), matrix(20, 50)).shape == (0, 50)
    x, weight = matrix(3, 5, 20), matrix(7, 20)
    near(affine(x, weight), x.double() @ weight.double().T)


def test_other_types_use_torch(library):
    a, b = matrix(37, 20).bfloat16(), matrix(20, 50).bfloat16()
    assert torch.equal(mm(a, b), a @ b) and mm(a.double(), b.double()).dtype == torch.float64


@pytest.mark.parametrize("shape", [(40, 12), (4, 10, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_derivatives_equal_torch(library, shape, bias):
    own, peer = Linear(12, 9, bias), torch.nn.Linear(12, 9, bias)
    peer.load_state_dict(own.state_dict())
    inputs = [matrix(*shape).requires_grad_() for _ in range(2)]
    for layer, x in zip((own, peer), inputs):
        layer(x).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-5, atol=1e-5)
    for found, expected in zip(own.parameters(), peer.parameters()):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        assert torch.allclose(own(inputs[0]), peer(inputs[1]), atol=1e-5)


def test_library_choice_follows_processor():
    """The choice is fixed, so that results are."""
    assert products.prefers_onednn() == products.prefers_onednn() and isinstance(
        products.prefers_onednn(), bool
    )
