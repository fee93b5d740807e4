r"""Impulse responses of empty rooms with six flat walls, by the image method.

J. B. Allen, D. A. Berkley, "Image method for efficiently simulating small-room acoustics", JASA 65 (1979). A
reflection at a wall is equivalent to an image of the source behind the wall. In a room of size L, the images
of a source at s are, on each axis, at

    x = (1 - 2p) s + 2 n L       p = 0, 1,  n = ..., -1, 0, 1, ...    after |n - p| + |n| reflections

With d the distance from an image to the receiver r and k its number of reflections on all axes, the response
is (Allen and Berkley, eq. 10)

    h(t) = sum  (1 - a)^(k / 2) / (4 pi d)  delta(t - d / c)       a: fraction of the energy that walls absorb

The pulses are placed on a grid of 16 points per sample, which is then band-limited, so arrivals can be
between samples. As in that paper, a high-pass filter removes frequencies below 100 Hz, in which the
reflections, which are all positive, accumulate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.data.audio.audio_reading import resample

SPEED_OF_SOUND = 343.0
_OVERSAMPLING = 16
_HIGH_PASS_HZ = 100.0
_MIN_DISTANCE_M = 1e-2


@dataclass(frozen=True)
class Room:
    """A room of width, length and height in metres; all walls absorb the same fraction of the energy."""

    size: tuple[float, float, float]
    absorption: float

    @property
    def rt60_s(self) -> float:
        """Time in which energy decays by 60 dB, by Eyring's formula: 0.161 V / (-S ln(1 - a))."""
        width, length, height = self.size
        surface = 2 * (width * length + width * height + length * height)
        return (
            24
            * np.log(10)
            / SPEED_OF_SOUND
            * width
            * length
            * height
            / (-surface * np.log1p(-self.absorption))
        )


def impulse_response(
    room: Room, source: np.ndarray, receiver: np.ndarray, rate: int, duration_s: float
) -> np.ndarray:
    """The response at `receiver` to a pulse at `source`, float32 (duration_s * rate,); positions (3,) in
    metres from a corner."""
    grid_rate = rate * _OVERSAMPLING
    reach = SPEED_OF_SOUND * duration_s
    (dx, kx), (dy, ky), (dz, kz) = (_images(*axis, reach) for axis in zip(room.size, source, receiver))
    plane = (dy[:, None] ** 2 + dz**2).ravel()
    plane_reflections = (ky[:, None] + kz).ravel()
    reflected = (1 - room.absorption) ** (np.arange(kx.max() + plane_reflections.max() + 1) / 2)
    pulses = np.zeros(int(duration_s * grid_rate))
    for x, k in zip(dx, kx):
        near = np.flatnonzero(plane < reach**2 - x**2)
        distance = np.maximum(np.sqrt(plane[near] + x**2), _MIN_DISTANCE_M)
        place = np.rint(distance * (grid_rate / SPEED_OF_SOUND)).astype(np.int64)
        heard = reflected[plane_reflections[near] + k] / (4 * np.pi * distance)
        pulses += np.bincount(place, heard, len(pulses) + _OVERSAMPLING)[: len(pulses)]
    return high_passed(resample(pulses * _OVERSAMPLING, grid_rate, rate), rate)


def _images(size: float, source: float, receiver: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """(distances to the receiver along one axis, numbers of reflections) of images within `reach` metres."""
    most = int(np.ceil(reach / (2 * size))) + 1
    n, p = (index.ravel() for index in np.meshgrid(np.arange(-most, most + 1), [0, 1]))
    distance = (1 - 2 * p) * source + 2 * n * size - receiver
    near = np.abs(distance) < reach
    return distance[near], (np.abs(n - p) + np.abs(n))[near]


def high_passed(response: np.ndarray, rate: int) -> np.ndarray:
    """The response after Allen and Berkley's second-order high-pass filter with the corner frequency 100 Hz,
    float32."""
    size = 1 << (len(response) + rate // 10).bit_length()
    w = 2 * np.pi * _HIGH_PASS_HZ / rate
    r = np.exp(-w)
    z = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    transfer = (1 - (1 + r) * z + r * z**2) / (1 - 2 * r * np.cos(w) * z + r**2 * z**2)
    return np.fft.irfft(np.fft.rfft(response, size) * transfer, size)[: len(response)].astype(np.float32)


def decay_time_s(response: np.ndarray, rate: int) -> float:
    """Reverberation time by Schroeder's backward integration: the line through the decay from -5 to -25 dB,
    continued to -60 dB.

    M. R. Schroeder, "New method of measuring reverberation time", JASA 37 (1965).
    """
    decay_db = 10 * np.log10(_energy_left(response))
    places = np.flatnonzero((decay_db <= -5) & (decay_db >= -25))
    if len(places) < 2:
        return 0.0
    slope, _ = np.polyfit(places / rate, decay_db[places], 1)
    return float(-60 / slope)


def without_tail(response: np.ndarray) -> np.ndarray:
    """The response up to the point at which a millionth of its energy remains (-60 dB)."""
    return response[: np.count_nonzero(_energy_left(response) > 1e-6)]


def _energy_left(response: np.ndarray) -> np.ndarray:
    energy = np.cumsum(np.square(response[::-1], dtype=np.float64))[::-1]
    return np.maximum(energy / max(energy[0], 1e-300), 1e-12)
