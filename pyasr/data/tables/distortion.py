"""Room and noises that are applied to a recording when it is read: the table `reco2distortion`, one JSON
object per recording.

    {"rir": "room3-1.wav", "noises": [{"audio": "fan.wav", "snr_db": 10, "start": 0.3},
                                      {"audio": "cough.wav", "snr_db": 5, "at_s": 1}]}

`{}` means an unchanged recording. `pyasr.data.augmentation.augment` draws distortions,
`pyasr.data.audio.mixing` applies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.foreign_json import parse_text_object
from pyasr.io.tables import Parsed

NONE = "{}"
_MAX_SNR_DB, _MAX_SECONDS = 200.0, 1e7


@dataclass(frozen=True)
class Noise:
    """A noise that is added to a recording. Raises ValueError for values out of bounds.

    audio    a file or a command, as in wav.scp
    snr_db   ratio of the power of the recording to that of the noise, in dB
    at_s     position in the recording, in seconds, of a noise that is added once; None: repeat it over the
             whole recording
    start    position in a repeated noise at which it starts, as a fraction of its length
    begin_s  begin of the noise in `audio`, in seconds
    end_s    end of the noise in `audio`, in seconds; None: the end of `audio`
    rir      impulse response from the position of the noise to the microphone
    channel  channel of `audio` if it has several, as in reco2file_and_channel; "": the first
    """

    audio: str
    snr_db: float
    at_s: float | None = None
    start: float = 0.0
    begin_s: float = 0.0
    end_s: float | None = None
    rir: str | None = None
    channel: str = ""

    def __post_init__(self):
        end_s = _MAX_SECONDS if self.end_s is None else self.end_s
        are_known = (
            _is_source(self.audio)
            and (self.rir is None or _is_source(self.rir))
            and isinstance(self.channel, str)
        )
        are_possible = (
            abs(self.snr_db) <= _MAX_SNR_DB
            and 0 <= (self.at_s or 0.0) <= _MAX_SECONDS
            and 0 <= self.start <= 1
            and 0 <= self.begin_s < end_s <= _MAX_SECONDS
        )
        if not (are_known and are_possible):
            raise ValueError("a value is out of bounds")


@dataclass(frozen=True)
class Distortion:
    """The impulse response of a room, and noises. Raises ValueError for a response without a name."""

    rir: str | None = None
    noises: tuple[Noise, ...] = ()

    def __post_init__(self):
        if self.rir is not None and not _is_source(self.rir):
            raise ValueError("invalid name of an impulse response")

    @property
    def sources(self) -> list[str]:
        """All audio entries that the distortion reads."""
        return [
            source
            for source in (self.rir, *(one for noise in self.noises for one in (noise.audio, noise.rir)))
            if source
        ]

    @classmethod
    def parse(cls, text: str) -> Distortion:
        """The inverse of `str`. Raises ValueError for anything else."""
        try:
            fields = parse_text_object(text)
            noises = [Noise(**noise) for noise in fields.pop("noises", ())]
            return cls(noises=tuple(noises), **fields)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None

    def __str__(self) -> str:
        noises = [_without_defaults(noise) for noise in self.noises]
        return json.dumps(
            ({"rir": self.rir} if self.rir else {}) | ({"noises": noises} if noises else {}),
            ensure_ascii=False,
        )


def _is_source(value) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _without_defaults(noise: Noise) -> dict:
    plain = Noise(noise.audio, noise.snr_db)
    given = {name: value for name, value in asdict(noise).items() if value != getattr(plain, name)}
    return {"audio": noise.audio, "snr_db": noise.snr_db} | given


def complaint(text: str) -> str:
    """What is wrong with the value of a line; '' if it is valid."""
    try:
        Distortion.parse(text)
    except ValueError:
        return "not a distortion as written by utils/reverberate_data_dir.py"
    return ""


def parse_table(table: Mapping[str, str], path: Path) -> Mapping[str, Distortion]:
    """{recording: distortion} of the table at `path`. Raises UserError for an invalid line."""
    for name, text in table.items():
        if found := complaint(text):
            raise UserError(f"{path}: '{name} {text}' is {found}; create the directory again")
    return Parsed(table, Distortion.parse)
