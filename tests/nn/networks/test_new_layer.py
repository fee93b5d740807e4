"""The new layer of docs/extending/layer.md: its file, copied from the page."""

import re
from pathlib import Path

import pytest
import torch
from corpora import make_alignments, make_data
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.nn.networks import kinds
from pyasr.nn.networks.kinds import layer_register
from pyasr.nn.networks.layered import LayeredNetwork, parse_line

ROOT = Path(__file__).resolve().parents[3]
NUM_PDFS = 5


@pytest.fixture(scope="module", autouse=True)
def kind(tmp_path_factory):
    """The file among the kinds."""
    path, text = tmp_path_factory.mktemp("kinds"), (ROOT / "docs/extending/layer.md").read_text()
    (name,), (block,) = re.findall(r"`(\w+\.py)`:\n", text), re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (path / name).write_text(block)
    kinds.__path__.append(str(path))
    yield
    kinds.__path__.remove(str(path))
    layer_register._KINDS.pop("glu", None)


def test_it_computes_the_formula_of_its_docstring():
    network = LayeredNetwork(["glu dim=3"], 4, NUM_PDFS)
    network.initialise(torch.Generator().manual_seed(1))
    affine, x = network.layers[0].others[0], torch.randn(6, 2, 4)
    a, b = (x @ affine.weight.T + affine.bias).split(3, dim=2)
    torch.testing.assert_close(network.layers[0](x), a * b.sigmoid())
    assert affine.weight.std() > 0.1 and not affine.bias.any()


def test_its_options_are_checked():
    assert len(parse_line("glu dim=3 repeat=2")) == 2
    for line, message in (("glu dim=0", "--dim: 0 is below the minimum 1"), ("glu cells=3", "--cells: no such option")):
        with pytest.raises(UserError, match=message):
            parse_line(line)


def test_a_network_with_it_is_trained(tmp_path):
    """On two ranks, with natural gradient."""
    lengths = {f"{speaker}-{i}": 40 + i for speaker in "abcd" for i in range(6)}
    make_alignments(tmp_path / "ali", make_data(tmp_path / "data", lengths, NUM_PDFS))
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang" / "phones.txt").write_text("<eps> 0\n")
    (tmp_path / "glu.net").write_text("tdnn dim=8 splice=-1..1\nglu dim=8\n")
    flags = ["--cmvn", "none", "--network", tmp_path / "glu.net", "--chunk", 8, "--minibatch", 32, "--heldout-share", 0.2, "--num-epochs", 2,
             "--natural-gradient", "online", "--period-frames", 64, "--num-ranks", 2]  # fmt: skip
    run_here("train_dnn.py", *flags, *(tmp_path / name for name in ("data", "lang", "ali", "out")), threads=True)
    assert (tmp_path / "out/final.nnet").exists()
