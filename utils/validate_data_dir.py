#!/usr/bin/env python3
"""Check a data directory. List each problem with file, line, text, and the command that repairs it; exit
status 1 if there are any.

Reads   DATA; with --lang also LANG/{words.txt,oov.txt}
Writes  the problems to standard output

    utils/validate_data_dir.py data/train
"""

import time
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.data.checks.validation import validate
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class ValidateDataDir:
    data: Path = argument("data directory")
    need_text: bool = option(True, "require transcripts")
    need_feats: bool = option(False, "require features")
    audio: str = option(
        "exists",
        "check of the audio; no: none; exists: existence and header; read: reading to the end",
        choices=("no", "exists", "read"),
    )
    lang: Path | None = option(
        None, "language directory; a transcript without any of its words is also a problem"
    )


def main(options: ValidateDataDir) -> None:
    begin = time.monotonic()
    problems = validate(
        options.data,
        need_text=options.need_text,
        need_feats=options.need_feats,
        audio=options.audio,
        lang=options.lang,
    )
    for problem in problems:
        print(problem)
    if problems:
        raise UserError(f"{options.data}: {len(problems)} problem(s); each line above ends with its repair")
    data = DataDir(options.data)
    log.info(
        f"{options.data}: {len(data.table('utt2spk'))} utterances, no problems, "
        f"{time.monotonic() - begin:.1f} s"
    )
    if num_empty := sum(not words for words in data.optional_table("text").values()):
        log.info(
            f"{options.data}/text: {num_empty} transcripts are empty: training skips them, scoring counts "
            "insertions in them"
        )


if __name__ == "__main__":
    run_step(ValidateDataDir, main, __doc__)
