"""Networks from files: contexts, alignment of outputs with frames, every kind of layer, invalid files."""

import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.nn.layers.preconditioned_layers import NaturalGradientOptions, precondition
from pyasr.nn.networks.kinds.layer_register import kinds
from pyasr.nn.networks.layered import LayeredNetwork, read_network

DIM, PDFS, N = 24, 7, 2
NETWORKS = {
    "tdnn": (["tdnn splice=-2..2 dim=16", "tdnn splice=-1,2 dim=16 activation=tanh",
              "tdnn splice=-3,0,3 dim=8 activation=pnorm pnorm-group=2"], 6, 7, 1),
    "subsampled": (["tdnn splice=-1..1 dim=16", "tdnn splice=-1..1 dim=16 stride=3",
                    "tdnn splice=-1,0,1 dim=16"], 5, 5, 3),
    "tdnnf": (["tdnn splice=-1..1 dim=16", "tdnnf dim=16 bottleneck-dim=4",
               "tdnnf dim=16 bottleneck-dim=4 time-stride=0 stride=3",
               "tdnnf dim=16 bottleneck-dim=4 time-stride=2 dropout=0.2",
               "linear dim=6 semi-orthogonal=true"], 8, 8, 3),
    "lstmp": (["tdnn splice=-2..2 dim=8", "lstm cells=6 recurrent=3 nonrecurrent=2 delay=2 peepholes=true",
               "delay frames=5"], 2, 7, 1),
    "kaldis lstmp": (["lstm cells=6 recurrent=3 nonrecurrent=2 peepholes=true natural-peepholes=true "
                      "projection-bias=true init=kaldi clip-gradient=30"],
                     0, 0, 1),
    "blstm": (["blstm cells=5 repeat=2", "linear dim=4", "crop left=4 right=3"], 4, 3, 1),
    "cnn": (["conv channels=2 filters=3 time=3 bands=3 pool=2 step=2",
             "conv channels=3 filters=4 time=3 bands=2 pool=1 step=1", "affine dim=8"], 2, 2, 1),
    "cnn without groups": (["conv channels=2 filters=3 time=3 bands=3 pool=1", "affine dim=8"], 1, 1, 1),
    "window": (["affine dim=8", "window-blstm cells=4 left=3 right=2 clip=3 bias=false",
                "affine dim=8 dropout=0.5 normalize=true"], 3, 2, 1),
}  # fmt: skip


class TimeFirst(LayeredNetwork):
    """Inputs and outputs with time first, as in layers."""

    def forward(self, x):
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


def network_of(name) -> LayeredNetwork:
    network = TimeFirst(NETWORKS[name][0], DIM, PDFS)
    network.initialise(torch.Generator().manual_seed(1))
    torch.nn.init.normal_(network.output.weight, generator=torch.Generator().manual_seed(2))
    return network.double().eval()


def plain_of(network: TimeFirst) -> LayeredNetwork:
    """The same network of the class itself."""
    copy = LayeredNetwork.from_description(network.describe()).double().eval()
    copy.load_state_dict(network.state_dict())
    return copy


