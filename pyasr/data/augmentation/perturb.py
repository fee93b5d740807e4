"""Further copies of utterances at other speeds and volumes, with the names that Kaldi's perturb_data_dir_speed.sh gives them.

T. Ko, V. Peddinti, D. Povey, S. Khudanpur, "Audio augmentation for speech recognition", Interspeech 2015. No audio is written: the tables
`reco2speed` and `reco2volume` say what becomes of a recording when it is read (`pyasr.data.audio.recordings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.data.audio.recordings import speed as speed_of, volume as volume_of
from pyasr.data.parts.subsets import FEATURE_TABLES, Renaming, joined, own_copy, read_all
from pyasr.data.tables.datadir import DISTORTION, LEAST_SPEED, MOST_SPEED, SPEED, VOLUME, DataDir, Tables, completed
from pyasr.data.tables.rules import speed_complaint
from pyasr.io.lazy_tables import Lazy, mapped
from pyasr.io.text_tables import number_table

_OF_ONE_SPEED = ("utt2warp", "spk2warp")
_DURATIONS = ("utt2dur", "reco2dur")


@dataclass(frozen=True)
class Perturbation:
    """What is changed."""

    speeds: str = option("0.9 1.1", "speeds of the copies that are added to the data, separated by blanks")
    perturb_volume: bool = option(False, "give every recording a volume drawn at random")
    min_volume: float = option(0.125, "least factor of volumes", minimum=1e-3, only=if_set("perturb-volume"))
    max_volume: float = option(2.0, "greatest factor of volumes", minimum=1e-3, only=if_set("perturb-volume"))
    seed: int = option(0, "seed of volumes", only=if_set("perturb-volume"))

    def factors(self) -> list[str]:
        """The speeds as they are written. Raises UserError for one that is no speed, is 1, or stands there twice."""
        found = self.speeds.split()
        for speed in found:
            if speed_complaint(speed) or float(speed) == 1 or found.count(speed) > 1:
                wanted = f"a number from {LEAST_SPEED:g} to {MOST_SPEED:g} other than 1, given once"
                raise UserError(f"--speeds '{self.speeds}': '{speed}' should be {wanted}")
        return found

    def check_volumes(self) -> None:
        """Raise UserError for limits in the wrong order."""
        if self.perturb_volume and self.min_volume > self.max_volume:
            raise UserError(f"--min-volume {self.min_volume:g} is above --max-volume {self.max_volume:g}; give the least and the greatest")

    def volume(self, recording: str) -> str:
        """The factor drawn for a recording."""
        return f"{generator(self.seed, 'volume', recording).uniform(self.min_volume, self.max_volume):.4f}"


def perturbed(data: DataDir, options: Perturbation) -> Tables:
    """The tables of `data` without those of features, with a copy at each speed, and volumes.

    A copy's names begin with `sp0.9-`; speakers of another speed are other speakers. `utt2uniq` leads to the utterance as it was.
    Speeds and volumes that the data have already are multiplied. Raises UserError for times, durations, speeds and volumes that are none.
    """
    _check_times(data)
    options.check_volumes()
    tables = {name: table for name, table in read_all(data).items() if name not in (*FEATURE_TABLES, *_OF_ONE_SPEED, "spk2utt")}
    tables["utt2uniq"] = completed("utt2uniq", tables.get("utt2uniq", {}), data.utterances)
    speeds = options.factors()
    if speeds and any(found.sources for found in data.reco2distortion.values()):
        raise UserError(f"{data.path}/{DISTORTION}: noise and rooms are added to speech at its speed; perturb speeds before them")
    if speeds:
        tables[SPEED] = completed(SPEED, data.reco2speed, tables.get("wav.scp", {}))
    tables = joined([tables, *(_at_speed(tables, speed) for speed in speeds)])
    if options.perturb_volume:
        before = completed(VOLUME, tables.get(VOLUME, {}), tables.get("wav.scp", {}))
        tables[VOLUME] = Lazy(lambda: ((name, _times(volume, options.volume(name))) for name, volume in before.items()))
    return tables


def _check_times(data: DataDir) -> None:
    """Raise UserError for a line of segments, durations, speeds or volumes that is none."""
    data.segments
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
    changes = {"segments": lambda segment: _segment_at(segment, float(speed)),
               **dict.fromkeys(_DURATIONS, lambda value: f"{float(value) / float(speed):.4f}"),
               SPEED: lambda value: f"{float(value) * float(speed):g}"}
    return {name: mapped(table, value=changes[name]) if name in changes else table for name, table in copy.items()}


def _segment_at(segment: str, speed: float) -> str:
    """'RECORDING BEGIN END' with the times of another speed; -1 remains the end of the recording."""
    recording, *times = segment.split()
    return " ".join([recording, *(time if float(time) < 0 else f"{float(time) / speed:.4f}" for time in times)])
