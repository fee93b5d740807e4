"""Sizes of networks described by files: against torch's own count of operations, and by hand where torch does
not count."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pyasr.base.errors import UserError
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.size import size_of_network

NETWORKS = Path(__file__).parents[3] / "egs/amazon_queen/s5/conf/network"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("lines, columns, chunk", [
    (["tdnn splice=-2..2 dim=16 normalize=true", "tdnn splice=-1,2 dim=12", "affine dim=8"], 10, 20),
    (["tdnn splice=-1..1 dim=16 stride=3", "tdnn splice=-1..1 dim=16"], 10, 30),
    (["tdnn dim=16 activation=pnorm pnorm-group=5"], 10, 7),
    (["tdnn splice=-1..1 dim=16", "tdnnf dim=16 bottleneck-dim=4 time-stride=0 stride=3",
      "linear dim=6 semi-orthogonal=true"], 10, 15),
    (["conv channels=3 filters=8 time=9 bands=3 pool=3 step=3",
      "conv channels=8 filters=4 time=3 bands=2 pool=1 step=1", "affine dim=5"], 36, 20),
])  # fmt: skip
def test_products_equal_count_of_torch(lines, columns, chunk, tmp_path):
    """torch counts two operations for each."""
    parameters, products, *_ = size_of_network(write(tmp_path / "net", *lines), columns, 11, chunk)
    network = LayeredNetwork(lines, columns, 11, chunk)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(2, network.left + chunk + network.right, columns))
    assert products == pytest.approx(counter.get_total_flops() / 2 / 2 / chunk)
    assert parameters == sum(parameter.numel() for parameter in network.parameters())


def test_recurrent_layers_equal_hand_calculation(tmp_path):
    """Gates have the input and the previous output as inputs; the projection has the cells."""
    blstm = size_of_network(write(tmp_path / "a", "blstm cells=6"), 10, 11, 20)
    assert blstm == (2 * (24 * (10 + 6) + 24) + 13 * 11, 2 * 24 * (10 + 6) + 12 * 11, "recurrent", 5, 2 * 20)
    projected = size_of_network(write(tmp_path / "b", "lstm cells=6 recurrent=3 nonrecurrent=2"), 10, 11, 20)
    assert projected[1] == 24 * (10 + 3) + 6 * 5 + 5 * 11


def test_window_layers_equal_hand_calculation(tmp_path):
    """A window of 5 frames around each of 4: products with the 8 input frames count once, those with outputs
    5 times per frame."""
    _, products, kind, _, steps = size_of_network(
        write(tmp_path / "net", "window-blstm cells=6 left=2 right=2"), 10, 11, 4
    )
    assert products == (2 * 24 * 10 * 8 + 2 * 24 * 6 * 5 * 4) / 4 + 12 * 11 and (kind, steps) == (
        "windows",
        2 * 5,
    )


def test_kinds_of_recipe_networks():
    kinds = {path.stem: size_of_network(path, 120, 100, 60)[2] for path in sorted(NETWORKS.glob("*.net"))}
    assert {kinds[name] for name in ("lstm", "blstm", "lstmp", "ibm", "ctc")} == {"recurrent"}
    assert (kinds["cnn"], kinds["tc_dnn_blstm_dnn"], kinds["tdnnf_chain"]) == (
        "convolutions",
        "windows",
        "time delays",
    )


def test_inconsistent_layers_are_named(tmp_path):
    with pytest.raises(UserError, match="layer 'conv': 40 inputs are not --channels 3"):
        size_of_network(write(tmp_path / "net", "conv channels=3"), 40, 11, 20)
