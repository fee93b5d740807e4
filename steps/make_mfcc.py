#!/usr/bin/env python3
"""Make mel-frequency cepstral coefficients of a data directory.

Reads  DATA/{wav.scp,utt2spk} and DATA/segments where there is one
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames

Example:
    steps/make_mfcc.py --nj 4 --config conf/mfcc.conf data/train
"""

from dataclasses import dataclass

from pyasr.base.options import group
from pyasr.base.step import run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.extract import FeatureStep, make_features
from pyasr.feats.options import MfccOptions


@dataclass(frozen=True)
class MakeMfcc(FeatureStep):
    mfcc: MfccOptions = group(MfccOptions)


def main(options: MakeMfcc) -> None:
    make_features(options, options.mfcc, run_jobs)


if __name__ == "__main__":
    run_step(MakeMfcc, main, __doc__)
