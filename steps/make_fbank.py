#!/usr/bin/env python3
"""Make log mel filter-bank energies of a data directory; with --add-pitch true, features of voicing and pitch beside them.

Reads  DATA/{wav.scp,utt2spk} and their audio; where there are such, DATA/{segments,reco2file_and_channel,utt2dur,reco2speed,
       reco2volume,reco2distortion}, the impulse responses and noises that reco2distortion names, and warp factors from DATA/spk2warp or
       utt2warp
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames, DATA/.recordings (by which a recording that was replaced is
       known); tables of other features are kept in DATA/.backup

Example:
    steps/make_fbank.py --nj 4 --config conf/fbank.conf data/train
"""

from dataclasses import dataclass

from pyasr.base.options import group
from pyasr.base.step import run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.extract import FeatureStep, make_features
from pyasr.feats.options import FbankOptions


@dataclass(frozen=True)
class MakeFbank(FeatureStep):
    fbank: FbankOptions = group(FbankOptions)


def main(options: MakeFbank) -> None:
    make_features(options, options.fbank, run_jobs)


if __name__ == "__main__":
    run_step(MakeFbank, main, __doc__)
