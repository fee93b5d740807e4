#!/usr/bin/env python3
"""Compute log power spectra (spectrograms) of a data directory, with --add-pitch true also voicing and pitch
features.

Reads  DATA/{wav.scp,utt2spk} and the audio; optional
       DATA/{segments,reco2file_and_channel,utt2dur,reco2speed,reco2volume,reco2distortion}, the impulse
       responses and noises named in reco2distortion
Writes DATA/feats (archives and logs), DATA/feats.scp, DATA/utt2num_frames, DATA/.recordings (fingerprints, to
       detect replaced recordings); tables of other features are moved to DATA/.backup

Example:
    steps/make_spectrogram.py --nj 4 --sample-frequency 8000 data/train
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.feats.extraction.extract_dir import FeatureStep, make_features
from pyasr.feats.options import SpectrogramOptions


@dataclass(frozen=True)
class MakeSpectrogram(FeatureStep):
    spectrogram: SpectrogramOptions = group(SpectrogramOptions)


def main(options: MakeSpectrogram) -> None:
    make_features(options, options.spectrogram, run_jobs)


if __name__ == "__main__":
    run_step(MakeSpectrogram, main, __doc__)
