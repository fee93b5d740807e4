"""LSTM layers against torch's, against the equations with autograd, and against finite differences; in parts
and in both directions."""

import pytest
import torch

from pyasr.nn.layers import lstm
from pyasr.nn.layers.lstm import Lstm, LstmState
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.layers.sequence_layers import Recurrent, WindowRecurrent, lstm_paths
from pyasr.nn.networks.layered import parse_line
from pyasr.parallel.mixing.flat import FlatParameters

T, N, D, H = 12, 3, 5, 4
SHAPES = [
    dict(),
    dict(recurrent_dim=3),
    dict(recurrent_dim=2, nonrecurrent_dim=3),
    dict(peepholes=True),
    dict(cell_clip=0.3),
    dict(delay=3),
    dict(backward=True),
    dict(
        recurrent_dim=2, nonrecurrent_dim=1, peepholes=True, cell_clip=0.4, delay=2, backward=True, bias=False
    ),
    dict(recurrent_dim=2, nonrecurrent_dim=3, peepholes=True, projection_bias=True),
    dict(recurrent_dim=3, delay=2, projection_bias=True),
]


def layer_of(seed=1, **shape) -> Lstm:
    """A layer with weights large enough for cells to be clipped."""
    layer, random = Lstm(D, H, **shape).double(), torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 1, generator=random)
    return layer


