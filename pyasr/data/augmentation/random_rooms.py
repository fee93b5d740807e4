"""Impulse responses of random rooms, with the sizes of Ko et al. (ICASSP 2017), whose lists Kaldi's recipes
download.

Width and length of a room are within the bounds of its kind, its height is between 2 and 5 m, and its walls
absorb 0.2 to 0.8 of the energy. The microphone is anywhere in the room; speakers and noises are within 5 m of
the microphone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.audio.audio_reading import write_audio
from pyasr.data.augmentation.room_responses import Room, decay_time_s, impulse_response, without_tail

KINDS = {"small": (1.0, 10.0), "medium": (10.0, 30.0), "large": (30.0, 50.0)}
RIR_LIST = "rir_list"
_HEIGHTS_M, _ABSORPTIONS = (2.0, 5.0), (0.2, 0.8)
_NEAREST_M, _FARTHEST_M = 0.3, 5.0
_LONGEST_S = 2.5
_DECAYS = 3.0  # the decay of flat rooms is up to about twice as slow as by Eyring's formula
_PEAK = 30000.0


@dataclass(frozen=True)
class RoomOptions:
    """Kinds and numbers of rooms and positions."""

    rooms: str = option(
        "small medium", "room kinds by width and length: small (1-10 m), medium (10-30 m), large (30-50 m)"
    )
    num_rooms: int = option(40, "number of rooms of each kind", minimum=1)
    rirs_per_room: int = option(5, "number of speaker positions in each room", minimum=1)
    sample_frequency: int = option(16000, "sampling rate in Hz", minimum=1000, maximum=200000)
    room_seed: int = option(0, "seed of rooms and positions")

    def kinds(self) -> list[str]:
        """The kinds of rooms. Raises UserError for one that is unknown or given twice."""
        found = self.rooms.split()
        if not found or len(set(found)) < len(found) or not set(found) <= set(KINDS):
            raise UserError(
                f"--rooms '{self.rooms}': expected some of {', '.join(KINDS)}, each once, separated by blanks"
            )
        return found


def write_responses(options: RoomOptions, out: Path, named: Path) -> int:
    """Write a WAV file per response, and rir_list, to `out`, which is later renamed to `named`; the number of
    responses."""
    lines, num_rooms = [], len(options.kinds()) * options.num_rooms
    progress = log.Progress("simulation", num_rooms, "rooms")
    for kind in options.kinds():
        for number in range(1, options.num_rooms + 1):
            lines += _write_room(options, f"{kind}{number:03d}", KINDS[kind], out, named)
            progress.update(len(lines) // options.rirs_per_room)
    with atomic_write(out / RIR_LIST) as f:
        f.writelines(f"{line}\n" for line in lines)
    return len(lines)


def _write_room(
    options: RoomOptions, name: str, widths: tuple[float, float], out: Path, named: Path
) -> list[str]:
    """Write the responses of one room; their lines of rir_list."""
    rng, rate, lines = generator(options.room_seed, "room", name), options.sample_frequency, []
    room = draw_room(widths, rng)
    receiver = rng.random(3) * room.size
    for place in range(1, options.rirs_per_room + 1):
        source = draw_source(room, receiver, rng)
        response = without_tail(
            impulse_response(room, source, receiver, rate, min(_DECAYS * room.rt60_s + 0.05, _LONGEST_S))
        )
        rir = f"{name}-{place:02d}"
        write_audio(out / f"{rir}.wav", response * (_PEAK / np.abs(response).max()), rate)
        lines.append(
            f"--rir-id {rir} --room-id {name} --rt-60 {decay_time_s(response, rate):.3f} {named / rir}.wav"
        )
    return lines


def draw_room(widths: tuple[float, float], rng: np.random.Generator) -> Room:
    """A random room whose width and length are within the bounds `widths`, in metres."""
    return Room(
        (rng.uniform(*widths), rng.uniform(*widths), rng.uniform(*_HEIGHTS_M)), rng.uniform(*_ABSORPTIONS)
    )


def draw_source(room: Room, receiver: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random position (3,) in the room, 0.3 to 5 m from the receiver."""
    low, high = np.maximum(receiver - _FARTHEST_M, 0), np.minimum(receiver + _FARTHEST_M, room.size)
    while True:
        source = rng.uniform(low, high)
        if _NEAREST_M <= np.linalg.norm(source - receiver) <= _FARTHEST_M:
            return source
