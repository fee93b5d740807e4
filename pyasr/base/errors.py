"""The two ways a step ends early on purpose, and how their sentences are shown."""

import re


class UserError(Exception):
    """Something the user can put right. The message is one sentence: what, where, what to do.

    What it quotes of a file cannot break the line, nor give a terminal orders: characters that do not print are shown as \\x1b.
    """

    def __init__(self, sentence: object = ""):
        super().__init__(printable(str(sentence)))


def printable(text: str) -> str:
    """One line that gives a terminal no orders: characters that do not print are shown as \\x1b."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same of several lines; line breaks and tabs stay as they are."""
    return re.sub(r"[^\n\t]+", lambda found: printable(found[0]), text)


class UpToDate(Exception):
    """The output exists, complete, made with the same options from the same inputs."""
