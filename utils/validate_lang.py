#!/usr/bin/env python3
"""Check a language directory and list its problems.

Reads   LANG_DIR
Writes  the problems to standard output; exit status 1 if there are any

  utils/validate_lang.py data/lang
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.lang.lang_dirs.check_lang import find_problems


@dataclass(frozen=True)
class ValidateLang:
    lang_dir: Path = argument("language directory")


def main(options: ValidateLang) -> None:
    problems = find_problems(options.lang_dir)
    for problem in problems:
        log.info(problem)
    if problems:
        raise UserError(f"{options.lang_dir}: {len(problems)} problem(s), listed above")
    log.info(f"{options.lang_dir} has no problems")


if __name__ == "__main__":
    run_step(ValidateLang, main, __doc__)
