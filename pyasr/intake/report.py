"""Problems of a user's files, each with what repairs it; looking goes on after every one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyasr.base.errors import UserError

Value = TypeVar("Value")


class Report:
    """A list of problems that grows; each is one sentence that ends with a fix, and is there once."""

    def __init__(self):
        self.problems: list[str] = []
        self._known: set[str] = set()

    def add(self, path: Path, what: str, fix: str) -> None:
        """Note what is wrong with a file or directory, and what repairs it."""
        self._note(f"{path}: {what}; fix: {fix}")

    def attempt(self, fix: str, read: Callable[..., Value], *arguments, **keywords) -> Value | None:
        """What `read` returns; where it raises UserError, its sentence is a problem, which `fix` repairs, and the result is None."""
        try:
            return read(*arguments, **keywords)
        except UserError as error:
            self._note(f"{error}; fix: {fix}")
            return None

    def _note(self, problem: str) -> None:
        if problem not in self._known:
            self._known.add(problem)
            self.problems.append(problem)
