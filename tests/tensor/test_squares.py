"""Sums of squares against float64, at scales whose squares exceed float32."""

import pytest
import torch

from pyasr.tensor.squares import sum_of_squares


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.bfloat16, 1e-3), (torch.float32, 1e-6), (torch.float64, 1e-12)]
)
@pytest.mark.parametrize("scale", [1e-25, 1e-15, 1.0, 1e15, 1e30])
@pytest.mark.parametrize("shape", [(3000,), (7,), (40, 300), (300, 4), (0, 5)])
def test_vectors_and_matrices_equal_float64(dtype, tolerance, scale, shape):
    x = (scale * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).to(
        dtype
    )
    assert sum_of_squares(x) == pytest.approx(float((x.double() ** 2).sum()), rel=tolerance, abs=0)
    if len(shape) > 1:
        assert sum_of_squares(x.T) == pytest.approx(sum_of_squares(x), rel=tolerance, abs=0)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_non_finite_values_stay_non_finite(bad):
    x = torch.ones(50, 20)
    x[3, 4] = bad
    assert not torch.tensor(sum_of_squares(x)).isfinite()
