"""Construction of any network from its description."""

from __future__ import annotations

from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.two_outputs import TwoOutputs

Network = FeedForward | LayeredNetwork
_KINDS: dict[str | None, type[Network | TwoOutputs]] = {"layers": LayeredNetwork, "two outputs": TwoOutputs}


def network_from(description: dict) -> Network | TwoOutputs:
    """A network with arbitrary parameters, of the shape that its `describe` returned; that of a feed-forward
    network has no kind."""
    return _KINDS.get(description.get("kind"), FeedForward).from_description(description)
