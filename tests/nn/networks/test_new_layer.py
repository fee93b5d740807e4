"""The new layer of docs/extending/layer.md: its file, copied from the page."""

import pytest
import torch
from page_files import among_modules
from steps_here import run_here
from training_corpora import make_training_dirs

from pyasr.base.errors import UserError
from pyasr.nn.networks import kinds
from pyasr.nn.networks.kinds import layer_register
from pyasr.nn.networks.layered import LayeredNetwork, parse_line

NUM_PDFS = 5


@pytest.fixture(scope="module", autouse=True)
def kind(tmp_path_factory):
    """Install the file among the kinds of layers."""
    with among_modules("layer.md", kinds, tmp_path_factory.mktemp("kinds")):
        yield
    layer_register._KINDS.pop("glu", None)


def test_layer_computes_formula_of_its_docstring():
    network = LayeredNetwork(["glu dim=3"], 4, NUM_PDFS)
    network.initialise(torch.Generator().manual_seed(1))
    affine, x = network.layers[0].others[0], torch.randn(6, 2, 4)
    a, b = (x @ affine.weight.T + affine.bias).split(3, dim=2)
    torch.testing.assert_close(network.layers[0](x), a * b.sigmoid())
    assert affine.weight.std() > 0.1 and not affine.bias.any()


def test_layer_options_are_checked():
    assert len(parse_line("glu dim=3 repeat=2")) == 2
    for line, message in (
        ("glu dim=0", "--dim: 0 is below the minimum 1"),
        ("glu cells=3", "--cells: no such option"),
    ):
        with pytest.raises(UserError, match=message):
            parse_line(line)


def test_network_with_new_layer_is_trained(tmp_path):
    """On two ranks, with natural gradient."""
    dirs = make_training_dirs(tmp_path, NUM_PDFS)
    (tmp_path / "glu.net").write_text("tdnn dim=8 splice=-1..1\nglu dim=8\n")
    flags = ["--cmvn", "none", "--network", tmp_path / "glu.net", "--chunk", 8, "--minibatch", 32,
             "--heldout-share", 0.2, "--num-epochs", 2, "--natural-gradient", "online", "--period-frames", 64,
             "--num-ranks", 2]  # fmt: skip
    run_here("train_dnn.py", *flags, *dirs, tmp_path / "out", threads=True)
    assert (tmp_path / "out/final.nnet").exists()
