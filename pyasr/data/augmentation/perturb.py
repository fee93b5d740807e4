"""Copies of utterances at other speeds and volumes, named as by Kaldi's perturb_data_dir_speed.sh.

T. Ko, V. Peddinti, D. Povey, S. Khudanpur, "Audio augmentation for speech recognition", Interspeech 2015. No
audio is written: the tables `reco2speed` and `reco2volume` have the factors that are applied when a recording
is read (`pyasr.data.audio.recordings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.data.audio.recordings import speed as speed_of
from pyasr.data.audio.recordings import volume as volume_of
from pyasr.data.parts.subsets import FEATURE_TABLES, Renaming, joined, own_copy, read_all
from pyasr.data.tables.datadir import (
    DISTORTION,
    MAX_SPEED,
    MIN_SPEED,
    SPEED,
    VOLUME,
    DataDir,
    Tables,
    completed,
)
from pyasr.data.tables.rules import speed_complaint
from pyasr.io.lazy_tables import Lazy, mapped
from pyasr.io.text_tables import number_table

_OF_ONE_SPEED = ("utt2warp", "spk2warp")
_DURATIONS = ("utt2dur", "reco2dur")


@dataclass(frozen=True)
class Perturbation:
    """Speeds of the copies and range of the volumes."""

    speeds: str = option(
        "0.9 1.1", "speed factors of the copies to add, separated by blanks; empty: no copies"
    )
    perturb_volume: bool = option(False, "multiply each recording by a random volume factor")
    min_volume: float = option(0.125, "minimum volume factor", minimum=1e-3, only=if_set("perturb-volume"))
    max_volume: float = option(2.0, "maximum volume factor", minimum=1e-3, only=if_set("perturb-volume"))
    seed: int = option(0, "seed of the volume factors", only=if_set("perturb-volume"))

    def factors(self) -> list[str]:
        """The speeds, as written in the option. Raises UserError for an invalid speed, 1, or a duplicate."""
        found = self.speeds.split()
        for speed in found:
            if speed_complaint(speed) or float(speed) == 1 or found.count(speed) > 1:
                expected = f"a number from {MIN_SPEED:g} to {MAX_SPEED:g} other than 1, given once"
                raise UserError(f"--speeds '{self.speeds}': '{speed}' must be {expected}")
        return found

    def check_volumes(self) -> None:
        """Raise UserError if the minimum volume is above the maximum."""
        if self.perturb_volume and self.min_volume > self.max_volume:
            raise UserError(
                f"--min-volume {self.min_volume:g} is above --max-volume {self.max_volume:g}; exchange the "
                "two values"
            )

    def volume(self, recording: str) -> str:
        """The random volume factor of a recording."""
        return f"{generator(self.seed, 'volume', recording).uniform(self.min_volume, self.max_volume):.4f}"


def perturbed(data: DataDir, options: Perturbation) -> Tables:
    """The tables of `data` except feature tables, with a copy at each speed, and volumes.

    The names in a copy begin with, for example, `sp0.9-`; the copy of a speaker is another speaker.
    `utt2uniq` maps each utterance to the original one. Existing speeds and volumes of the data are
    multiplied. Raises UserError for invalid times, durations, speeds and volumes.
    """
    _check_times(DataDir(data.path))
    options.check_volumes()
    tables = {
        name: table
        for name, table in read_all(data).items()
        if name not in (*FEATURE_TABLES, *_OF_ONE_SPEED, "spk2utt")
    }
    tables["utt2uniq"] = completed("utt2uniq", tables.get("utt2uniq", {}), data.utterances)
    speeds = options.factors()
    if speeds and any(found.sources for found in data.reco2distortion.values()):
        raise UserError(
            f"{data.path}/{DISTORTION}: the data are noisy or reverberant copies; perturb speeds before "
            "adding noise and rooms"
        )
    if speeds:
        tables[SPEED] = completed(SPEED, data.reco2speed, tables.get("wav.scp", {}))
    tables = joined([tables, *(_at_speed(tables, speed) for speed in speeds)])
    if options.perturb_volume:
        before = completed(VOLUME, tables.get(VOLUME, {}), tables.get("wav.scp", {}))
        tables[VOLUME] = Lazy(
            lambda: ((name, _times(volume, options.volume(name))) for name, volume in before.items())
        )
    return tables


def _check_times(data: DataDir) -> None:
    """Raise UserError for an invalid line of segments, durations, speeds or volumes."""
    data.segments  # read for its checks
    for name in filter(data.has, _DURATIONS):
        number_table(data.path / name)
    for recording in data.reco2speed:
        speed_of(data, recording)
    for recording in data.reco2volume:
        volume_of(data, recording)


def _times(volume: str, factor: str) -> str:
    return factor if float(volume) == 1 else f"{float(volume) * float(factor):.6g}"


def _at_speed(tables: Tables, speed: str) -> Tables:
    """The tables of the copy at one speed."""
    prefix = f"sp{speed}-"
    copy = own_copy(tables, Renaming(utt_prefix=prefix, spk_prefix=prefix))
    changes = {
        "segments": lambda segment: _segment_at(segment, float(speed)),
        **dict.fromkeys(_DURATIONS, lambda value: f"{float(value) / float(speed):.4f}"),
        SPEED: lambda value: f"{float(value) * float(speed):g}",
    }
    return {
        name: mapped(table, value=changes[name]) if name in changes else table for name, table in copy.items()
    }


def _segment_at(segment: str, speed: float) -> str:
    """'RECORDING BEGIN END' with times at another speed; -1 still means the end of the recording."""
    recording, *times = segment.split()
    return " ".join(
        [recording, *(time if float(time) < 0 else f"{float(time) / speed:.4f}" for time in times)]
    )
