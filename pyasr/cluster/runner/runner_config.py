"""Configuration files of runners, in the format of Kaldi's conf/queue.conf:

    command qsub -v PATH -cwd -S /bin/bash       the program that submits jobs, with its options
    option mem=* -l mem_free=$0                  words that --mem adds to the command; $0 is the option's
                                                 value
    option gpu=0                                 the same for a single value of --gpu
    default gpu=0                                the default value of --gpu
    # a comment

Names contain underscores or dashes. Words follow the rules of a shell: '...' and "..." quote, and $NAME is
replaced by the environment variable, except within '...' and after a backslash.

A file contains the settings of a site. For everything else, the runner's own configuration applies, which has
the same format.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.system_errors import naming
from pyasr.base.utf8 import text_of

ANY = "*"


@dataclass(frozen=True)
class RunnerConfig:
    """`options`: {name: {value or ANY: words to add to the command}}; `defaults`: {name: value}. Names
    contain underscores."""

    command: str = ""
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)

    def accepts(self, name: str, value: str) -> bool:
        """Whether the file declares this value of this option."""
        return bool({value, ANY} & self.options.get(name, {}).keys())

    def over(self, base: RunnerConfig) -> RunnerConfig:
        """This configuration, completed by `base`. A default of `base` applies only to the values that `base`
        declares: if this configuration declares the option without that value, a missing option adds nothing,
        as in Kaldi."""
        usual = {
            name: value
            for name, value in base.defaults.items()
            if name not in self.options or value in self.options[name]
        }
        return RunnerConfig(
            self.command or base.command, {**base.options, **self.options}, {**usual, **self.defaults}
        )

    def flags(self, name: str, value: str) -> list[str]:
        """The words that an option adds to the command. Raises UserError for an undeclared value and an unset
        variable."""
        if not self.accepts(name, value):
            raise UserError(
                f"--{name.replace('_', '-')} {value}: the configuration has no line 'option {name}=*'; add "
                "one"
            )
        declared = value if value in self.options[name] else ANY
        words = self.options[name][declared]
        words = _with_variables(words, f"option {name}={declared} {words}").replace("$0", value)
        return split_words(words, f"--{name.replace('_', '-')} {value}")

    def program(self) -> list[str]:
        """The words of the command."""
        line = f"command {self.command}"
        return split_words(_with_variables(self.command, line), line)


def _with_variables(text: str, line: str) -> str:
    """`text`, a part of `line`, with environment variables substituted where a shell would do so. Raises
    UserError for a variable that is not set."""

    def value(match: re.Match) -> str:
        name = match[1] or match[2]
        if name and name not in os.environ:
            raise UserError(
                f"'{line}' in the runner's configuration: the variable {name} is not set; export it, or "
                "write its value"
            )
        return os.environ[name] if name else match[0]

    return re.sub(r"'[^']*'|\\.|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value, text)


def split_words(text: str, where: str) -> list[str]:
    """`text` split into words as by a shell. Raises UserError, beginning with `where`, for an unmatched
    quotation mark."""
    try:
        return shlex.split(text)
    except ValueError:
        raise UserError(
            f"{where}: '{text}' ends within quotation marks or after a backslash; close every quotation mark"
        ) from None


def read_runner_config(path: Path) -> RunnerConfig:
    """Read a configuration file. Raises UserError with the line number for an invalid line."""
    with naming(path):
        content = Path(path).read_bytes()
    return parse_runner_config(text_of(content, path), str(path))


def parse_runner_config(text: str, path: str) -> RunnerConfig:
    """Parse `text`, the configuration file `path`. Raises UserError with the line number for an invalid
    line."""
    command, defaults = "", dict[str, str]()
    options: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        if match := re.fullmatch(r"command\s+(.+)", line):
            command = match[1]
        elif match := re.fullmatch(r"option\s+([^=\s]+)=(\S+)\s*(.*)", line):
            options.setdefault(match[1].replace("-", "_"), {})[match[2]] = match[3]
        elif match := re.fullmatch(r"default\s+([^=\s]+)=(\S+)", line):
            defaults[match[1].replace("-", "_")] = match[2]
        elif line:
            raise UserError(
                f"{path}:{number}: '{line}' is none of 'command ...', 'option NAME=VALUE ...', 'default "
                "NAME=VALUE'"
            )
        split_words(line, f"{path}:{number}")
    return RunnerConfig(command, options, defaults)
