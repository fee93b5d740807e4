#!/usr/bin/env python3
"""Make log power spectra (spectrograms) of a data directory; with --add-pitch true, features of voicing and pitch beside them.

Reads  DATA/{wav.scp,utt2spk} and their audio; where there are such, DATA/{segments,reco2file_and_channel,utt2dur,reco2speed,
       reco2volume,reco2distortion}, the impulse responses and noises that reco2distortion names
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames, DATA/.recordings (by which a recording that was replaced is
       known); tables of other features are kept in DATA/.backup

Example:
    steps/make_spectrogram.py --nj 4 --sample-frequency 8000 data/train
"""

from dataclasses import dataclass

from pyasr.base.options import group
from pyasr.base.step import run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.extract import FeatureStep, make_features
from pyasr.feats.options import SpectrogramOptions


@dataclass(frozen=True)
class MakeSpectrogram(FeatureStep):
    spectrogram: SpectrogramOptions = group(SpectrogramOptions)


def main(options: MakeSpectrogram) -> None:
    make_features(options, options.spectrogram, run_jobs)


if __name__ == "__main__":
    run_step(MakeSpectrogram, main, __doc__)
