"""Updates of flat parameters, in one pass and with torch."""

import pytest
import torch

from pyasr.parallel.mixing.flat import FlatParameters


def make(dtype):
    generator = torch.Generator().manual_seed(1)
    return FlatParameters(
        [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 7), (3,), (40, 50))],
        dtype,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_update_by_gradient_equals_torch(dtype):
    """Each element with its factor; bit-identical to torch's addition and rounding."""
    flat = make(dtype)
    before = flat.master.clone()
    gradient = torch.randn(flat.grad.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    gradient[:4] = torch.tensor([0.0, 1e-39, 3e38, -1e-3])
    flat.grad.copy_(gradient)
    flat.add(flat.grad, [(flat.spans[0], -0.5), (flat.spans[2], torch.tensor(0.25, dtype=torch.float64))])
    expected = before.clone()
    for span, factor in ((flat.spans[0], -0.5), (flat.spans[2], 0.25)):
        expected[span] += factor * gradient[span].float()
    assert torch.equal(flat.master, expected) and torch.equal(flat.work, expected.to(dtype))
    if dtype == torch.bfloat16:
        assert not flat.grad[flat.spans[0]].any() and not flat.grad[flat.spans[2]].any()


def test_update_by_other_vector():
    flat = make(torch.bfloat16)
    before, delta = flat.master.clone(), torch.ones_like(flat.master)
    flat.grad.fill_(7)
    flat.add(delta, [(slice(None), 0.5)])
    assert (
        torch.equal(flat.master, before + 0.5)
        and torch.equal(flat.work, flat.master.bfloat16())
        and not flat.grad.any()
    )