def frames(num: int) -> torch.Tensor:
    return torch.randn(num, N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("num_frames", [1, 2, 9])
def test_contexts_and_numbers_of_outputs(name, num_frames):
    network, (_, left, right, subsampling) = network_of(name), NETWORKS[name]
    assert (network.left, network.right, network.subsampling) == (left, right, subsampling)
    assert network(frames(left + num_frames + right)).shape == (-(-num_frames // subsampling), N, PDFS)


@pytest.mark.parametrize("name", ["tdnn", "subsampled", "tdnnf", "cnn", "window"])
def test_output_depends_only_on_its_context(name):
    """So chunks with context give the same output as whole utterances, and output j belongs to frame j *
    subsampling."""
    network = network_of(name)
    x = frames(network.left + 12 + network.right)
    whole = network(x)
    for j in range(len(whole)):
        begin = j * network.subsampling
        alone = network(x[begin : begin + network.left + 1 + network.right])
        torch.testing.assert_close(alone, whole[j : j + 1])
        for frame in (begin - 1, begin + network.left + 1 + network.right):
            if 0 <= frame < len(x):
                changed = x.clone()
                changed[frame] += 1
                assert torch.equal(network(changed)[j], whole[j])
    # the first and the last frame of the first output's context
    for frame in (0, network.left + network.right):
        changed = x.clone()
        changed[frame] += 1
        assert not torch.equal(network(changed)[0], whole[0])


@pytest.mark.parametrize(
    "lines",
    [
        *(lines for lines, *_ in NETWORKS.values()),
        [
            "blstm cells=5",
            "tdnn splice=-2..1 dim=8 stride=3",
            "blstm cells=4 recurrent=2 nonrecurrent=1",
            "tdnn splice=-1,2 dim=8 stride=2",
        ],
    ],
)
def test_batched_sequences_equal_single_ones(lines):
    """With any padding after the shorter ones, in both directions of time, also with subsampling."""
    network, random = LayeredNetwork(lines, DIM, PDFS), torch.Generator().manual_seed(4)
    network.initialise(random)
    torch.nn.init.normal_(network.output.weight, generator=random)
    network.double().eval()
    lengths = torch.tensor([13, 1, 20, 18, 6])
    x = torch.randn(
        len(lengths), network.left + 24 + network.right, DIM, dtype=torch.float64, generator=random
    )
    found = network(x, lengths)
    for row, answers, length in zip(x, found, lengths):
        whole = -(-int(length) // network.subsampling) * network.subsampling
        alone = network(row[None, : network.left + whole + network.right])
        torch.testing.assert_close(answers[: alone.shape[1]], alone[0], rtol=0, atol=1e-12)


def test_delayed_outputs_and_cropped_context():
    network, x = network_of("lstmp"), frames(20)
    changed = x.clone()
    # the output for frame 5 - delay 5, splice 2 - must not depend on frames from 13 on
    changed[2 + 5 + 5] += 1
    changed_late = x.clone()
    changed_late[13] += 1
    whole = network(x)
    assert torch.equal(network(changed_late)[3], whole[3]) and not torch.equal(network(changed)[3], whole[3])
    blstm = network_of("blstm")
    layers = [blstm.layers[0], blstm.layers[1], blstm.layers[2]]
    y = x
    for layer in layers:
        y = layer(y)
    torch.testing.assert_close(blstm(x), blstm.output(y[4:-3]))


def test_frames_are_normalised_individually():
    layer = network_of("window").layers[2]
    y = layer(frames(8)[:, :, :8])
    torch.testing.assert_close(y.square().mean(2), torch.ones(8, N, dtype=torch.float64))


def test_window_is_read_in_both_directions():
    """Each direction is computed window by window up to its end of the window."""
    network, x = network_of("window"), frames(8)
    layer, below = network.layers[1], network.layers[0](x)
    found = layer(below)
    for t in range(len(found)):
        window = below[t : t + 6]
        forward, backward = (lstm(window)[0] for lstm in layer.directions)
        torch.testing.assert_close(found[t], torch.cat([forward[-1], backward[0]], 1))


def test_convolution_equals_explicit_sum_over_channels_and_bands():
    """Band b of filter f by an explicit sum."""
    network, x = network_of("cnn"), frames(5)
    layer = network.layers[0]
    weight, bias = layer.convolution.weight, layer.convolution.bias
    found = layer(x).view(3, N, 3, -1)
    images = x.view(5, N, 2, 12)
    for t, f, b in ((0, 0, 0), (2, 2, 4), (1, 1, 2)):
        both = []
        for band in (2 * b, 2 * b + 1):
            total = sum(
                (weight[f, c, k, d] * images[t + k, :, c, band + d])
                for c in range(2)
                for k in range(3)
                for d in range(3)
            )
            both.append((total + bias[f]).clamp(min=0))
        torch.testing.assert_close(found[t, :, f, b], torch.maximum(*both))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_rebuilt_from_description_and_learn(name):
    network = network_of(name).float()
    again = LayeredNetwork.from_description(network.describe())
    again.load_state_dict(network.state_dict())
    x = frames(network.left + 9 + network.right).float()
    copy, expected = network.with_parameters(network.parameters()), network(x).transpose(0, 1)
    assert torch.equal(again.eval()(x.transpose(0, 1)), expected) and torch.equal(
        copy(x.transpose(0, 1)), expected
    )
    layers = precondition(
        network, NaturalGradientOptions(natural_gradient="online", ng_rank_in=2, ng_rank_out=2)
    ).layers
    assert layers
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    network.train()(x).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


@pytest.mark.parametrize(
    "line, message",
    [
        ("gru cells=5", "x.net:2: unknown kind of layer 'gru'; use one of affine, blstm, conv, crop"),
        ("lstm cell=5", "x.net:2: --cell: no such option; did you mean --cells?"),
        ("tdnn splice=2..-2", "--splice 2..-2: offsets must be ascending integers"),
        ("tdnn splice=a", "--splice a: offsets must be ascending"),
        (
            "tdnn help",
            "x.net:2: 'help' is not an option of a layer; write options as NAME=VALUE, such as dim=512",
        ),
        ("tdnn help=true", "x.net:2: 'help=true' is not an option of a layer"),
        ("tdnn config=layer.conf", "x.net:2: 'config=layer.conf' is not an option of a layer"),
        ("tdnn normalize", "x.net:2: 'normalize' is not an option of a layer"),
        ("affine dim=0", "x.net:2: --dim: 0 is below the minimum 1"),
        ("affine repeat=0", "x.net:2: repeat=0: give an integer from 1"),
        ("lstm nonrecurrent=4", "layer 'lstm': --nonrecurrent 4: without --recurrent there is no projection"),
        (
            "lstm projection-bias=true",
            (
                "layer 'lstm': --projection-bias: without --recurrent there is no projection; give both or "
                "neither"
            ),
        ),
        ("lstm natural-peepholes=true", "layer 'lstm': --natural-peepholes: needs --peepholes true"),
        ("lstm clip-gradient=-1", "x.net:2: --clip-gradient: -1 is below the minimum 0"),
        (
            "lstm init=Kaldi",
            "layer 'lstm': --init Kaldi: give 0 or more, the maximum magnitude of initial weights, or kaldi",
        ),
        ("blstm init=-0.1", "layer 'blstm': --init -0.1: give 0 or more"),
        ("lstm init=inf", "layer 'lstm': --init inf: give 0 or more"),
        (
            "lstm init=kaldi forget-bias=2",
            "layer 'lstm': --forget-bias 2: with --init kaldi all biases are random; omit the option",
        ),
        (
            "tdnn normalize=true layer-norm=true",
            "--normalize and --layer-norm both normalise the units; omit one",
        ),
        ("tdnn pnorm-group=7", "--pnorm-group 7: needs --activation pnorm"),
        (
            "tdnn init=Kaldi",
            "layer 'tdnn': --init Kaldi: give 0 or more, the standard deviation of initial weights, or kaldi",
        ),
        ("affine init=-0.1", "layer 'affine': --init -0.1: give 0 or more"),
        (
            "linear semi-orthogonal=true init=kaldi",
            "--init kaldi: a semi-orthogonal matrix is initialised as such",
        ),
        ("linear semi-orthogonal=true init=5", "--init 5: a semi-orthogonal matrix is initialised as such"),
        ("lstm bias=false forget-bias=5", "--forget-bias 5: with --bias false there is no bias"),
        ("conv channels=5", "layer 'conv': 24 inputs are not --channels 5"),
        ("conv channels=1 bands=30", "enough bands for --bands 30"),
        (
            "tdnnf dim=32",
            (
                "layer 'tdnnf': its input of 24 elements cannot be added to 32 units; give --dim 24 or "
                "--bypass-scale 0"
            ),
        ),
        (
            "tdnnf dim=24 stride=3",
            (
                "layer 'tdnnf': --stride 3 and --time-stride 1 cannot be combined; give --time-stride 0 to a "
                "layer that subsamples"
            ),
        ),
        ("tdnnf bypass-scale=1.5", "x.net:2: --bypass-scale: 1.5 is above the maximum 1"),
        ("tdnnf dropout=0.6", "x.net:2: --dropout: 0.6 is above the maximum 0.5"),
        ("tdnnf time-stride=-1", "x.net:2: --time-stride: -1 is below the minimum 0"),
        (
            "tdnn dropout=0.6 dropout-per-dim=true",
            "layer 'tdnn': --dropout 0.6: with --dropout-per-dim the maximum is 0.5",
        ),
        (
            "linear semi-orthogonal=true activation=relu",
            "layer 'linear': --activation relu: a semi-orthogonal layer is linear",
        ),
        ("conv time=2 bands=3", "--time 2: a filter is centred on its frame"),
    ],
)
def test_errors_in_network_file_are_reported(tmp_path, line, message):
    path = tmp_path / "x.net"
    path.write_text(f"# comment\n{line}\n")
    with pytest.raises(UserError) as error:
        LayeredNetwork(read_network(path), DIM, PDFS)
    assert message in str(error.value)


def test_files_without_layers_are_refused(tmp_path):
    (tmp_path / "empty.net").write_text("# nothing\n")
    (tmp_path / "binary.net").write_bytes(b"\xff\xfe\x00")
    for name, message in (
        ("empty.net", "the file has no layers"),
        ("missing.net", "No such file"),
        ("binary.net", "not UTF-8"),
    ):
        with pytest.raises(UserError, match=message):
            read_network(tmp_path / name)


@pytest.mark.parametrize("name", ["tdnn", "subsampled", "tdnnf", "cnn", "window"])
@pytest.mark.parametrize("num_frames", [1, 5, 6, 7, 20, 23])
def test_chunks_with_full_context_equal_whole_utterance(name, num_frames):
    network, x = network_of(name), frames(num_frames)[:, 0]
    chunked = LayeredNetwork(network.lines, DIM, PDFS, chunk=6).double().eval()
    chunked.load_state_dict(network.state_dict())
    torch.testing.assert_close(chunked.log_posteriors(x), LayeredNetwork.log_posteriors(plain_of(network), x))


@pytest.mark.parametrize("chunk, num_frames", [(1, 250), (6, 250), (1, 30), (120, 250)])
def test_frames_shared_by_chunks_are_computed_once(chunk, num_frames):
    """Chunks share no frames except for their context. They have at least a hundred frames."""
    network, x = plain_of(network_of("window")), frames(num_frames)[:, 0]
    chunked = LayeredNetwork(network.lines, DIM, PDFS, chunk=chunk).double().eval()
    chunked.load_state_dict(network.state_dict())
    computed = []
    chunked.layers[0].register_forward_hook(lambda layer, inputs, y: computed.append(y.shape[0] * y.shape[1]))
    torch.testing.assert_close(chunked.log_posteriors(x), network.log_posteriors(x))
    num_chunks = max(num_frames // max(chunk, 100), 1)
    assert sum(computed) == num_frames + 5 * num_chunks


def test_recurrent_state_is_limited_to_chunk():
    """The last chunk ends with the utterance."""
    network, x = plain_of(network_of("blstm")), frames(16)[:, 0]
    chunked = LayeredNetwork(network.lines, DIM, PDFS, chunk=6).double().eval()
    chunked.load_state_dict(network.state_dict())
    padded = torch.cat([x[:1]] * 4 + [x] + [x[-1:]] * 3)
    parts = [network(padded[None, begin : begin + 4 + 6 + 3])[0].log_softmax(1) for begin in (0, 6, 10)]
    torch.testing.assert_close(chunked.log_posteriors(x), torch.cat([parts[0], parts[1], parts[2][2:]]))


@pytest.mark.parametrize("name", NETWORKS)
def test_utterance_ends_are_repeated_as_context(name):
    """The first and last frames are repeated as context."""
    network = network_of(name)
    x = frames(7)[:, 0]
    padded = torch.cat([x[:1]] * network.left + [x] + [x[-1:]] * network.right)
    expected = network(padded[:, None])[:, 0].log_softmax(1)
    torch.testing.assert_close(plain_of(network).log_posteriors(x), expected)
    assert plain_of(network).log_posteriors(x[:0]).shape == (0, PDFS)


def test_every_layer_kind_is_tested():
    assert {line.split()[0] for lines, *_ in NETWORKS.values() for line in lines} == set(kinds())


def test_initial_values_equal_kaldi_tdnn():
    """They are those of NaturalGradientAffineComponent as created by AddAffRelNormLayer, with bias-stddev=0;
    those of AddFinalLayer are 0. Moments agree within 5 standard errors."""
    network = LayeredNetwork(
        [
            "tdnn splice=-2..2 dim=300 normalize=true init=kaldi",
            "tdnn splice=-1,1 dim=200 normalize=true init=kaldi",
        ],
        40,
        PDFS,
    )
    network.initialise(torch.Generator().manual_seed(1))
    for layer, num_inputs in zip(network.layers, (5 * 40, 2 * 300), strict=True):
        affine = layer.others[0]
        z, size = affine.weight.double() * num_inputs**0.5, affine.weight.numel()
        assert affine.in_features == num_inputs and not affine.bias.any()
        assert (
            abs(z.mean()) < 5 * size**-0.5
            and abs(z.var() - 1) < 5 * (2 / size) ** 0.5
            and abs((z**4).mean() - 3) < 5 * (96 / size) ** 0.5
        )
    assert not network.output.weight.any() and not network.output.bias.any()


@pytest.mark.parametrize("kind", ["lstm", "blstm", "window-blstm"])
@pytest.mark.parametrize("per_dim", [False, True])
def test_dropout_of_recurrent_layers_is_applied_to_output(kind, per_dim):
    """It changes the input of the next layer, and only in training."""
    options = kinds()[kind](cells=20, dropout=0.25, dropout_per_dim=per_dim)
    layer = options.build(6).double()
    x = torch.randn(30, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    options.initialise(layer, False, torch.Generator().manual_seed(1))
    factors = layer.train()(x) / layer.eval()(x)
    if per_dim:
        torch.testing.assert_close(factors, factors[:1].expand_as(factors))
        assert 0.5 <= factors.min() < 0.9 and 1.1 < factors.max() <= 1.5
    else:
        dropped = factors == 0
        torch.testing.assert_close(factors[~dropped], torch.full_like(factors[~dropped], 4 / 3))
        assert 0.15 < dropped.double().mean() < 0.35


def test_dropout_keeps_recurrent_state():
    layer = kinds()["lstm"](cells=20, dropout=0.5).build(6)
    x = torch.randn(12, 3, 6, generator=torch.Generator().manual_seed(3))
    (dropped, state), (whole, expected) = layer.train().go_on(x, None, 12), layer.eval().go_on(x, None, 12)
    assert (dropped == 0).double().mean() > 0.3 and (whole != 0).all()
    torch.testing.assert_close(tuple(state), tuple(expected))