def inputs(seed=2, frames=T, requires_grad=True):
    return torch.randn(
        frames, N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_(requires_grad)


def by_equations(layer: Lstm, x: torch.Tensor):
    """Frame by frame as in the docstring, with derivatives by autograd."""
    x = x.flip(0) if layer.backward else x
    rs = [torch.zeros(N, layer.recurrent_dim, dtype=x.dtype)] * layer.delay
    cs = [torch.zeros(N, H, dtype=x.dtype)] * layer.delay
    ys, p = [], layer.peepholes if layer.peepholes is not None else torch.zeros(3, H, dtype=x.dtype)
    for x_t in x:
        i, f, g, o = (layer.input(x_t) + layer.recurrent(rs[-layer.delay])).chunk(4, 1)
        before = cs[-layer.delay]
        c = torch.sigmoid(f + p[1] * before) * before + torch.sigmoid(i + p[0] * before) * torch.tanh(g)
        c = c.clamp(-layer.cell_clip, layer.cell_clip) if layer.cell_clip else c
        m = torch.sigmoid(o + p[2] * c) * torch.tanh(c)
        y = m if layer.projection is None else layer.projection(m)
        rs, cs, ys = rs + [y[:, : layer.recurrent_dim]], cs + [c], ys + [y]
    y = torch.stack(ys)
    return y.flip(0) if layer.backward else y


def gradients(layer, x, y):
    layer.zero_grad()
    x.grad = None
    weights = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (y * weights.to(y.dtype)).sum().backward()
    return [x.grad.clone(), *(parameter.grad.clone() for parameter in layer.parameters())]


@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_derivatives_equal_equations(shape):
    layer, x = layer_of(**shape), inputs()
    y, expected = layer(x)[0], by_equations(layer, x)
    torch.testing.assert_close(y, expected)
    for found, wanted in zip(gradients(layer, x, y), gradients(layer, x, expected), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_on_cpu_equals_equations(shape):
    """float32 has separate loops on the CPU."""
    wide, x = layer_of(**shape), inputs()
    y = wide(x)[0]
    exact = [y, *gradients(wide, x, y)]
    narrow, x = layer_of(**shape).float(), inputs().detach().float().requires_grad_()
    y = narrow(x)[0]
    for found, expected in zip([y, *gradients(narrow, x, y)], exact, strict=True):
        torch.testing.assert_close(
            found.double(), expected, rtol=1e-5, atol=2e-6 * expected.abs().max().item() + 1e-6
        )


def test_delay_with_any_number_of_frames():
    layer, x = layer_of(delay=3), inputs(frames=11)
    torch.testing.assert_close(layer(x)[0], by_equations(layer, x))


def test_test_data_clips_cells():
    free, clipped = (by_equations(layer_of(cell_clip=clip), inputs()) for clip in (0.0, 0.3))
    assert (free - clipped).abs().max() > 0.05


OF_FILES = [
    ("clip=0.3", dict(cell_clip=0.3)),
    (
        "recurrent=2 nonrecurrent=1 peepholes=true clip=0.4 delay=2 bias=false",
        dict(recurrent_dim=2, nonrecurrent_dim=1, peepholes=True, cell_clip=0.4, delay=2, bias=False),
    ),
    (
        "recurrent=2 projection-bias=true clip-gradient=0.5",
        dict(recurrent_dim=2, projection_bias=True, gradient_clip=0.5),
    ),
]


@pytest.mark.parametrize("options, shape", OF_FILES)
@pytest.mark.parametrize(
    "kind, directions", [("lstm", [False]), ("blstm", [False, True]), ("window-blstm", [False, True])]
)
def test_configured_layer_equals_equations(kind, directions, options, shape):
    """Weights are large enough for cells to be clipped."""
    (line,), x = parse_line(f"{kind} cells={H} {options}"), inputs(requires_grad=False)
    layers = list(line.options.build(D).double().directions)
    assert [layer.backward for layer in layers] == directions
    for layer in layers:
        assert layer.gradient_clip == shape.get("gradient_clip", 0.0)
        peer = layer_of(**shape, backward=layer.backward)
        layer.load_state_dict(peer.state_dict())
        torch.testing.assert_close(layer(x)[0], by_equations(peer, x))


@pytest.mark.parametrize("shape", [SHAPES[0], *SHAPES[-3:]])
def test_derivatives_equal_finite_differences(shape):
    layer, x = layer_of(**shape), inputs()
    state = LstmState(
        *(
            torch.randn(layer.delay, N, dim, dtype=x.dtype).mul_(0.1).requires_grad_()
            for dim in (layer.recurrent_dim, H)
        )
    )
    parameters = list(layer.parameters())

    def function(x, r, c, *values):
        y, (r, c) = torch.func.functional_call(
            layer, dict(zip(dict(layer.named_parameters()), values)), (x, LstmState(r, c))
        )
        return y, r, c

    assert torch.autograd.gradcheck(function, (x, *state, *parameters), atol=1e-6)


@pytest.mark.parametrize("recurrent_dim", [0, 3])
def test_outputs_equal_torch(recurrent_dim):
    layer, peer = layer_of(recurrent_dim=recurrent_dim), torch.nn.LSTM(D, H, proj_size=recurrent_dim).double()
    own = [
        layer.input.weight,
        layer.recurrent.weight,
        layer.input.bias,
        torch.zeros(4 * H),
        *([layer.projection.weight] if recurrent_dim else []),
    ]
    for theirs, ours in zip(peer.parameters(), own, strict=True):
        theirs.data.copy_(ours)
    x = inputs()
    (y, state), (wanted, (r, c)) = layer(x), peer(x)
    for found, expected in ((y, wanted), (state.r, r), (state.c, c)):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lengths", [[6, 6], [5, 7], [1, 1, 10]])
@pytest.mark.parametrize("shape", SHAPES[:6])
def test_parts_equal_whole_sequence(shape, lengths):
    """State and derivatives are carried over. The length of a part need not be a multiple of the delay."""
    layer, x, state, parts = layer_of(**shape), inputs(), None, []
    whole = layer(x)[0]
    for part in x.split(lengths):
        y, state = layer(part, state)
        parts.append(y)
    parts = torch.cat(parts)
    torch.testing.assert_close(parts, whole)
    for found, wanted in zip(gradients(layer, x, parts), gradients(layer, x, layer(x)[0])):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("delay, end", [(1, 5), (3, 5), (3, 2), (2, 0)])
def test_intermediate_state_equals_that_of_shorter_sequence(delay, end):
    layer, x = layer_of(delay=delay, recurrent_dim=2), inputs()
    _, state = layer(x[:4])
    for found, wanted in zip(
        layer(x[4:], state, end)[1], layer(x[4 : 4 + end], state)[1] if end else state, strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_natural_gradient_uses_inputs_and_derivatives_of_all_frames():
    """The gradient of the recurrent weight equals that of a preconditioned layer with the same two
    matrices."""
    options = NaturalGradientOptions(natural_gradient="online", ng_rank_in=1, ng_rank_out=2)
    layer, plain, x = layer_of(recurrent_dim=2), layer_of(recurrent_dim=2), inputs(requires_grad=False)
    seen = {}
    for name in ("recurrent", "projection"):
        module = getattr(plain, name)
        module.register_forward_hook(
            lambda module, arguments, output, name=name: seen.setdefault(name, []).append(
                (arguments[0], output)
            )
        )
    y = by_equations(plain, x)
    for pairs in seen.values():
        for _, output in pairs:
            output.retain_grad()
    y.square().sum().backward()
    sides = precondition(layer, options).layers
    FlatParameters(layer.float().parameters())
    layer(x.float())[0].square().sum().backward()
    for name, pairs in seen.items():
        inputs_, derivatives = (
            torch.cat(parts).float() for parts in zip(*((pair[0], pair[1].grad) for pair in pairs))
        )
        peer = torch.nn.Linear(inputs_.shape[1], derivatives.shape[1], bias=False)
        peer.weight.grad = torch.zeros_like(peer.weight)
        precondition(peer, options).layers[""].accumulate(inputs_, derivatives, peer.weight, None)
        torch.testing.assert_close(getattr(layer, name).weight.grad, peer.weight.grad, rtol=2e-3, atol=2e-3)
    assert set(sides) == {"input", "recurrent", "projection"}


def test_bfloat16_is_close_to_float64():
    layer, x = layer_of(recurrent_dim=3, cell_clip=3.0, peepholes=True), inputs()
    wanted = layer(x)[0]
    exact = gradients(layer, x, wanted)
    layer, x = layer.bfloat16(), inputs().detach().bfloat16().requires_grad_()
    found, state = layer(x)
    assert (
        found.dtype == torch.bfloat16
        and state.c.dtype == torch.float32
        and (found.double() - wanted).norm() < 0.02 * wanted.norm()
    )
    for narrow, wide in zip(gradients(layer, x, found), exact):
        assert narrow.dtype == torch.bfloat16 and (narrow.double() - wide).norm() < 0.03 * wide.norm()


TORCHS = [dict(), dict(bias=False), dict(recurrent_dim=3), dict(recurrent_dim=3, backward=True)]


@pytest.fixture
def calls(monkeypatch):
    """Calls of torch's LSTM: number of directions of each."""
    made, torchs = [], torch.lstm
    monkeypatch.setattr(torch, "lstm", lambda *arguments: made.append(1 + arguments[7]) or torchs(*arguments))
    return made


@pytest.fixture
def on_cudnn(monkeypatch, calls):
    """Simulate a GPU, where `by_torch` calls the same function of torch."""
    monkeypatch.setattr(lstm, "cudnn_supports", lambda x: True)
    return calls


def begun(layer: Lstm, seed=4) -> LstmState:
    random = torch.Generator().manual_seed(seed)
    return LstmState(
        *(
            torch.randn(layer.delay, N, dim, dtype=torch.float64, generator=random).requires_grad_()
            for dim in (layer.recurrent_dim, layer.cell_dim)
        )
    )


def all_of(layer: torch.nn.Module, function, x, state=None) -> list[torch.Tensor]:
    """Outputs, final state, and gradients by inputs, state and parameters of a function of all their
    elements."""
    layer.zero_grad()
    y, after = function(x, state)
    results, leaves, random = [y, *after], [x, *(state or ())], torch.Generator().manual_seed(3)
    loss = sum(
        (part * torch.randn(part.shape, dtype=torch.float64, generator=random).to(part)).sum()
        for part in results
    )
    by_leaves = torch.autograd.grad(loss, leaves, retain_graph=True)
    loss.backward(inputs=list(layer.parameters()))
    return [*results, *by_leaves, *(parameter.grad.clone() for parameter in layer.parameters())]


@pytest.mark.parametrize("lengths", [None, [T, 5, 1]])
@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("shape", TORCHS)
def test_cudnn_equals_loop(shape, is_begun, lengths, on_cudnn, monkeypatch):
    layer, x = layer_of(**shape), inputs()
    state, lengths = begun(layer) if is_begun else None, lengths and torch.tensor(lengths)
    found = all_of(layer, lambda x, state: layer(x, state, lengths=lengths), x, state)
    monkeypatch.undo()
    expected = all_of(layer, lambda x, state: layer(x, state, lengths=lengths), x, state)
    assert on_cudnn == [1]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("recurrent_dim", [0, 3])
def test_cudnn_gets_both_directions_at_once(recurrent_dim, on_cudnn, monkeypatch):
    layer = Recurrent([layer_of(seed, recurrent_dim=recurrent_dim, backward=seed == 2) for seed in (1, 2)])
    x = inputs()
    found = all_of(layer, lambda x, _: (layer(x), []), x)
    layer.of_lengths(x, torch.tensor([T, 5, 1]))
    monkeypatch.undo()
    for one, other in zip(found, all_of(layer, lambda x, _: (layer(x), []), x), strict=True):
        torch.testing.assert_close(one, other)
    assert on_cudnn == [2, 1, 1]


def test_computing_path_of_last_minibatch_is_reported(on_cudnn):
    layers = torch.nn.ModuleList(
        [Recurrent([layer_of(1), layer_of(2, backward=True)]), Recurrent([layer_of(3, peepholes=True)])]
    )
    assert lstm_paths(layers) == []
    for layer in layers:
        layer(inputs())
    by_loop = "LSTM layers computed by the loop over frames: 1; cuDNN has no peepholes"
    assert lstm_paths(layers) == ["LSTM layers computed by cuDNN: 2", by_loop]


KEPT = [
    (dict(peepholes=True), "peepholes"),
    (dict(cell_clip=0.3), "clipped cells"),
    (dict(delay=2), "delay of more than one frame"),
    (dict(recurrent_dim=2, nonrecurrent_dim=1), "projection of this form"),
    (dict(recurrent_dim=H), "projection of this form"),
    (dict(recurrent_dim=2, projection_bias=True), "projection of this form"),
    (dict(gradient_clip=30.0), "clipped derivatives"),
]


@pytest.mark.parametrize("shape, lacking", KEPT)
def test_features_unsupported_by_cudnn_use_loop(shape, lacking, on_cudnn):
    layer, x = layer_of(**shape), inputs()
    torch.testing.assert_close(layer(x)[0], by_equations(layer, x))
    assert not on_cudnn and lstm_paths(layer) == [
        f"LSTM layers computed by the loop over frames: 1; cuDNN has no {lacking}"
    ]


def test_natural_gradient_uses_loop(on_cudnn):
    layer = layer_of()
    precondition(layer, NaturalGradientOptions(natural_gradient="online", ng_rank_in=1, ng_rank_out=2))
    layer(inputs())
    assert not on_cudnn and layer.in_loop == "natural gradient"


def test_intermediate_state_uses_loop(on_cudnn):
    layer, x = layer_of(), inputs()
    _, wanted = layer(x[:5])
    assert on_cudnn == [1]
    torch.testing.assert_close(layer(x, None, 5)[1], wanted)
    assert on_cudnn == [1]
    layer(x, wanted, T)
    assert on_cudnn == [1, 1]


def test_carried_bfloat16_cells_use_loop(on_cudnn):
    """cuDNN would round them."""
    layer, x = layer_of().bfloat16(), inputs().detach().bfloat16()
    y, state = layer(x)
    assert on_cudnn == [1] and y.dtype == torch.bfloat16 and state.c.dtype == torch.float32
    layer(x, state)
    layer(x, end=T)
    assert on_cudnn == [1] and layer.in_loop == "state in bfloat16 that is exact enough"


@pytest.mark.parametrize("version, taken", [(91200, False), (91300, True)])
def test_cudnn_supports_bfloat16_from_a_version_on(version, taken, monkeypatch):
    monkeypatch.setattr(torch, "cudnn_is_acceptable", lambda x: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    assert lstm.cudnn_supports(torch.zeros(1)) and lstm.cudnn_supports(torch.zeros(1).bfloat16()) == taken


def test_windows_use_loop(on_cudnn):
    layer = WindowRecurrent([layer_of(), layer_of(backward=True)], 2, 2)
    layer(inputs())
    assert not on_cudnn and lstm_paths(layer) == [
        "LSTM layers computed by the loop over frames: 2; cuDNN has no windows around frames"
    ]


def test_cpu_uses_loop(calls):
    layer = layer_of()
    layer(inputs())
    layer.float()(inputs().float())
    Recurrent([layer_of(), layer_of(backward=True)])(inputs())
    assert not calls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("recurrent_dim", [0, 64])
def test_cudnn_on_gpu_equals_loop(recurrent_dim, dtype, tolerance, calls, monkeypatch):
    torch.manual_seed(1)
    layer = Recurrent(
        [Lstm(40, 128, recurrent_dim, backward=backward) for backward in (False, True)]
    ).double()
    x = torch.randn(21, 16, 40, dtype=torch.float64).requires_grad_()
    expected = all_of(layer, lambda x, _: (layer(x), []), x)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    layer, x = layer.to("cuda", dtype), x.detach().to("cuda", dtype).requires_grad_()
    found = all_of(layer, lambda x, _: (layer(x), []), x)
    assert calls == [2]
    for one, other in zip(found, expected, strict=True):
        assert (
            one.is_cuda
            and one.dtype == dtype
            and (one.double().cpu() - other).norm() < tolerance * other.norm()
        )
