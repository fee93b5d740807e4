#!/usr/bin/env python3
"""Speed of the features of pyasr and kaldi-native-fbank on one core, and the maximum difference of each to
the formulas in float64.

Also measures PLP and pitch. Pitch is compared with Kaldi itself if VOSK_LIBRARY names its library (see
peer_vosk.py). At 16 kHz, 80 filters with a Hamming window are compared with asrfront, which computes in
float32, if it is installed (pip install asrfront==0.2.2).

The audio is noise with the durations of a corpus of short utterances (median 2.3 s), or that of a data
directory. For both sides it is in memory as float32, and only the CPU seconds of computing features count.
The runs of both sides alternate, after one that does not count; a ratio is the median of those of
`--num-runs` pairs, a speed that of the fastest run. Fails if pyasr is less than 1.3 times as fast as
kaldi-native-fbank, or differs by more than 0.005 from the formulas.

Examples:
    benchmarks/features.py --data egs/amazon_queen/s5/data/test
    benchmarks/features.py --rate 16000
"""

from __future__ import annotations

import time
from collections.abc import Callable
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

HIGH_RATE = 16000.0
TARGET_RATIO, MAX_ERROR = 1.3, 5e-3


@dataclass(frozen=True)
class Benchmark:
    data: str = option("", "data directory of audio with the rate --rate; empty: noise")
    rate: float = option(8000.0, "samples per second", minimum=8000.0)
    num_utterances: int = option(400, "utterances", minimum=1)
    num_runs: int = option(3, "runs per side", minimum=1)


def systems(rate: float) -> dict:
    frame = FrameOptions(sample_frequency=rate)
    hires = MelOptions(40, 20.0, -200.0)
    return {
        "MFCC 13": MfccOptions(frame=frame, use_energy=False),
        "MFCC 40": MfccOptions(frame=frame, use_energy=False, num_ceps=40, mel=hires),
        "fbank 40": FbankOptions(frame=frame, mel=hires),
    }


def waveforms(options: Benchmark) -> list[np.ndarray]:
    if options.data:
        data = DataDir(Path(options.data))
        utterances = data.utterances[: options.num_utterances]
        return [wave for _, wave in read_waveforms(data, utterances, options.rate)]
    rng = np.random.default_rng(0)
    seconds = np.exp(rng.normal(np.log(2.3), 0.5, options.num_utterances))
    return [(1000 * rng.standard_normal(int(options.rate * s))).astype(np.float32) for s in seconds]


def ours(options, waves: list[np.ndarray]) -> list[np.ndarray]:
    extractor, features = Extractor(options), []
    for _, group in batches(((str(i), wave) for i, wave in enumerate(waves)), extractor.rate_hz):
        features += extractor(group)
    return features


def peers(options, waves: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """(CPU seconds, features) of kaldi-native-fbank, without the time of copying its frames into one
    array."""
    knf, is_mfcc = peer("kaldi_native_fbank"), isinstance(options, MfccOptions)
    theirs = knf.MfccOptions() if is_mfcc else knf.FbankOptions()
    theirs.frame_opts.samp_freq, theirs.frame_opts.dither = options.frame.sample_frequency, 0
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
        computed[-1].accept_waveform(options.frame.sample_frequency, wave)
        computed[-1].input_finished()
    seconds = time.process_time() - begin
    return seconds, [np.array([one.get_frame(t) for t in range(one.num_frames_ready)]) for one in computed]


def timed(options, waves) -> tuple[float, list[np.ndarray]]:
    begin = time.process_time()
    features = ours(options, waves)
    return time.process_time() - begin, features


def largest_difference(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    return max(np.abs(a - b).max(initial=0) for a, b in zip(some, others))


def compared(
    name: str, system, waves: list[np.ndarray], theirs: Callable, num_runs: int
) -> tuple[float, float]:
    """(ratio of speeds, maximum difference of pyasr to float64), and prints both sides; `theirs` returns (CPU
    seconds, features)."""
    (_, mine), (_, others) = timed(system, waves), theirs(system, waves)
    seconds = np.array([(timed(system, waves)[0], theirs(system, waves)[0]) for _ in range(num_runs)])
    audio_s = sum(map(len, waves)) / system.frame.sample_frequency
    speeds, ratio = audio_s / seconds.min(0), float(np.median(seconds[:, 1] / seconds[:, 0]))
    exact = [dense_features(system, wave) for wave in waves]
    errors = [largest_difference(*pair) for pair in ((mine, exact), (others, exact), (mine, others))]
    print("{:10} {:8.0f} {:20.0f} {:7.2f} {:17.1e} {:16.1e} {:14.1e}".format(name, *speeds, ratio, *errors))
    return ratio, errors[0]


def compare_asrfront(waves: list[np.ndarray], num_runs: int) -> None:
    """Compare the filter banks of SenseVoice."""
    frame = FrameOptions(sample_frequency=HIGH_RATE, window_type="hamming")
    system = FbankOptions(frame=frame, mel=MelOptions(80))
    try:
        asrfront = peer("asrfront.sensevoice")
    except UserError:
        print("(not compared with asrfront, which is not installed)")
        return
    scaled = [wave / np.float32(32768) for wave in waves]  # asrfront multiplies by this

    def theirs(*_) -> tuple[float, list[np.ndarray]]:
        begin = time.process_time()
        features = [asrfront.fbank_raw(wave, n_mels=system.mel.num_mel_bins) for wave in scaled]
        return time.process_time() - begin, features

    print(f"{'':10} {'pyasr':>8} {'asrfront':>20}")
    compared("fbank 80", system, waves, theirs, num_runs)


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
    track = PitchTracker(TrackOptions(), FrameOptions(sample_frequency=options.rate))
    our_s = cpu_seconds(lambda: [track(wave) for wave in waves], options.num_runs)
    try:
        peer_vosk.library()
    except OSError:
        print(f"{'pitch':10} {audio_s / our_s:8.0f}   (not compared with Kaldi: VOSK_LIBRARY is not set)")
        return
    peer_s = cpu_seconds(
        lambda: [peer_vosk.pitch(wave, samp_freq=options.rate) for wave in waves], options.num_runs
    )
    (nccf, ours), (_, theirs) = (
        np.concatenate(found).T
        for found in (
            [track(wave) for wave in waves],
            [peer_vosk.pitch(wave, samp_freq=options.rate) for wave in waves],
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
    audio_s = sum(map(len, waves)) / options.rate
    print(
        f"{len(waves)} utterances, {audio_s / 60:.1f} minutes; multiples of real time on one core; maximum "
        "differences to float64"
    )
    head = ("", "pyasr", "kaldi-native-fbank", "ratio", "pyasr - float64", "peer - float64", "pyasr - peer")
    print("{:10} {:>8} {:>20} {:>7} {:>17} {:>16} {:>14}".format(*head))
    failed = []
    for name, system in systems(options.rate).items():
        ratio, error = compared(name, system, waves, peers, options.num_runs)
        if ratio < TARGET_RATIO or error > MAX_ERROR:
            failed.append(name)
    if options.rate == HIGH_RATE:
        compare_asrfront(waves, options.num_runs)
    plp = PlpOptions(frame=FrameOptions(sample_frequency=options.rate), use_energy=False)
    print(f"{'PLP 13':10} {audio_s / cpu_seconds(lambda: ours(plp, waves), options.num_runs):8.0f}")
    compare_pitch(options, waves, audio_s)
    if failed:
        raise UserError(
            f"{', '.join(failed)}: ratio below {TARGET_RATIO}, or differences to float64 above {MAX_ERROR}"
        )


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
