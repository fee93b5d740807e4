"""The two exceptions that end a step early on purpose, and the escaping of their messages."""

import re


class UserError(Exception):
    """An error that the user can correct. The message is one sentence: what, where, what to do.

    Unprintable characters in quoted input are escaped (\\x1b), so that they cannot break the line or control
    the terminal.
    """

    def __init__(self, sentence: object = ""):
        super().__init__(printable(str(sentence)))


def printable(text: str) -> str:
    """The text as one line that cannot control a terminal: unprintable characters are escaped (\\x1b)."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """`printable` for text of several lines; line breaks and tabs are kept."""
    return re.sub(r"[^\n\t]+", lambda found: printable(found[0]), text)


class UpToDate(Exception):
    """The output exists, is complete and was computed with the same options from the same inputs."""
