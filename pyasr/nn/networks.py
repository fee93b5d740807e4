"""Every network that an acoustic model may have, from what it says of itself."""

from __future__ import annotations

from pyasr.nn.feed_forward import FeedForward
from pyasr.nn.layered import LayeredNetwork

Network = FeedForward | LayeredNetwork


def network_from(description: dict) -> Network:
    """A network with arbitrary parameters of the shape that its `describe` gave; the feed-forward one names no kind."""
    kind = LayeredNetwork if description.get("kind") == "layers" else FeedForward
    return kind.from_description(description)
