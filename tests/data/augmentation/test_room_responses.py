"""Simulated rooms: arrivals against mirrored images, the spectrum against its sum, the decay against formulas
of room acoustics."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pyasr.data.audio.audio_reading import read_audio
from pyasr.data.audio.mixing import direct_path
from pyasr.data.augmentation.random_rooms import KINDS, draw_room, draw_source
from pyasr.data.augmentation.room_responses import (
    SPEED_OF_SOUND,
    Room,
    decay_time_s,
    impulse_response,
    without_tail,
)
from pyasr.data.augmentation.sound_lists import SoundList

RATE = 8000
UTILS = Path(__file__).parents[3] / "utils"


def images_by_mirroring(room, source, reach, receiver):
    """{position: minimum number of reflections} of all images within `reach` of the receiver, by repeated
    mirroring at the six walls."""
    walls = [(axis, at) for axis, size in enumerate(room.size) for at in (0.0, size)]
    found, last = {tuple(np.round(source, 6)): 0}, [np.array(source)]
    for reflections in range(1, 60):
        new = []
        for place, (axis, at) in product(last, walls):
            mirrored = place.copy()
            mirrored[axis] = 2 * at - mirrored[axis]
            if (
                np.abs(mirrored - receiver).max() < reach + 2 * max(room.size)
                and tuple(np.round(mirrored, 6)) not in found
            ):
                found[tuple(np.round(mirrored, 6))] = reflections
                new.append(mirrored)
        last = new
        if not new:
            break
    return {place: k for place, k in found.items() if np.linalg.norm(place - receiver) < reach}


def test_spectrum_equals_sum_over_images():
    """In the band between the high-pass filter and the upper edge."""
    room, source, receiver = Room((3.1, 2.7, 2.3), 0.4), np.array([0.7, 1.1, 1.3]), np.array([2.2, 0.6, 0.9])
    duration_s = 0.04
    response = impulse_response(room, source, receiver, RATE, duration_s)
    images = images_by_mirroring(room, source, SPEED_OF_SOUND * duration_s, receiver)
    assert len(images) > 400
    distances = np.array([np.linalg.norm(np.array(place) - receiver) for place in images])
    amplitudes = 0.6 ** (np.array(list(images.values())) / 2) / (4 * np.pi * distances)
    hertz = np.arange(800, 3500, 50)
    expected = np.exp(-2j * np.pi * hertz[:, None] * distances / SPEED_OF_SOUND) @ amplitudes
    found = np.exp(-2j * np.pi * hertz[:, None] * np.arange(len(response)) / RATE) @ response
    errors = np.abs(np.abs(found) - np.abs(expected))
    assert np.median(errors) < 0.06 * np.abs(expected).mean()


@pytest.mark.parametrize(
    "size, absorption", [((4.0, 3.6, 3.2), 0.3), ((7.0, 6.2, 5.0), 0.5), ((3.0, 2.6, 2.4), 0.2)]
)
def test_decay_time_equals_room_acoustics_formula(size, absorption):
    """For nearly cubic rooms; the decay is slightly slower, because the image method has no scattering."""
    room, rng = Room(size, absorption), np.random.default_rng(1)
    times = [
        decay_time_s(
            impulse_response(room, rng.random(3) * size, rng.random(3) * size, RATE, 2 * room.rt60_s), RATE
        )
        for _ in range(4)
    ]
    volume, surface = np.prod(size), 2 * (size[0] * size[1] + size[0] * size[2] + size[1] * size[2])
    assert room.rt60_s == pytest.approx(0.161 * volume / (-surface * np.log(1 - absorption)), rel=0.01)
    assert 0.95 < np.mean(times) / room.rt60_s < 1.25


def test_decay_time_of_exponential_by_schroeder_integration():
    response = 10 ** (-3 * np.arange(RATE) / RATE / 0.4)
    assert decay_time_s(response, RATE) == pytest.approx(0.4, rel=1e-3)
    assert (
        len(without_tail(response)) / RATE == pytest.approx(0.4, rel=1e-3)
        and decay_time_s(np.eye(1)[0], RATE) == 0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_first_arrival_is_direct_path(kind):
    rng = np.random.default_rng(3)
    for _ in range(5):
        room = draw_room(KINDS[kind], rng)
        receiver = rng.random(3) * room.size
        source = draw_source(room, receiver, rng)
        assert (
            all(0 <= place <= size for place, size in zip(source, room.size))
            and 0.3 <= np.linalg.norm(source - receiver) <= 5
        )
        response = impulse_response(room, source, receiver, RATE, 0.1)
        assert abs(direct_path(response) - np.linalg.norm(source - receiver) / SPEED_OF_SOUND * RATE) <= 1.5


def simulate(*arguments):
    return subprocess.run(
        [sys.executable, UTILS / "simulate_rirs.py", *map(str, arguments)], capture_output=True, text=True
    )


def test_list_of_impulse_responses(tmp_path):
    words = ("--rooms", "small", "--num-rooms", 2, "--rirs-per-room", 2, "--sample-frequency", RATE)
    for out in ("a", "b"):
        done = simulate(*words, tmp_path / out)
        assert done.returncode == 0, done.stderr
    sounds = SoundList(tmp_path / "a/rir_list").sounds
    assert [sound.room for sound in sounds] == ["small001", "small001", "small002", "small002"]
    for sound in sounds:
        samples, rate = read_audio(sound.audio)
        assert rate == RATE and 29990 < np.abs(samples).max() < 30010
        assert np.array_equal(samples, read_audio(sound.audio.replace("/a/", "/b/"))[0])


def test_unknown_room_type_is_refused(tmp_path):
    done = simulate("--rooms", "small tiny", tmp_path / "rirs")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (tmp_path / "rirs").exists()
    assert "--rooms 'small tiny': expected some of small, medium, large, each once" in done.stderr
