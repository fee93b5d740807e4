"""Lists of noises and of impulse responses.

A line is `PATH`, `KEY PATH` as in wav.scp, or in Kaldi's format, with properties of the sound before the
path:

    --rir-id 7 --room-id room3 --rt-60 0.41 rirs/room3-1.wav
    --noise-id 12 --noise-type point-source --bg-fg-type foreground noises/cough.wav

Instead of a path, a command that ends in a bar is allowed after a key or properties. A data directory can be
given instead of its wav.scp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import admit_table, is_command
from pyasr.base.files.table_paths import placed, root_of
from pyasr.data.audio.audio_checks import inspect_audio
from pyasr.data.audio.channels import labels_of
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import read_lines

_KNOWN = (
    "rir-id",
    "room-id",
    "receiver-position-id",
    "source-position-id",
    "rt-60",
    "drr",
    "cte",
    "probability",
    "noise-id",
    "noise-type",
    "bg-fg-type",
    "room-linkage",
)
FOREGROUND, BACKGROUND = "foreground", "background"


@dataclass(frozen=True)
class Sound:
    """A noise or an impulse response: its entry, its room, FOREGROUND or BACKGROUND, its channel in the file;
    "" if unknown."""

    audio: str
    room: str = ""
    ground: str = ""
    weight: float = 1.0
    channel: str = ""


class SoundList:
    """The sounds of a list, which are drawn by their weights.

    ground  FOREGROUND or BACKGROUND skips sounds that the list assigns to the other kind

    Raises UserError for an invalid line, for refused commands, and if no sound remains.
    """

    def __init__(self, path: Path, ground: str = ""):
        self.path = list_file(path)
        lines = [
            (number, line.strip()) for number, line in enumerate(read_lines(self.path), 1) if line.strip()
        ]
        sounds = [_sound(line, f"{self.path}:{number}") for number, line in lines]
        root, labels = root_of(self.path, [sound.audio for sound in sounds]), _labels(path)
        keys = [line.split()[0] for _, line in lines]
        sounds = [
            replace(sound, audio=placed(root, sound.audio), channel=labels.get(key, ""))
            for key, sound in zip(keys, sounds)
        ]
        self.sounds = [sound for sound in sounds if not ground or sound.ground in ("", ground)]
        if not self.sounds:
            raise UserError(
                f"{self.path}: no {f'{ground} noise' if ground else 'sound'} in this list; write one path "
                "per line"
            )
        admit_table({sound.audio: sound.audio for sound in self.sounds}, self.path)
        self._weights = _shares(self.sounds)
        self._of_room: dict[str, list[Sound]] = {}
        for sound in self.sounds:
            self._of_room.setdefault(sound.room, []).append(sound)

    def check_files(self) -> None:
        """Raise UserError if the file of a sound is missing."""
        for sound in self.sounds:
            if complaint := inspect_audio(sound.audio, "exists", sound.channel).complaint:
                raise UserError(f"{self.path}: {sound.audio}: {complaint}; correct the list")

    def draw(self, rng: np.random.Generator) -> Sound:
        """A random sound."""
        return self.sounds[rng.choice(len(self.sounds), p=self._weights)]

    def draw_in_room(self, other: Sound, rng: np.random.Generator) -> Sound | None:
        """A random other sound of the room of `other`; None if no other is known."""
        near = [sound for sound in self._of_room[other.room] if sound != other] if other.room else []
        return near[rng.choice(len(near), p=_shares(near))] if near else None


def _shares(sounds: list[Sound]) -> np.ndarray:
    """The weights of the sounds, normalised to the sum 1."""
    weights = np.array([sound.weight for sound in sounds])
    return weights / weights.sum()


def list_file(path: Path) -> Path:
    """The file of a list; wav.scp for a data directory."""
    return Path(path) / "wav.scp" if Path(path).is_dir() else Path(path)


def _labels(path: Path) -> dict[str, str]:
    """{key: channel} of a data directory that names the channels of its recordings."""
    return labels_of(DataDir(path).reco2file_and_channel) if Path(path).is_dir() else {}


def _sound(line: str, where: str) -> Sound:
    """Parse a line. Raises UserError, beginning with `where`, for options that Kaldi's lists lack, for a line
    without a path, and for a command without a key, whose program would be taken as the key."""
    known: dict[str, str] = {}
    while line.startswith("--"):
        name, _, rest = line[2:].partition(" ")
        name, equals, value = name.partition("=")
        if not equals:
            value, _, rest = rest.strip().partition(" ")
        if name not in _KNOWN:
            raise UserError(f"{where}: --{name} is not one of --{', --'.join(_KNOWN)}; correct the line")
        known[name], line = value, rest.strip()
    words = line.split(maxsplit=1)
    if not known and is_command(line) and _is_without_key(line.split()):
        raise UserError(f"{where}: '{line}' is a command without a key; write a key before it, 'KEY {line}'")
    audio = line if known or len(words) < 2 else words[1]
    if not audio.strip('"'):
        raise UserError(f"{where}: no path; write 'PATH', 'KEY PATH', or Kaldi's '--room-id ROOM PATH'")
    return Sound(
        audio.strip('"'),
        known.get("room-id", ""),
        known.get("bg-fg-type", ""),
        _weight(known.get("probability", "1"), where),
    )


def _is_without_key(words: list[str]) -> bool:
    """Whether the first word of a line with a command is the program and not a key: the second word is an
    option, or it is not a program, and either the first word is a program or the second an existing file."""
    if len(words) < 3:  # 'COMMAND |': the word may be a key or a program
        return False
    second = words[1]
    return second.startswith("-") or (not which(second) and bool(which(words[0]) or Path(second).exists()))


def _weight(text: str, where: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < 1e6:
        raise UserError(f"{where}: --probability {text} is not a positive number; correct the line")
    return weight
