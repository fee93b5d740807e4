#!/usr/bin/env python3
"""CPU seconds of decoding a minute of a telephone call compressed by shorten, with pyasr's and desphere's
compiled decoder.

The call is synthetic: voiced sounds with pauses, mu-law of two channels at 8 kHz, compressed by the encoder
of the tests. Both decoders convert the bytes of the file to its samples. The minimum of `--num-runs` counts,
after a first run that does not. Fails if pyasr takes more than 0.5 times as long as the peer, or if the
samples differ.

Example:
    benchmarks/shorten.py --minutes 5
"""

from __future__ import annotations

import io
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from peers import peer

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import decode_audio

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from shorten_encoder import shortened_sphere  # noqa: E402

RATE, MAX_RATIO = 8000, 0.5


@dataclass(frozen=True)
class Benchmark:
    minutes: float = option(2.0, "duration of the call in minutes", minimum=0.1)
    num_runs: int = option(3, "runs per side", minimum=1)


def call(minutes: float) -> np.ndarray:
    """Samples of the call, int16 (num_samples, 2)."""
    time_s = np.arange(round(60 * minutes * RATE))[:, None] / RATE
    rng, side = np.random.default_rng(0), np.arange(2)
    speaks = np.sin(2 * np.pi * time_s / 4 + np.pi * side) > 0
    pitch = 2 * np.pi * (120 + 60 * side) * time_s + np.sin(2 * np.pi * time_s)
    voice = (
        sum(np.sin(number * pitch) / number for number in range(1, 12))
        * (1 + np.sin(2 * np.pi * 3 * time_s))
        * speaks
    )
    return (1500 * voice + rng.normal(0, 20, voice.shape)).astype(np.int16)


def cpu_seconds(decode, content: bytes, num_runs: int) -> tuple[float, np.ndarray]:
    """(CPU seconds, result) of the fastest run of `decode`."""
    found, seconds = decode(content), []
    for _ in range(num_runs):
        begin = time.process_time()
        found = decode(content)
        seconds.append(time.process_time() - begin)
    return min(seconds), found


def theirs(content: bytes) -> np.ndarray:
    wav = peer("desphere_native", "pip install desphere-native==0.1.1").transcode(content)
    return soundfile.read(io.BytesIO(wav), dtype="float32", always_2d=True)[0] * np.float32(32768)


def main(options: Benchmark) -> None:
    content = shortened_sphere(call(options.minutes), 2, RATE)
    our_s, samples = cpu_seconds(
        lambda content: decode_audio(io.BytesIO(content), "the call")[0], content, options.num_runs
    )
    peer_s, expected = cpu_seconds(theirs, content, options.num_runs)
    call_size = (
        f"{options.minutes:g} minutes of two channels, {8 * len(content) / samples.size:.1f} bits per sample"
    )
    ours, theirs_s = (f"{seconds / options.minutes:.3f}" for seconds in (our_s, peer_s))
    print(
        f"{call_size}; CPU seconds per minute: ours {ours}, desphere-native {theirs_s}, ratio "
        f"{our_s / peer_s:.2f}"
    )
    if not np.array_equal(samples, expected):
        raise UserError("the samples differ from desphere's")
    if our_s > MAX_RATIO * peer_s:
        raise UserError(f"ours takes {our_s / peer_s:.2f} times as long, more than {MAX_RATIO}")


if __name__ == "__main__":
    run_step(Benchmark, main, __doc__)
