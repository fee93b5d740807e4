#!/usr/bin/env python3
"""Create the data directory of RT-03's English telephone speech, with its references for scoring.

Reads   --rt03: LDC2007S10, {audio,references}/eval03/english/cts, an stm per call, trans_rules/en20030506.glm
        or --glm
Writes  DATA/rt03 (wav.scp reco2file_and_channel segments text utt2spk spk2utt stm glm stm_subsets),
        DATA/local/audio_rt03.txt

    local/prepare_rt03.py --rt03 /corpora/LDC2007S10 data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import run_step
from pyasr.corpora.discs import places_in
from pyasr.corpora.hub5.hub5_data import make_evaluation_set
from pyasr.corpora.hub5.hub5_sets import RT03


@dataclass(frozen=True)
class PrepareRt03:
    data: Path = argument("directory of data directories")
    rt03: str = option("", "directories of LDC2007S10, separated by colons")
    glm: Path | None = option(
        None, "glm for scoring, such as en20030506.glm of NIST's SCTK; none: the one on the discs"
    )


def main(options: PrepareRt03) -> None:
    discs = places_in(options.rt03)
    make_evaluation_set(options, "rt03", RT03, discs, discs)


if __name__ == "__main__":
    run_step(PrepareRt03, main, __doc__)
