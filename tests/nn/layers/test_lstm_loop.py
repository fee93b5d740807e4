"""Layers that are computed in one batched loop equal single layers, and the loop never waits for the
device."""

import pytest
import torch

from pyasr.nn.layers import lstm, sequence_layers
from pyasr.nn.layers.lstm import Lstm, side_by_side
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.layers.sequence_layers import Recurrent
from pyasr.tensor import lstm_cells

T, N, D, H = 7, 3, 5, 4
SHAPES = [
    dict(),
    dict(peepholes=True, cell_clip=0.4),
    dict(recurrent_dim=3, gradient_clip=0.5),
    dict(gradient_clip=0.5, bias=False),
    dict(
        recurrent_dim=2,
        nonrecurrent_dim=1,
        peepholes=True,
        cell_clip=0.4,
        delay=2,
        projection_bias=True,
        gradient_clip=0.5,
    ),
]


def layer_of(**shape) -> Recurrent:
    layer = Recurrent([Lstm(D, H, backward=backward, **shape) for backward in (False, True)])
    random = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 1, generator=random)
    return layer.double()


def inputs(dtype=torch.float64) -> torch.Tensor:
    return (
        torch.randn(T, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        .to(dtype)
        .requires_grad_()
    )


def all_of(layer: Recurrent, x: torch.Tensor, lengths=None) -> list[torch.Tensor]:
    """Outputs and gradients."""
    y = layer.of_lengths(x, lengths)
    weights = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).to(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()])]


@pytest.fixture
def calls(monkeypatch):
    """Let layers use the path of a GPU; counts the calls."""
    made = []
    monkeypatch.setattr(
        sequence_layers, "side_by_side", lambda *arguments: made.append(1) or side_by_side(*arguments)
    )
    monkeypatch.setattr(
        sequence_layers, "runs_as_batch", lambda layers, x: lstm.runs_as_batch(layers, x.to("meta"))
    )
    return made


@pytest.mark.parametrize("lengths", [None, [7, 5, 1]])
@pytest.mark.parametrize("shape", SHAPES)
def test_batched_layers_equal_single_ones(shape, lengths, calls, monkeypatch):
    layer, lengths = layer_of(**shape), lengths and torch.tensor(lengths)
    found = all_of(layer, inputs(), lengths)
    assert calls == [1]
    monkeypatch.undo()
    for one, other in zip(found, all_of(layer, inputs(), lengths), strict=True):
        torch.testing.assert_close(one, other)
    assert calls == [1]


def test_layers_of_different_shapes_run_one_by_one(calls):
    for other in (
        dict(cell_clip=0.3),
        dict(peepholes=True),
        dict(recurrent_dim=2),
        dict(delay=2),
        dict(gradient_clip=1.0),
    ):
        layers = [Lstm(D, H), Lstm(D, H, backward=True, **other)]
        assert not lstm.runs_as_batch(layers, torch.zeros(1, device="meta"))
    layer = Recurrent([Lstm(D, H).double(), Lstm(D, H, backward=True, cell_clip=0.3).double()])
    layer(inputs())
    assert not calls


def test_natural_gradient_of_batched_layers(calls, monkeypatch):
    results = []
    for _ in range(2):
        layer = layer_of(recurrent_dim=2, peepholes=True, natural_peepholes=True).float()
        precondition(layer, NaturalGradientOptions(natural_gradient="online", ng_rank_in=1, ng_rank_out=2))
        layer(inputs(torch.float32)).square().sum().backward()
        results.append([parameter.grad for parameter in layer.parameters()])
        monkeypatch.undo()
    assert calls == [1]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_callback_is_called_for_each_layer(calls):
    seen, layer = [], layer_of(delay=2)
    for number, direction in enumerate(layer.directions):
        direction.watch = lambda gates, cells, number=number: seen.append((number, gates.shape, cells.shape))
    layer(inputs())
    assert seen == [(number, (T, N, 4 * H), (T, N, H)) for number in range(2)] and calls == [1]


def test_cpu_uses_plain_cells():
    assert lstm_cells.cells_for(torch.zeros(1)) is lstm_cells


ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


@ON_GPU
@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 0.04)]
)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_gpu_equals_cpu(shape, dtype, tolerance, monkeypatch):
    layer = layer_of(**shape)
    expected = all_of(layer, inputs())
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    found = all_of(layer.to("cuda", dtype), inputs().detach().to("cuda", dtype).requires_grad_())
    for one, other in zip(found, expected, strict=True):
        assert (
            one.is_cuda
            and one.dtype == dtype
            and (one.double().cpu() - other).norm() < tolerance * other.norm()
        )


@ON_GPU
def test_loop_is_capturable_as_cuda_graph():
    """A CUDA graph gives the outputs and gradients of plain calls, also for other inputs."""
    layer = layer_of(**SHAPES[-1]).to("cuda", torch.float32)
    x = inputs(torch.float32).detach().cuda().requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        all_of_one = list(_captured(layer, x))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = _captured(layer, x)
    x.data.mul_(2)
    graph.replay()
    for one, other in zip(captured, _captured(layer, x), strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.allclose(all_of_one[0], captured[0])


def _captured(layer: Recurrent, x: torch.Tensor) -> list[torch.Tensor]:
    y = layer(x)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))]
