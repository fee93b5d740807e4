"""Problems of a user's files, each with its fix; checks continue after a problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyasr.base.errors import UserError

Value = TypeVar("Value")


class Report:
    """A list of problems without duplicates; each is one sentence that ends with a fix."""

    def __init__(self):
        self.problems: list[str] = []
        self._known: set[str] = set()

    def add(self, path: Path | str, what: str, fix: str) -> None:
        """Add a problem of a file or directory, with its fix."""
        self._note(f"{path}: {what}; fix: {fix}")

    def attempt(self, fix: str, read: Callable[..., Value], *arguments, **keywords) -> Value | None:
        """The result of `read`; if `read` raises UserError, add its message and `fix` as a problem and return
        None."""
        try:
            return read(*arguments, **keywords)
        except UserError as error:
            self._note(f"{error}; fix: {fix}")
            return None

    def _note(self, problem: str) -> None:
        if problem not in self._known:
            self._known.add(problem)
            self.problems.append(problem)
