"""Streams and events of the mock GPU, and their pending copies to pinned memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mock_gpu import MockGpu

present: list[MockGpu] = []  # the device, inside a `mock_gpu` block


class LateCopy:
    """A copy to pinned memory, which has no valid value until the copy has arrived."""

    def __init__(self, destination: torch.Tensor, source: torch.Tensor):
        self.destination = destination
        self.values = source.to(destination.dtype).expand_as(destination).clone()
        destination.reshape(-1).view(torch.uint8).fill_(255)

    def arrive(self) -> None:
        """Write the values, once."""
        if self.values is not None:
            self.destination.copy_(self.values)
            self.values = None


class Stream:
    """A queue of the device, for `torch.cuda.Stream`. `work` has its pending copies to the host."""

    def __init__(self, *_arguments, **_keywords):
        self.work: list[LateCopy] = []

    def arrive(self) -> None:
        """Finish all work."""
        while self.work:
            self.work.pop(0).arrive()

    def synchronize(self) -> None:
        """Let the host wait."""
        present[-1].note_sync("stream.synchronize")
        self.arrive()

    def query(self) -> bool:
        """Whether all work is done. Each query finishes the work, so repeated queries end with True."""
        self.arrive()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event after the present work."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Put later work of this stream after the event. Waiting for it includes waiting for the event."""
        self.work = [*self.work, *event.work]

    def wait_stream(self, other: Stream) -> None:
        """Put later work of this stream after the present work of the other."""
        self.work = [*self.work, *other.work]


class Event:
    """For `torch.cuda.Event`. `work` has the copies that were pending when it was recorded."""

    def __init__(self, *_arguments, **_keywords):
        self.work: list[LateCopy] = []

    def record(self, stream: Stream | None = None) -> None:
        """Record the present work of a stream."""
        self.work, self.time = list((stream or present[-1].stream).work), time.monotonic()

    def synchronize(self) -> None:
        """Let the host wait."""
        present[-1].note_sync("event.synchronize")
        self.query()

    def query(self) -> bool:
        """Like `Stream.query`."""
        for copy in self.work:
            copy.arrive()
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Like `Stream.wait_event`."""
        (stream or present[-1].stream).wait_event(self)

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds of the host."""
        return 1000 * (later.time - self.time)
