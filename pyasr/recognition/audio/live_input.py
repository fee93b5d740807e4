"""Live audio on standard input, until the user interrupts the program."""

from __future__ import annotations

import os
import signal
from typing import BinaryIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MAX_WAITING_BYTES = 1 << 20  # maximum capacity of a pipe
_NOTE = "the audio received by then was transcribed"


class LiveInput:
    """A pipe that ends when the program is interrupted, after the data written into it by then.

        with LiveInput(sys.stdin.buffer) as file:
            ...                                      # read to the end; write the transcript

    SIGINT or SIGTERM, unless ignored, takes effect after the block has ended without error; a second signal
    takes effect immediately. Only for the main thread.
    """

    def __init__(self, pipe: BinaryIO):
        self._pipe, self._num_left = pipe, _MAX_WAITING_BYTES
        self._held_back: int | None = None

    def __enter__(self) -> LiveInput:
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._end) for number in heard}
        return self

    def _end(self, number: int, frame) -> None:
        """Make the pending read, and later ones, return only the available data."""
        self._restore_handlers()
        self._held_back = number
        os.set_blocking(self._pipe.fileno(), False)

    def _restore_handlers(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        if self._held_back is None:
            return self._pipe.read(size) or b""
        content = self._pipe.read(min(size, self._num_left)) or b""
        self._num_left -= len(content)
        return content

    def __exit__(self, failure, *_) -> None:
        self._restore_handlers()
        if self._held_back is None:
            return
        os.set_blocking(self._pipe.fileno(), True)
        if failure is None:
            self._give_way(self._held_back)

    def _give_way(self, number: int) -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as stop:
            stop.args = (_NOTE,)
            raise
