"""Commands in tables of files (`sph2pipe a.sph |`): permission to run them, and their log lines.

A table comes with the data, so its commands may be untrusted. --no-pipes of any step, or PYASR_NO_PIPES=1 in
the environment of a whole recipe, refuses them. If they are allowed, the log shows the first command of each
kind before it runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError

NO_PIPES = "PYASR_NO_PIPES"
_HOW = f"commands are refused (--no-pipes, or {NO_PIPES} in the environment)"
# words that a shell does not expand
_WORD = re.compile(r"""'[^']*'|"[^"$`\\]*"|[^\s'"$`\\|&;<>(){}*?\[\]!#~=]+""")
_DATA = re.compile(r"""[0-9.,:]+|.*\.(sph|wav|flac|mp3|ogg|opus|aiff?|au|raw|wv|shn)['"]?""", re.IGNORECASE)
_MAX_SHOWN = 20
_shown: set[str] = set()


def refuse() -> None:
    """Refuse commands from now on, in this process and its children."""
    os.environ[NO_PIPES] = "1"


def refused() -> bool:
    """Whether commands are refused."""
    return os.environ.get(NO_PIPES, "") not in ("", "0", "false")


def is_command(rx: str) -> bool:
    """Whether an entry of a table is a command."""
    return rx.rstrip().endswith("|")


def admit(rx: str, where: str) -> None:
    """Call before the command of an entry runs: raises UserError, beginning with `where`, if commands are
    refused; else logs the first command of its kind."""
    if refused():
        raise UserError(f"{where}: {_HOW}; replace the command by a file")
    kind = kind_of(rx)
    if kind in _shown or len(_shown) > _MAX_SHOWN:
        return
    _shown.add(kind)
    log.info(
        f"commands of further kinds are run but not shown, such as {where}"
        if len(_shown) > _MAX_SHOWN
        else f"runs {rx.strip()}"
    )


def admit_table(table: Mapping[str, str], path: Path) -> None:
    """`admit` all entries of a table before any work. Raises UserError, which quotes the first command, if
    commands are refused."""
    commands = {key: rx for key, rx in table.items() if is_command(rx)}
    if commands and refused():
        key, rx = next(iter(commands.items()))
        found = f"{len(commands)} of {len(table)} entries are commands, such as '{key} {rx}'"
        raise UserError(f"{path}: {found}, and {_HOW}; convert them to files, or allow commands")
    for key, rx in commands.items():
        admit(rx, f"{path}: {key}")


def kind_of(command: str) -> str:
    """The command with numbers and names of audio files replaced, so that commands that differ only in these
    are equal."""
    return _WORD.sub(lambda word: "_" if _DATA.fullmatch(word[0]) else word[0], command.strip())
