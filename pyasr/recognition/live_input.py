"""Standard input into which somebody speaks until they interrupt the program."""

from __future__ import annotations

import os
import signal
from typing import BinaryIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MOST_WAITING_BYTES = 1 << 20  # a pipe holds no more
_TOLD = "what had come by then is written"


class LiveInput:
    """A pipe that ends when the program is interrupted, with what has been written into it by then.

        with LiveInput(sys.stdin.buffer) as file:
            ...                                      # read to the end; write what was said

    SIGINT or SIGTERM, unless ignored, does its work when the block has ended well; a second one does it at once. For the main thread.
    """

    def __init__(self, pipe: BinaryIO):
        self._pipe, self._held_back, self._num_left = pipe, None, _MOST_WAITING_BYTES

    def __enter__(self) -> LiveInput:
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._end) for number in heard}
        return self

    def _end(self, number: int, frame) -> None:
        """Have a reading that waits, and those that follow, take what is there."""
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
            self._give_way()

    def _give_way(self) -> None:
        try:
            signal.raise_signal(self._held_back)
        except KeyboardInterrupt as stop:
            stop.args = (_TOLD,)
            raise
