"""Signals with known properties, equal on every machine: voices of a given pitch, noise, and their windowed
frames."""

from __future__ import annotations

import numpy as np


def noise(num: int, seed: int = 1) -> np.ndarray:
    """Uniform in -1 .. 1, by a linear congruential generator, independent of libraries."""
    values, state = np.empty(num), seed
    for i in range(num):
        state = (1103515245 * state + 12345) % 2**31
        values[i] = state / 2**30 - 1
    return values


def voice(pitch_hz: np.ndarray, rate: int, highest_hz: float = 3500.0) -> np.ndarray:
    """A voice with falling harmonics and a formant at 600 Hz; `pitch_hz` has a value for every sample."""
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate
    wave = np.zeros(len(pitch_hz))
    for harmonic in range(1, int(highest_hz / pitch_hz.min()) + 1):
        hertz = harmonic * pitch_hz
        gain = (hertz < highest_hz) / harmonic * (1 + 3 * np.exp(-(((hertz - 600) / 200) ** 2)))
        wave += gain * np.sin(harmonic * phase)
    return wave


def speech_like(rate: int) -> np.ndarray:
    """1.2 s at int16 scale: a voice with rising pitch, noise, digital silence, a voice with falling pitch and
    level; hiss under the voices."""
    part = int(0.3 * rate)
    rising, falling = np.linspace(100, 160, part), np.linspace(240, 180, part)
    loud = [
        voice(rising, rate),
        0.5 * noise(part),
        np.zeros(part),
        voice(falling, rate) * np.linspace(1, 0.02, part),
    ]
    hiss = [0.01 * noise(part, 2), np.zeros(part), np.zeros(part), 0.01 * noise(part, 3)]
    return np.round(2000 * (np.concatenate(loud) + np.concatenate(hiss))).astype(np.float32)


def windowed_frames(wave: np.ndarray, rate: int) -> tuple[np.ndarray, np.ndarray]:
    """(frames, log energies) by Kaldi's defaults: offset removed, preemphasis 0.97, Povey window, zero
    padding."""
    size, shift = int(0.025 * rate), int(0.010 * rate)
    frames = np.stack([wave[begin : begin + size] for begin in range(0, len(wave) - size + 1, shift)]).astype(
        np.float64
    )
    frames -= frames.mean(1, keepdims=True)
    log_energies = np.log(np.maximum((frames**2).sum(1), np.finfo(np.float32).eps))
    frames = np.hstack([0.03 * frames[:, :1], frames[:, 1:] - 0.97 * frames[:, :-1]])
    frames *= (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))) ** 0.85
    return np.pad(frames, ((0, 0), (0, (1 << (size - 1).bit_length()) - size))), log_energies
