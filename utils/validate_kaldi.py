#!/usr/bin/env python3
"""Check directories of Kaldi or pyasr. List each problem with its fix; exit status 1 if there are any.

Reads   DIRS: data, lang, model, alignment, graph and decoding directories, distinguished by their files. Each
        is checked by itself, then all together: phones of models and lang directories, frames of alignments,
        with --same-features also dimensions
Writes  the problems to standard output

    utils/validate_kaldi.py data/train data/lang exp/tri4_ali
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError, printable
from pyasr.intake.kaldi_dir_checks import CheckOptions, check_directories


@dataclass(frozen=True)
class ValidateKaldi:
    dirs: tuple = argument("directories", many=True)
    check: CheckOptions = group(CheckOptions)


def main(options: ValidateKaldi) -> None:
    problems, kinds = check_directories([Path(path) for path in options.dirs], options.check)
    for problem in problems:
        print(printable(problem))
    for path, of_path in kinds.items():
        log.info(f"{path}: {', '.join(of_path)}")
    if problems:
        raise UserError(f"{len(problems)} problem(s); each line above ends with its repair")
    log.info("no problems")


if __name__ == "__main__":
    run_step(ValidateKaldi, main, __doc__)
