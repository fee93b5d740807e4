#!/usr/bin/env python3
"""Speed of the features of pyasr and kaldi-native-fbank on one core, and the maximum difference of each to
the formulas in float64.

Also measures PLP and pitch. Pitch is compared with Kaldi itself if VOSK_LIBRARY names its library (see
peer_vosk.py).

The audio is noise with the durations of a corpus of short utterances (median 2.3 s), or that of a data
directory. For both sides it is in memory as float32, and only the CPU seconds of computing features count;
the fastest of `--num-runs` runs is used. Fails if pyasr is less than 1.3 times as fast as kaldi-native-fbank,
or differs by more than 0.005 from the formulas.

Example:
    benchmarks/features.py --data egs/amazon_queen/s5/data/test
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import peer_vosk
from dense_features import dense_features
from peers import peer

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.compute.pitch import PitchTracker
from pyasr.feats.extraction.extract_dir import batches, read_waveforms
from pyasr.feats.options import FbankOptions, FrameOptions, MelOptions, MfccOptions, PlpOptions, TrackOptions

RATE = 8000.0
TARGET_RATIO, MAX_ERROR = 1.3, 5e-3


@dataclass(frozen=True)
class Benchmark:
    data: str = option("", "data directory of 8 kHz audio; empty: noise")
    num_utterances: int = option(400, "utterances", minimum=1)
    num_runs: int = option(3, "runs per side", minimum=1)


def systems() -> dict:
    frame = FrameOptions(sample_frequency=RATE)
    hires = MelOptions(40, 20.0, -200.0)
    return {
        "MFCC 13": MfccOptions(frame=frame, use_energy=False),
        "MFCC 40": MfccOptions(frame=frame, use_energy=False, num_ceps=40, mel=hires),
        "fbank 40": FbankOptions(frame=frame, mel=hires),
    }


def waveforms(options: Benchmark) -> list[np.ndarray]:
    if options.data:
        data = DataDir(Path(options.data))
        return [wave for _, wave in read_waveforms(data, data.utterances[: options.num_utterances], RATE)]
    rng = np.random.default_rng(0)
    seconds = np.exp(rng.normal(np.log(2.3), 0.5, options.num_utterances))
    return [(1000 * rng.standard_normal(int(RATE * s))).astype(np.float32) for s in seconds]


def ours(options, waves: list[np.ndarray]) -> list[np.ndarray]:
    extractor, features = Extractor(options), []
    for _, group in batches(((str(i), wave) for i, wave in enumerate(waves)), RATE):
        features += extractor(group)
    return features


def peers(options, waves: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """(CPU seconds, features) of kaldi-native-fbank, without the time of copying its frames into one
    array."""
    knf, is_mfcc = peer("kaldi_native_fbank"), isinstance(options, MfccOptions)
    theirs = knf.MfccOptions() if is_mfcc else knf.FbankOptions()
    theirs.frame_opts.samp_freq, theirs.frame_opts.dither = RATE, 0
    mel = options.mel
    theirs.mel_opts.num_bins = mel.num_mel_bins
    theirs.mel_opts.low_freq = mel.low_freq
    theirs.mel_opts.high_freq = mel.high_freq
    theirs.use_energy = False
    if is_mfcc:
        theirs.num_ceps = options.num_ceps
    computed, begin = [], time.process_time()
    for wave in waves:
        computed.append((knf.OnlineMfcc if is_mfcc else knf.OnlineFbank)(theirs))
        computed[-1].accept_waveform(RATE, wave)
        computed[-1].input_finished()
    seconds = time.process_time() - begin
    return seconds, [np.array([one.get_frame(t) for t in range(one.num_frames_ready)]) for one in computed]


def timed(options, waves) -> tuple[float, list[np.ndarray]]:
    begin = time.process_time()
    features = ours(options, waves)
    return time.process_time() - begin, features


def largest_difference(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    return max(np.abs(a - b).max(initial=0) for a, b in zip(some, others))


def cpu_seconds(work, num_runs: int) -> float:
    """Minimum CPU seconds over some runs, after one run that does not count."""
    work()
    seconds = []
    for _ in range(num_runs):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def compare_pitch(options: Benchmark, waves: list[np.ndarray], audio_s: float) -> None:
    """Compare pitch without its post-processing, which takes a few per cent of the time."""
    track = PitchTracker(TrackOptions(), FrameOptions(sample_frequency=RATE))
    our_s = cpu_seconds(lambda: [track(wave) for wave in waves], options.num_runs)
    try:
        peer_vosk.library()
    except OSError:
        print(f"{'pitch':10} {audio_s / our_s:8.0f}   (not compared with Kaldi: VOSK_LIBRARY is not set)")
        return
    peer_s = cpu_seconds(lambda: [peer_vosk.pitch(wave, samp_freq=RATE) for wave in waves], options.num_runs)
    (nccf, ours), (_, theirs) = (
        np.concatenate(found).T
        for found in (
            [track(wave) for wave in waves],
            [peer_vosk.pitch(wave, samp_freq=RATE) for wave in waves],
        )
    )
    off = np.abs(np.log(ours / theirs))[nccf > 0.5]
    print(
        f"{'pitch':10} {audio_s / our_s:8.0f} {audio_s / peer_s:20.0f} {peer_s / our_s:7.2f}   (Kaldi; of "
        f"the frames with a correlation above 0.5, {100 * np.mean(off > 0.02):.2f} % differ by more than 2 % "
        "in pitch)"
    )


def main(options: Benchmark) -> None:
    waves = waveforms(options)
    audio_s = sum(map(len, waves)) / RATE
    print(
        f"{len(waves)} utterances, {audio_s / 60:.1f} minutes; multiples of real time on one core; maximum "
        "differences to float64"
    )
    head = ("", "pyasr", "kaldi-native-fbank", "ratio", "pyasr - float64", "peer - float64", "pyasr - peer")
    print("{:10} {:>8} {:>20} {:>7} {:>17} {:>16} {:>14}".format(*head))
    failed = []
    for name, system in systems().items():
        runs = [(timed(system, waves), peers(system, waves)) for _ in range(options.num_runs)]
        our_s, peer_s = min(run[0][0] for run in runs), min(run[1][0] for run in runs)
        (_, mine), (_, theirs) = runs[0]
        exact = [dense_features(system, wave) for wave in waves]
        errors = [largest_difference(*pair) for pair in ((mine, exact), (theirs, exact), (mine, theirs))]
        speeds = (audio_s / our_s, audio_s / peer_s, peer_s / our_s)
        print("{:10} {:8.0f} {:20.0f} {:7.2f} {:17.1e} {:16.1e} {:14.1e}".format(name, *speeds, *errors))
        if peer_s / our_s < TARGET_RATIO or errors[0] > MAX_ERROR:
            failed.append(name)
    plp = PlpOptions(frame=FrameOptions(sample_frequency=RATE), use_energy=False)
    print(f"{'PLP 13':10} {audio_s / cpu_seconds(lambda: ours(plp, waves), options.num_runs):8.0f}")
    compare_pitch(options, waves, audio_s)
    if failed:
        raise UserError(
            f"{', '.join(failed)}: ratio below {TARGET_RATIO}, or differences to float64 above {MAX_ERROR}"
        )


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
