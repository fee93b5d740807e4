#!/usr/bin/env python3
"""Create the data directory of Hub5'00 (eval2000), with its references for scoring.

Reads   --audio: LDC2002S09, english/{sw_4390.sph,...,hub5e_00.pem}; --text: LDC2002T43, the stm and the glm;
        --glm instead of the latter
Writes  DATA/eval2000 (wav.scp reco2file_and_channel segments text utt2spk spk2utt stm glm stm_subsets),
        DATA/local/audio_eval2000.txt

    local/prepare_eval2000.py --audio /corpora/LDC2002S09 --text /corpora/LDC2002T43 data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.corpora.discs import places_in
from pyasr.corpora.hub5.hub5_data import make_evaluation_set
from pyasr.corpora.hub5.hub5_sets import EVAL2000


@dataclass(frozen=True)
class PrepareEval2000:
    data: Path = argument("directory of data directories")
    audio: str = option("", "directories of LDC2002S09, separated by colons")
    text: str = option("", "directories of LDC2002T43, separated by colons; empty: those of --audio")
    glm: Path | None = option(None, "glm for scoring; none: the one on the discs")


def main(options: PrepareEval2000) -> None:
    audio = places_in(options.audio)
    make_evaluation_set(options, "eval2000", EVAL2000, audio, places_in(options.text) or audio)


if __name__ == "__main__":
    run_step(PrepareEval2000, main, __doc__)
