"""The command-line options of a recipe: its own variables.

    python -m pyasr.base.cli.recipe_options RUN.SH START_DIR [ARGUMENTS...]

Reads the lines `name=value  # help` of RUN.SH before its call of parse_recipe_options; `--name VALUE` or
`--name=VALUE` replaces the value. Prints assignments that the shell evaluates. The type of a variable is that
of its default: integer, list of integers separated by spaces, number, true/false (can stand alone as
`--name`) or text. Marks in the help restrict the values:

    (path)            a file or directory, relative to START_DIR, the user's directory; ~ is the home
                      directory
    (paths)           several of these, separated by colons
    (any of these)    a list of words separated by spaces, each one of the words of the default
    (one of A B C)    one of these words
    (at least 1)      the minimum of a number
    (may be empty)    an empty value is allowed, for any type
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import did_you_mean
from pyasr.base.errors import UserError
from pyasr.base.utf8 import require_utf8
from pyasr.base.version import VERSION

_DECLARATION = re.compile(r"([A-Za-z_]\w*)=((?:'[^']*'|\"[^\"]*\"|[^\s#'\"])*)\s+#\s*(.*)")
_CHOICES = re.compile(r"\(one of ([^)]+)\)")
_MINIMUM = re.compile(r"\(at least (\d+)\)")
_MAX_DIGITS = 18  # of numbers that a shell can compare
_KINDS = {  # the first one that matches the default is the type of the variable
    "a whole number": r"[+-]?\d+",
    "a list of whole numbers separated by spaces": r"\d+( +\d+)*",
    "a number": r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?",
    "true or false": r"true|false",
    "text": r"(?s).*",
}
_STAGES = [
    "stage=0  # first stage to run",
    "stop_stage=1000  # last stage to run",
    "plan=false  # print the estimated time, disk space and memory of the stages without running them",
]


@dataclass(frozen=True)
class Variable:
    """One recipe variable: `default` as written in the recipe, without its quotes."""

    name: str
    default: str
    help: str

    @property
    def flag(self) -> str:
        """The option's name without dashes."""
        return self.name.replace("_", "-")

    @property
    def kind(self) -> str:
        """The type of the values (a key of _KINDS), derived from the default."""
        return next(kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, self.default))

    def check(self, value: str, start_dir: Path) -> str:
        """The value for the shell. Raises UserError if it does not have the variable's type or violates a
        mark in the help."""
        if not value and "(may be empty)" in self.help:
            return value
        if not re.fullmatch(_KINDS[self.kind], value):
            raise UserError(f"--{self.flag}: '{value}' is not {self.kind}")
        if "whole number" in self.kind and any(len(word) > _MAX_DIGITS for word in value.split()):
            raise UserError(f"--{self.flag}: '{value}' is too large; give at most {_MAX_DIGITS} digits")
        if (least := _MINIMUM.search(self.help)) and float(value) < float(least[1]):
            raise UserError(f"--{self.flag}: {value} is too small; give {least[1]} or more")
        if "(any of these)" in self.help:
            self._check_words(value)
        if (choices := _CHOICES.search(self.help)) and value not in choices[1].split():
            raise UserError(f"--{self.flag}: '{value}' is not one of {choices[1]}")
        if "(paths)" in self.help:
            return _places(value, start_dir)
        return _place(value, start_dir) if "(path)" in self.help and value else value

    def _check_words(self, value: str) -> None:
        """Raise UserError if a word of `value` is not among those of the default."""
        known = self.default.split()
        for word in value.split():
            if word not in known:
                found = f"'{word}' is not one of {' '.join(known)}"
                raise UserError(f"--{self.flag}: {found}; give one or more of these, separated by spaces")


def _place(path: str, start_dir: Path) -> str:
    return str(start_dir / os.path.expanduser(path))


def _places(paths: str, start_dir: Path) -> str:
    """Paths separated by colons, or one path with a colon in its name."""
    if paths and os.path.exists(whole := _place(paths, start_dir)):
        return whole
    return ":".join(_place(path, start_dir) for path in paths.split(":") if path)


def read_variables(recipe: Path) -> tuple[str, list[Variable]]:
    """Read (the recipe's opening comment, its variables in order)."""
    lines = recipe.read_text(encoding="utf-8").splitlines()
    ends = [i for i, line in enumerate(lines) if line.strip().startswith("parse_recipe_options")]
    lines = lines[: ends[0]] if ends else lines
    comment = []
    for line in lines[1:] if lines and lines[0].startswith("#!") else lines:
        if not line.startswith("#"):
            break
        comment.append(line[1:].removeprefix(" "))
    matches = [match for line in [*lines, *_STAGES] if (match := _DECLARATION.fullmatch(line.rstrip()))]
    variables = {
        match[1]: Variable(match[1], match[2].replace("'", "").replace('"', ""), match[3])
        for match in matches
    }
    return "\n".join(comment), list(variables.values())


def parse(variables: list[Variable], argv: list[str], start_dir: Path) -> dict[str, str]:
    """Parse {variable name: value} of a command line. Raises UserError for unknown options, missing or
    invalid values."""
    known, values, rest = {variable.flag: variable for variable in variables}, {}, list(argv)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if not word.startswith("--"):
            bare = name.lstrip("-")
            hint = f"write --{bare}" if bare in known else "see --help"
            raise UserError(f"{word}: a recipe takes only options, which begin with two dashes; {hint}")
        if name not in known:
            raise UserError(did_you_mean(f"--{name}", known))
        if not equals:
            value = _value_of(known[name], rest)
        values[known[name].name] = known[name].check(value, start_dir)
    _check_stages({**{variable.name: variable.default for variable in variables}, **values})
    return values


def _check_stages(values: dict[str, str]) -> None:
    """Raise UserError for a --stop-stage before --stage."""
    first, last = values.get("stage", "0"), values.get("stop_stage", "0")
    if "stop_stage" in values and int(last) < int(first):
        raise UserError(
            f"--stop-stage {last} comes before --stage {first}, so no stage would run; give {first} or more"
        )


def _value_of(variable: Variable, rest: list[str]) -> str:
    """The word after an option; a true/false option can stand alone."""
    if variable.kind == "true or false" and (not rest or rest[0].startswith("-")):
        return "true"
    if not rest or rest[0].startswith("--"):
        raise UserError(f"--{variable.flag}: a value is missing after it")
    return rest.pop(0)


def help_text(comment: str, variables: list[Variable]) -> str:
    """The recipe's opening comment and one line per option."""
    lines = [f"  --{variable.flag:<22} {variable.help} [{variable.default}]" for variable in variables]
    return "\n".join([comment, "", *lines])


def main(argv: list[str]) -> int:
    """Print shell code that sets the variables of `argv` = [RECIPE, START_DIR, OPTIONS...] or shows the help;
    the exit status."""
    recipe, start_dir, arguments = Path(argv[0]), Path(argv[1]), argv[2:]
    comment, variables = read_variables(recipe)
    if "--help" in arguments or "-h" in arguments:
        print(f"printf '%s\\n' {shlex.quote(help_text(comment, variables))}; trap - EXIT; exit 0")
        return 0
    if "--version" in arguments:
        print(f"echo pyasr {VERSION}; trap - EXIT; exit 0")
        return 0
    try:
        for name, value in parse(variables, arguments, start_dir).items():
            print(f"{name}={shlex.quote(value)}")
    except UserError as error:
        print(f"{recipe.name}: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    require_utf8()
    sys.exit(main(sys.argv[1:]))
