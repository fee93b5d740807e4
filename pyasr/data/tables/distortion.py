"""What a recording is mixed with when it is read: the table `reco2distortion`, one JSON object a recording.

    {"rir": "room3-1.wav", "noises": [{"audio": "fan.wav", "snr_db": 10, "start": 0.3}, {"audio": "cough.wav", "snr_db": 5, "at_s": 1}]}

`{}` stands for the recording as it is. `pyasr.data.augmentation.augment` draws distortions, `pyasr.data.audio.mixing` applies them.
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
_MOST_SNR_DB, _MOST_SECONDS = 200.0, 1e7


@dataclass(frozen=True)
class Noise:
    """One noise under a recording. Raises ValueError for values that make no sense.

    audio    entry as of wav.scp: a file, or a command
    snr_db   power of the recording over that of this noise
    at_s     where in the recording it sounds, once; None: all the time, repeated as often as it takes
    start    where in the noise a repeated one begins, as a share of its length
    begin_s  where in `audio` the noise begins
    end_s    where in `audio` it ends; None: at the end
    rir      impulse response from where the noise is to the microphone
    channel  of `audio`, where it has several, as in reco2file_and_channel; "": the first
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
        end_s = _MOST_SECONDS if self.end_s is None else self.end_s
        are_known = _is_source(self.audio) and (self.rir is None or _is_source(self.rir)) and isinstance(self.channel, str)
        are_possible = (abs(self.snr_db) <= _MOST_SNR_DB and 0 <= (self.at_s or 0.0) <= _MOST_SECONDS and 0 <= self.start <= 1
                        and 0 <= self.begin_s < end_s <= _MOST_SECONDS)  # fmt: skip
        if not (are_known and are_possible):
            raise ValueError("a value is out of bounds")


@dataclass(frozen=True)
class Distortion:
    """A room's impulse response, and noises. Raises ValueError for an impulse response without a name."""

    rir: str | None = None
    noises: tuple[Noise, ...] = ()

    def __post_init__(self):
        if self.rir is not None and not _is_source(self.rir):
            raise ValueError("no impulse response")

    @property
    def sources(self) -> list[str]:
        """All audio that it takes."""
        return [source for source in (self.rir, *(one for noise in self.noises for one in (noise.audio, noise.rir))) if source]

    @classmethod
    def parse(cls, text: str) -> Distortion:
        """The inverse of `str`. Raises ValueError for what is no distortion."""
        try:
            fields = parse_text_object(text)
            noises = [Noise(**noise) for noise in fields.pop("noises", ())]
            return cls(noises=tuple(noises), **fields)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None

    def __str__(self) -> str:
        noises = [_without_defaults(noise) for noise in self.noises]
        return json.dumps(({"rir": self.rir} if self.rir else {}) | ({"noises": noises} if noises else {}), ensure_ascii=False)


def _is_source(value) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _without_defaults(noise: Noise) -> dict:
    plain = Noise(noise.audio, noise.snr_db)
    given = {name: value for name, value in asdict(noise).items() if value != getattr(plain, name)}
    return {"audio": noise.audio, "snr_db": noise.snr_db} | given


def complaint(text: str) -> str:
    """What is wrong with a line's value; '' if nothing is."""
    try:
        Distortion.parse(text)
    except ValueError:
        return "no distortion as utils/reverberate_data_dir.py writes it"
    return ""


def parse_table(table: Mapping[str, str], path: Path) -> Mapping[str, Distortion]:
    """{recording: distortion} of the table at `path`. Raises UserError for a line that is none."""
    for name, text in table.items():
        if told := complaint(text):
            raise UserError(f"{path}: '{name} {text}' is {told}; make the directory again")
    return Parsed(table, Distortion.parse)
