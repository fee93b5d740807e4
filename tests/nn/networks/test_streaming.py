"""Networks with carried state: parts of a sequence give the same outputs as the whole, with any layers below
and above recurrent ones."""

import pytest
import torch

from pyasr.base.errors import UserError
from pyasr.nn.networks.layered import LayeredNetwork

DIM, NUM_PDFS, NUM_FRAMES = 4, 3, 24
NETWORKS = {
    "plain": ["lstm cells=5"],
    "late": ["lstm cells=5 recurrent=3 nonrecurrent=2 peepholes=true clip=1", "delay frames=3"],
    "delays": [
        "tdnn splice=-2..2 dim=6",
        "lstm cells=5 delay=2",
        "lstm cells=4 recurrent=3 delay=3",
        "delay frames=5",
    ],
    "between": ["lstm cells=5", "tdnn splice=-3,0,2 dim=6", "lstm cells=4", "tdnn splice=-1,1 dim=6"],
    "subsampling": [
        "tdnn splice=-1..1 stride=2 dim=6",
        "lstm cells=5 delay=2",
        "tdnn splice=-1..1 stride=2 dim=6",
        "lstm cells=4",
    ],
    "windows": ["window-blstm cells=3 left=2 right=1", "lstm cells=4", "crop left=3 right=1"],
    "convolutions": ["conv filters=2 bands=3 pool=1 step=1", "lstm cells=4"],
}


def network_of(lines) -> LayeredNetwork:
    network = LayeredNetwork(lines, DIM, NUM_PDFS).double()
    random = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.normal_(0, 0.7, generator=random)
    return network


def inputs(network, seed=2) -> torch.Tensor:
    frames = network.left + NUM_FRAMES + network.right
    return torch.randn(3, frames, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunk", [4, 8, 12])
@pytest.mark.parametrize("name", NETWORKS)
def test_streamed_parts_equal_whole(name, chunk):
    network, states, parts = network_of(NETWORKS[name]), None, []
    x = inputs(network)
    for begin in range(0, NUM_FRAMES, chunk):
        logits, states = network.go_on(x[:, begin : begin + network.left + chunk + network.right], states)
        parts.append(logits)
    whole = network(x)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    alone = network(x[:, NUM_FRAMES - chunk :])
    assert (alone - whole[:, -alone.shape[1] :]).abs().max() > 1e-4, "what is carried makes no difference"


def test_rows_are_independent_sequences():
    network = network_of(NETWORKS["delays"])
    x, y = inputs(network), inputs(network, seed=5)
    _, states = network.go_on(x, None)
    together = network.go_on(y, states)[0]
    for row in range(len(x)):
        own = [
            None if state is None else type(state)(*(part[:, row : row + 1] for part in state))
            for state in states
        ]
        torch.testing.assert_close(network.go_on(y[row : row + 1], own)[0], together[row : row + 1])


@pytest.mark.parametrize(
    "lines, reason",
    [
        (["tdnn splice=-1..1", "affine"], "the network has no recurrent layer"),
        (["window-blstm cells=3"], "the network has no recurrent layer"),
        (["lstm cells=3", "blstm cells=3"], "a blstm layer reads an utterance from its end"),
    ],
)
def test_networks_without_streaming_are_refused(lines, reason):
    with pytest.raises(UserError, match=reason):
        network_of(lines).check_carries_state()
    network_of(NETWORKS["windows"]).check_carries_state()
