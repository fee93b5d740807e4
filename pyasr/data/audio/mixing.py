r"""Apply a `Distortion` to a recording: reverberation and noise.

With speech x of N samples, impulse response h whose direct path is h[d], and noises v_i at s_i dB:

    y[t] = a sum_k h[k] x[t + d - k]                   0 <= t < N, a such that y has the power of x
    z[t] = y[t] + sum_i b_i v_i[t]                     b_i^2 mean(v_i^2) = 10^(-s_i / 10) mean(x^2);
                                                       mean(v_i^2) over the extent of v_i
    out  = c z                                         c such that out has the power of x, or less if it would
                                                       exceed 16 bits

The direct path has no delay and the length is unchanged, so an alignment of x is valid for `out`. Kaldi's
wav-reverberate does the same with --shift-output and --normalize-output. Two details differ: Kaldi takes the
strongest sample of h, which can be a reflection, as the direct path, and computes the speech power for the
noise levels with the first 50 ms of h. Both programs use the first channel of responses and noises; in pyasr
a noise can name another channel.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import read_channels, resample
from pyasr.data.audio.channels import pick
from pyasr.data.tables.distortion import Distortion, Noise

_LARGEST = 32767.0
_SOURCES_KEPT = 8
_REPAIR = "repair the file, or create the copies again with utils/reverberate_data_dir.py --force"


def distorted(samples: np.ndarray, rate: int, distortion: Distortion) -> np.ndarray:
    """The recording `samples` at `rate` Hz with the room and the noises of `distortion`: float32
    (num_samples,).

    Digital silence is not changed. Raises UserError if audio cannot be read, or an impulse response consists
    of zeros.
    """
    power = power_of(samples)
    if not power or not distortion.sources:
        return samples
    mixed = samples.astype(np.float64)
    if distortion.rir:
        mixed = reverberated(mixed, _response(distortion.rir, rate))
        mixed *= _gain(power, power_of(mixed))
    for noise in distortion.noises:
        _add(mixed, noise, rate, power * 10 ** (-noise.snr_db / 10))
    mixed *= _gain(power, power_of(mixed))
    return (mixed * min(1.0, _LARGEST / np.abs(mixed).max(initial=1.0))).astype(np.float32)


def power_of(samples: np.ndarray) -> float:
    """Mean square; 0 for an empty array."""
    return float(np.mean(np.square(samples, dtype=np.float64))) if len(samples) else 0.0


def reverberated(samples: np.ndarray, response: np.ndarray) -> np.ndarray:
    """The convolution of both, from the direct path of `response` on: float64 (len(samples),)."""
    delay = direct_path(response)
    return convolved(samples, response)[delay : delay + len(samples)]


def direct_path(response: np.ndarray) -> int:
    """The sample of an impulse response at which sound arrives: the first peak of at least a quarter of the
    maximum magnitude."""
    magnitude = np.abs(response)
    rise = int(np.argmax(magnitude >= 0.25 * magnitude.max()))
    falls = np.flatnonzero(np.diff(magnitude[rise:]) < 0)
    return rise + int(falls[0]) if len(falls) else rise


def convolved(samples: np.ndarray, response: np.ndarray) -> np.ndarray:
    """The convolution of both, float64 (len(samples) + len(response) - 1,), by overlapping blocks of several
    times len(response)."""
    size = 1 << (4 * len(response) - 1).bit_length()
    step = size - len(response) + 1
    spectrum = np.fft.rfft(response, size)
    result = np.zeros(len(samples) + len(response) - 1)
    for begin in range(0, len(samples), step):
        block = result[begin : begin + size]
        block += np.fft.irfft(np.fft.rfft(samples[begin : begin + step], size) * spectrum, size)[: len(block)]
    return result


def _add(mixed: np.ndarray, noise: Noise, rate: int, power: float) -> None:
    """Add a noise of this power at its position."""
    begin = round((noise.at_s or 0.0) * rate)
    sound = _part(noise, rate)
    if noise.at_s is None:
        sound = np.resize(np.roll(sound, -round(noise.start * len(sound))), len(mixed))
    sound = sound[: max(len(mixed) - begin, 0)]
    if noise.rir:
        sound = reverberated(sound, _response(noise.rir, rate))
    mixed[begin : begin + len(sound)] += sound * _gain(power, power_of(sound))


def _gain(wanted: float, found: float) -> float:
    """The factor on samples that changes their power from `found` to `wanted`; 1 for silence."""
    return float(np.sqrt(wanted / found)) if found else 1.0


def _part(noise: Noise, rate: int) -> np.ndarray:
    samples = source_samples(noise.audio, rate, noise.channel)
    end_s = len(samples) / rate if noise.end_s is None else noise.end_s
    part = samples[round(noise.begin_s * rate) : round(end_s * rate)]
    if not len(part):
        raise UserError(f"{noise.audio}: no audio between {noise.begin_s:g} s and {end_s:g} s; {_REPAIR}")
    return part


def _response(rx: str, rate: int) -> np.ndarray:
    response = source_samples(rx, rate)
    if not np.any(response):
        raise UserError(f"{rx}: all samples of the impulse response are 0; {_REPAIR}")
    return response


@lru_cache(_SOURCES_KEPT)
def source_samples(rx: str, rate: int, channel: str = "") -> np.ndarray:
    """An impulse response or a noise at `rate` Hz. Raises UserError if it cannot be read."""
    return resample(*_read(rx, channel), rate)


@cache
def source_duration_s(rx: str) -> float:
    """Seconds of a noise. Raises UserError if it cannot be read."""
    samples, rate = _read(rx)
    return len(samples) / rate


def _read(rx: str, channel: str = "") -> tuple[np.ndarray, int]:
    try:
        samples, rate = read_channels(rx)
        return samples[:, pick(samples.shape[1], channel, rx, unnamed=0)], rate
    except UserError as error:
        raise UserError(f"{str(error).rpartition(';')[0] or error}; {_REPAIR}") from None
