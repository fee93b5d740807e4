"""Streams and events of the mock GPU, and the copies to pinned memory that wait in them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mock_gpu import MockGpu

present: list[MockGpu] = []  # the device, while a `mock_gpu` block runs


class LateCopy:
    """A copy to pinned memory, which holds no sensible value until the copy has arrived."""

    def __init__(self, destination: torch.Tensor, source: torch.Tensor):
        self.destination, self.values = (
            destination,
            source.to(destination.dtype).expand_as(destination).clone(),
        )
        destination.reshape(-1).view(torch.uint8).fill_(255)

    def arrive(self) -> None:
        """Put the values down, once."""
        if self.values is not None:
            self.destination.copy_(self.values)
            self.values = None


class Stream:
    """A queue of the device, for `torch.cuda.Stream`. `work`: copies to the host that it has still to
    make."""

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
        """Whether all is done; a host that asks will see that it is in the end."""
        self.arrive()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind the present work."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Later work of this stream comes after the event, so that waiting for it is waiting for the event
        too."""
        self.work = [*self.work, *event.work]

    def wait_stream(self, other: Stream) -> None:
        """The same, for what the other has to do."""
        self.work = [*self.work, *other.work]


class Event:
    """For `torch.cuda.Event`. `work`: copies that were to be made when it was recorded."""

    def __init__(self, *_arguments, **_keywords):
        self.work: list[LateCopy] = []

    def record(self, stream: Stream | None = None) -> None:
        """Stand behind the present work of a stream."""
        self.work, self.time = list((stream or present[-1].stream).work), time.monotonic()

    def synchronize(self) -> None:
        """Let the host wait."""
        present[-1].note_sync("event.synchronize")
        self.query()

    def query(self) -> bool:
        """As of a stream."""
        for copy in self.work:
            copy.arrive()
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """As `Stream.wait_event`."""
        (stream or present[-1].stream).wait_event(self)

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds of the host."""
        return 1000 * (later.time - self.time)
