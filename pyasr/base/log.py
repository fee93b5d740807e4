"""Log lines of steps and jobs: time, program, message. Unprintable characters in a message are escaped
(`errors.printable`)."""

from __future__ import annotations

import logging
import sys
import time

from pyasr.base.errors import printable
from pyasr.base.system_errors import keeping_name

_logger = logging.getLogger("pyasr")


def setup(name: str) -> None:
    """Send log lines to standard output, each beginning with the time and `name`."""
    handler = _Handler(sys.stdout)
    handler.setFormatter(_OneLine(f"%(asctime)s {name}: %(message)s", datefmt="%H:%M:%S"))
    _logger.handlers[:] = [handler]
    _logger.setLevel(logging.INFO)


class _Handler(logging.StreamHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], OSError):
            with keeping_name("standard output"):
                raise  # the program handles a failed write
        super().handleError(record)


class _OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


info = _logger.info
warning = _logger.warning


class Progress:
    """A progress line at most every `every_s` seconds: `align: 1200/5368 utterances, 00:12 left`."""

    def __init__(self, what: str, total: int, unit: str, every_s: float = 5.0):
        self.what, self.total, self.unit, self.every_s = what, total, unit, every_s
        self.begin = self.last = time.monotonic()

    def update(self, done: int) -> None:
        """Report that `done` of the `total` units are done."""
        now = time.monotonic()
        if now - self.last < self.every_s and done < self.total:
            return
        self.last = now
        left = (now - self.begin) / max(done, 1) * (self.total - done)
        info(f"{self.what}: {done}/{self.total} {self.unit}, {int(left) // 60:02d}:{int(left) % 60:02d} left")
