#!/usr/bin/env python3
"""Write the stm of a held-out part of a telephone corpus, for scoring by the rules of the evaluation sets.

Reads   DATA/{segments,reco2file_and_channel,utt2spk,text}, --glm
Writes  DATA/stm and, with --glm, DATA/glm

    local/make_stm.py --glm data/eval2000/glm data/train_dev
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.corpora.held_out import add_stm
from pyasr.data.tables.datadir import DataDir


@dataclass(frozen=True)
class MakeStm:
    data: Path = argument("data directory with segments")
    glm: Path | None = option(None, "rules for comparing words (glm); none: compare words unchanged")


def main(options: MakeStm) -> None:
    is_new = add_stm(DataDir(options.data), options.glm)
    log.info(f"{options.data}/stm {'written' if is_new else 'is up to date'}")


if __name__ == "__main__":
    run_step(MakeStm, main, __doc__)
