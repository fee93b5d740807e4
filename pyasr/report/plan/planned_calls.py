"""The programs that a recipe would run, from the record of `run.sh --plan true` (utils/recipe.sh) and from
done-files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError

_STAGE = "== stage"  # beginning of a line of the record that starts a stage


@dataclass(frozen=True)
class Call:
    """A program with its words: flags by name without dashes, including those of --config files, and other
    words in order."""

    stage: str
    program: str
    flags: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`train_mono` of steps/train_mono.py."""
        return Path(self.program).stem

    def number(self, flag: str, default: float) -> float:
        """The value of a flag. Raises UserError if it is not a number."""
        try:
            return float(self.flags.get(flag, default))
        except ValueError:
            raise UserError(
                f"{self.program}: --{flag} '{self.flags[flag]}' is not a number; correct it"
            ) from None

    def is_set(self, flag: str) -> bool:
        """Whether a flag is true."""
        return self.flags.get(flag, "false").lower() == "true"


def read_record(path: Path) -> list[Call]:
    """The calls of a record: lines of words that end in tabs; a line that begins with '== stage' names the
    stage of the lines below."""
    calls, stage = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        first, *words = line.split("\t")[:-1]
        if first == _STAGE:
            stage = " ".join(words)
        else:
            calls.append(parse_call(first, words, stage))
    return calls


def from_command(command: str, root: Path) -> Call:
    """The call of a command line in a done-file, whose --config files are relative to `root`."""
    program, *words = shlex.split(command)
    return parse_call(program, words, "", root)


def parse_call(program: str, words: list[str], stage: str = "", root: Path = Path()) -> Call:
    """Parse a call. A flag takes the next word unless that is a flag; --config names a file of flags, which
    the command line overrides."""
    flags: dict[str, str] = {}
    of_files: dict[str, str] = {}
    others, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            others.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        if name == "config":
            of_files |= _flags_of_file(root / value)
        else:
            flags[name.replace("_", "-")] = value
    return Call(stage, program, of_files | flags, tuple(others))


def _flags_of_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; correct --config") from None
    pairs = [line.split("#")[0].strip().removeprefix("--").partition("=") for line in lines]
    return {name.replace("_", "-"): value for name, _, value in pairs if name}
