#!/usr/bin/env python3
"""Compute log mel filter-bank energies of a data directory, with --add-pitch true also voicing and pitch
features.

Reads  DATA/{wav.scp,utt2spk} and the audio; optional
       DATA/{segments,reco2file_and_channel,utt2dur,reco2speed,reco2volume,reco2distortion}, the impulse
       responses and noises named in reco2distortion, and warp factors in DATA/spk2warp or DATA/utt2warp
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames, DATA/.recordings (fingerprints, to
       detect replaced recordings); tables of other features are moved to DATA/.backup

Example:
    steps/make_fbank.py --nj 4 --config conf/fbank.conf data/train
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.feats.extraction.extract_dir import FeatureStep, make_features
from pyasr.feats.options import FbankOptions


@dataclass(frozen=True)
class MakeFbank(FeatureStep):
    fbank: FbankOptions = group(FbankOptions)


def main(options: MakeFbank) -> None:
    make_features(options, options.fbank, run_jobs)


if __name__ == "__main__":
    run_step(MakeFbank, main, __doc__)
