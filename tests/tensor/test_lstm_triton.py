"""Triton's kernels of LSTM cells against the same functions in torch; without a GPU, Triton's interpreter
runs them."""

import importlib
import importlib.util
import sys

import pytest
import torch

from pyasr.tensor import lstm_cells

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
B, N, H = 2, 3, 5
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 0.008}
# peepholes, clip, limit
OPTIONS = [(False, 0.0, 0.0), (True, 0.0, 0.0), (False, 0.5, 0.0), (False, 0.0, 0.7), (True, 0.5, 0.7)]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (pip install triton)"
)


@pytest.fixture(scope="module")
def fused():
    """The module for the GPU or, without one, for the interpreter, which Triton chooses when it is
    imported."""
    if DEVICE == "cpu" and "triton" in sys.modules:
        pytest.skip("another test has imported Triton without its interpreter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1" if DEVICE == "cpu" else "0")
        yield importlib.import_module("pyasr.tensor.lstm_triton")


def frames(*dims: int, dtype=torch.float32, seed=1) -> torch.Tensor:
    """The second of three frames (B, N, D) of tensors; a further number is the distance between their
    rows."""
    dim, room = dims[0], dims[-1]
    values = torch.randn(B, 3, N, room, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, dtype)[:, 1, :, :dim]


def pairs(*tensors: torch.Tensor) -> tuple[list, list]:
    """Two copies of the tensors with the same memory layout."""
    copies = [torch.as_strided(x._base.clone(), x.shape, x.stride(), x.storage_offset()) for x in tensors]
    return list(tensors), copies


def check(found, expected, dtype):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        tolerance = TOLERANCE[dtype] if one.dtype == dtype else TOLERANCE[torch.float32]
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def options_of(has_peepholes: bool, dtype) -> torch.Tensor | None:
    return torch.linspace(-2, 2, B * 3 * H).view(B, 3, H).to(DEVICE, dtype) if has_peepholes else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_peepholes, clip", [option[:2] for option in OPTIONS])
def test_forward_step_equals_torch(fused, has_peepholes, clip, dtype):
    results, peepholes = [], options_of(has_peepholes, dtype)
    both = pairs(
        frames(4 * H, dtype=dtype),
        frames(H, seed=2),
        frames(H, seed=3),
        frames(H, H + 2, dtype=dtype, seed=4),
    )
    for module, tensors in zip((fused, lstm_cells), both):
        module.step(*tensors, peepholes, clip)
        results.append([tensors[0], *tensors[2:]])
    check(*results, dtype)
    assert not clip or (results[0][1].abs() == clip).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_peepholes, clip, limit", OPTIONS)
def test_backward_step_equals_torch(fused, has_peepholes, clip, limit, dtype):
    gates = frames(4 * H, dtype=dtype)
    gates.sigmoid_()
    tensors = [
        frames(H, H + 2, dtype=dtype, seed=2),
        frames(H, seed=3),
        gates,
        frames(H, seed=4),
        frames(H, seed=5),
        frames(4 * H, dtype=dtype, seed=6),
    ]
    if clip:
        tensors[4].clamp_(-clip, clip)
    results, peepholes = [], options_of(has_peepholes, dtype)
    for module, (dm, dc, a, before, c, da) in zip((fused, lstm_cells), pairs(*tensors)):
        dc = dc.contiguous()
        module.step_back(dm, dc, a, before, c, da, peepholes, clip, limit)
        results.append([dc, da])
    check(*results, dtype)


@pytest.mark.parametrize("size", [1.0, 0.0, 1e25])
@pytest.mark.parametrize("name", ["bound", "add_bounded"])
def test_clipping_equals_torch(fused, name, size):
    x, total, results = frames(H, H + 2), frames(H, H + 1, seed=2), []
    x.mul_(size)
    before = total.clone()
    for module, (one, other) in zip((fused, lstm_cells), pairs(x, total)):
        module.bound(one, 1.5) if name == "bound" else module.add_bounded(other, one, 1.5)
        results.append([one if name == "bound" else other])
    if size <= 1:
        check(*results, torch.float32)
    else:
        rows = results[0][0] - (0 if name == "bound" else before)
        torch.testing.assert_close(
            torch.linalg.vector_norm(rows, dim=-1), torch.full((B, N), 1.5, device=DEVICE)
        )
    short = torch.linalg.vector_norm(x, dim=-1) < 1.5
    assert size != 1 or short.any() and not short.all()


@pytest.mark.parametrize(
    "shape",
    [
        dict(),
        dict(peepholes=True, cell_clip=0.4, gradient_clip=0.5),
        dict(recurrent_dim=2, gradient_clip=0.5),
        dict(
            recurrent_dim=2,
            nonrecurrent_dim=1,
            peepholes=True,
            delay=2,
            gradient_clip=0.5,
            projection_bias=True,
        ),
    ],
)
def test_layers_with_kernels_equal_plain_layers(fused, shape, monkeypatch):
    """Outputs and gradients, in float32 with both."""
    from pyasr.nn.layers import lstm_loop
    from pyasr.nn.layers.lstm import Lstm, side_by_side

    torch.manual_seed(1)
    layers = torch.nn.ModuleList(Lstm(3, H, backward=backward, **shape) for backward in (False, True))
    x = torch.randn(6, N, 3)
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter)
    layers, x, results = layers.to(DEVICE), x.to(DEVICE).requires_grad_(), []
    for module in (fused, lstm_cells):
        monkeypatch.setattr(lstm_loop, "cells_for", lambda a, module=module: module)
        y = side_by_side(layers, x)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *layers.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * other.abs().max().item())
