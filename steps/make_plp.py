#!/usr/bin/env python3
"""Compute cepstra of perceptual linear prediction of a data directory, with --add-pitch true also voicing and
pitch features.

Reads  DATA/{wav.scp,utt2spk} and the audio; optional
       DATA/{segments,reco2file_and_channel,utt2dur,reco2speed,reco2volume,reco2distortion}, the impulse
       responses and noises named in reco2distortion, and warp factors in DATA/spk2warp or DATA/utt2warp
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames, DATA/.recordings (fingerprints, to
       detect replaced recordings); tables of other features are moved to DATA/.backup

Example:
    steps/make_plp.py --nj 4 --config conf/plp.conf data/train
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.feats.extraction.extract_dir import FeatureStep, make_features
from pyasr.feats.options import PlpOptions


@dataclass(frozen=True)
class MakePlp(FeatureStep):
    plp: PlpOptions = group(PlpOptions)


def main(options: MakePlp) -> None:
    make_features(options, options.plp, run_jobs)


if __name__ == "__main__":
    run_step(MakePlp, main, __doc__)
