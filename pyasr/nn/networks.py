"""Every network that there is, from what it says of itself."""

from __future__ import annotations

from pyasr.nn.feed_forward import FeedForward
from pyasr.nn.layered import LayeredNetwork
from pyasr.nn.two_outputs import TwoOutputs

Network = FeedForward | LayeredNetwork
_KINDS = {"layers": LayeredNetwork, "two outputs": TwoOutputs}


def network_from(description: dict) -> Network | TwoOutputs:
    """A network with arbitrary parameters of the shape that its `describe` gave; the feed-forward one names no kind."""
    return _KINDS.get(description.get("kind"), FeedForward).from_description(description)
