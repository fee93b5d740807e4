"""Commands that tables of files name instead of files (`sph2pipe a.sph |`): whether they may be run here, and what is shown of them.

A table comes with the data, so its commands are somebody else's programs. --no-pipes of any step, or PYASR_NO_PIPES=1 in the environment
of a whole recipe, refuses them. Where they are allowed, the log shows each kind of command before the first of it runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError

NO_PIPES = "PYASR_NO_PIPES"
_HOW = f"commands are refused here (--no-pipes, or {NO_PIPES} in the environment)"
_WORD = re.compile(r"""'[^']*'|"[^"$`\\]*"|[^\s'"$`\\|&;<>(){}*?\[\]!#~=]+""")  # words that a shell takes as they stand
_DATA = re.compile(r"""[0-9.,:]+|.*\.(sph|wav|flac|mp3|ogg|opus|aiff?|au|raw|wv|shn)['"]?""", re.IGNORECASE)
_MOST_SHOWN = 20
_shown: set[str] = set()


def refuse() -> None:
    """Let no command be run from now on, by this process and those that it starts."""
    os.environ[NO_PIPES] = "1"


def refused() -> bool:
    """Whether commands are refused."""
    return os.environ.get(NO_PIPES, "") not in ("", "0", "false")


def is_command(rx: str) -> bool:
    """Whether an entry of a table is a command."""
    return rx.rstrip().endswith("|")


def admit(rx: str, where: str) -> None:
    """To be called before the command of an entry is run: raises UserError, headed by `where`, or logs the first command of its kind."""
    if refused():
        raise UserError(f"{where}: {_HOW}; give a file in the place of the command")
    kind = kind_of(rx)
    if kind in _shown or len(_shown) > _MOST_SHOWN:
        return
    _shown.add(kind)
    log.info(f"commands of further kinds are run but not shown; {where} is one" if len(_shown) > _MOST_SHOWN else f"runs {rx.strip()}")


def admit_table(table: Mapping[str, str], path: Path) -> None:
    """`admit` all entries of a table at once, before any work. Raises UserError, naming the first, where they are refused."""
    commands = {key: rx for key, rx in table.items() if is_command(rx)}
    if commands and refused():
        key, rx = next(iter(commands.items()))
        told = f"{len(commands)} of {len(table)} entries are commands, such as '{key} {rx}'"
        raise UserError(f"{path}: {told}, and {_HOW}; convert them to files, or allow commands")
    for key, rx in commands.items():
        admit(rx, f"{path}: {key}")


def kind_of(command: str) -> str:
    """The command without numbers and names of audio files: equal for commands that differ in these alone."""
    return _WORD.sub(lambda word: "_" if _DATA.fullmatch(word[0]) else word[0], command.strip())
