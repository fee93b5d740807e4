"""Reverberant and noisy copies of utterances, as Kaldi's reverberate_data_dir.py and augment_data_dir.py
create them.

T. Ko, V. Peddinti, D. Povey, M. Seltzer, S. Khudanpur, "A study on data augmentation of reverberant speech
for robust speech recognition", ICASSP 2017; D. Snyder et al., "X-vectors: robust DNN embeddings for speaker
recognition", ICASSP 2018 (noises, babble and their SNRs). No audio is written: the table `reco2distortion`
describes the changes that are applied when a recording is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.option_uses import if_set, unless_set
from pyasr.base.cli.options import option
from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.data.audio.channels import label_of
from pyasr.data.audio.mixing import source_duration_s
from pyasr.data.audio.recordings import duration_s, speed
from pyasr.data.augmentation.sound_lists import BACKGROUND, FOREGROUND, Sound, SoundList
from pyasr.data.parts.subsets import FEATURE_TABLES, Renaming, joined, own_copy, read_all
from pyasr.data.tables import distortion
from pyasr.data.tables.datadir import DISTORTION, TO_THE_END, DataDir, Segment, Tables, completed
from pyasr.data.tables.distortion import Distortion, Noise
from pyasr.io.keys import Groups
from pyasr.io.lazy_tables import Lazy, at_hand, mapped

_MIN_NOISE_S = 0.01  # a list of empty noises would never fill a recording


@dataclass(frozen=True)
class AugmentOptions:
    """Rooms, noises and names of the copies."""

    heading = "noise"

    rir_list: Path | None = option(
        None,
        "list of room impulse responses, as written by utils/simulate_rirs.py or Kaldi",
        heading="reverberation",
    )
    speech_rvb_probability: float = option(
        1.0,
        "probability that a recording is reverberated",
        minimum=0.0,
        maximum=1.0,
        only=if_set("rir-list"),
        heading="reverberation",
    )
    fg_noise: Path | None = option(
        None, "list or data directory of foreground noises, added one after the other"
    )
    fg_snrs: str = option(
        "20:15:10:5:0",
        "signal-to-noise ratios in dB, of which one is drawn for each foreground noise",
        only=if_set("fg-noise"),
    )
    fg_interval: float = option(
        0.0,
        "seconds between the end of a foreground noise and the next",
        minimum=0.0,
        only=if_set("fg-noise"),
    )
    bg_noise: Path | None = option(
        None, "list or data directory of background noises, added to the whole recording"
    )
    bg_snrs: str = option(
        "20:15:10:5:0",
        "signal-to-noise ratios in dB, of which one is drawn for each background noise",
        only=if_set("bg-noise"),
    )
    num_bg_noises: str = option(
        "1",
        "numbers of simultaneous background noises, of which one is drawn for each recording",
        only=if_set("bg-noise"),
    )
    num_babble: str = option(
        "", "numbers of other speakers to mix in, such as 3:4:5:6:7, of which one is drawn; empty: no babble"
    )
    babble_snrs: str = option(
        "20:17:15:13",
        "signal-to-noise ratios in dB, of which one is drawn for each babble speaker",
        only=if_set("num-babble"),
    )
    num_replications: int = option(1, "number of copies of each utterance", minimum=1, heading="copies")
    include_original_data: bool = option(False, "include the original utterances, too", heading="copies")
    prefix: str = option(
        "rev",
        "prefix of the names of utterances and speakers; the number of the copy and a hyphen follow it",
        only=unless_set("utt-suffix"),
        heading="copies",
    )
    utt_suffix: str = option(
        "",
        "suffix of the names of utterances, after a hyphen, instead of a prefix; speakers are not renamed",
        heading="copies",
    )
    augment_seed: int = option(0, "seed of all random choices", heading="copies")

    def renaming(self, copy: int) -> Renaming:
        """Names in copy number `copy`, from 1."""
        if self.utt_suffix:
            return Renaming(utt_suffix=f"-{self.utt_suffix}{copy if self.num_replications > 1 else ''}")
        prefix = f"{self.prefix}{copy}-"
        return Renaming(utt_prefix=prefix, spk_prefix=prefix)


def augmented(data: DataDir, options: AugmentOptions) -> Tables:
    """The tables of the copies, without feature tables. `utt2uniq` maps each copy to the original utterance.

    Raises UserError if no change is requested, for unusable lists, and for data without audio or with
    distortions already.
    """
    if any(found.sources for found in data.reco2distortion.values()):
        raise UserError(
            f"{data.path}/{DISTORTION}: these utterances are already noisy or reverberant copies; give the "
            "original data"
        )
    tables = {
        name: table for name, table in read_all(data).items() if name not in (*FEATURE_TABLES, "spk2utt")
    }
    if "wav.scp" not in tables:
        raise UserError(f"{data.path}/wav.scp: missing; give a data directory with audio")
    with_audio = at_hand(tables["wav.scp"])
    if silent := min(
        (name for name in map(data.recording, data.utterances) if name not in with_audio), default=""
    ):
        raise UserError(f"{data.path}/wav.scp: no line for {silent}; run utils/fix_data_dir.py {data.path}")
    tables["utt2uniq"] = completed("utt2uniq", tables.get("utt2uniq", {}), data.utterances)
    tables[DISTORTION] = mapped(tables["wav.scp"], value=lambda entry: distortion.NONE)
    drawing = _Drawing(data, options)
    copies = [
        _copy(tables, options.renaming(copy), partial(drawing.distortion, copy=copy))
        for copy in range(1, options.num_replications + 1)
    ]
    return joined(copies + [tables] * options.include_original_data)


def _copy(tables: Tables, renaming: Renaming, draw: Callable[[str], Distortion]) -> Tables:
    return own_copy(
        tables | {DISTORTION: Lazy(lambda: ((name, str(draw(name))) for name in tables[DISTORTION]))},
        renaming,
    )


class _Drawing:
    """Draws a distortion for each recording, by a generator seeded with the seed, the recording and the
    number of the copy."""

    def __init__(self, data: DataDir, options: AugmentOptions):
        self.data, self.options = data, options
        self.rirs = SoundList(options.rir_list) if options.rir_list else None
        self.foreground = SoundList(options.fg_noise, FOREGROUND) if options.fg_noise else None
        self.background = SoundList(options.bg_noise, BACKGROUND) if options.bg_noise else None
        self.babble = Babble(data) if options.num_babble else None
        if not (self.rirs or self.foreground or self.background or self.babble):
            raise UserError("nothing to add: give --rir-list, --fg-noise, --bg-noise or --num-babble")
        for sounds in filter(None, (self.rirs, self.foreground, self.background)):
            sounds.check_files()
        self.fg_snrs, self.bg_snrs, self.babble_snrs = (
            _numbers(options, name) for name in ("fg_snrs", "bg_snrs", "babble_snrs")
        )
        self.num_background = _counts(options, "num_bg_noises")
        self.num_babble = _counts(options, "num_babble") if options.num_babble else []
        if self.babble and max(self.num_babble) > self.babble.num_others:
            found = (
                f"--num-babble {options.num_babble}: {data.path} has {self.babble.num_others} other speakers"
            )
            log.warning(f"{found}; if a larger number is drawn, all of them are mixed in")

    def distortion(self, recording: str, copy: int) -> Distortion:
        """The distortion of a recording in copy number `copy`, from 1."""
        rng = generator(self.options.augment_seed, "distortion", recording, copy)
        rir = None
        if self.rirs and rng.random() < self.options.speech_rvb_probability:
            rir = self.rirs.draw(rng)
        noises = (
            self._background_noises(rng)
            + self._babble_noises(recording, rng)
            + self._foreground_noises(recording, rir, rng)
        )
        return Distortion(rir.audio if rir else None, tuple(noises))

    def _background_noises(self, rng: np.random.Generator) -> list[Noise]:
        if self.background is None:
            return []
        sounds = (self.background.draw(rng) for _ in range(rng.choice(self.num_background)))
        return [
            Noise(
                sound.audio,
                float(rng.choice(self.bg_snrs)),
                start=_rounded(rng.random()),
                channel=sound.channel,
            )
            for sound in sounds
        ]

    def _babble_noises(self, recording: str, rng: np.random.Generator) -> list[Noise]:
        if self.babble is None:
            return []
        return [
            Noise(
                audio,
                float(rng.choice(self.babble_snrs)),
                None,
                _rounded(rng.random()),
                begin_s,
                end_s,
                channel=channel,
            )
            for audio, begin_s, end_s, channel in self.babble.draw(
                recording, rng.choice(self.num_babble), rng
            )
        ]

    def _foreground_noises(self, recording: str, rir: Sound | None, rng: np.random.Generator) -> list[Noise]:
        """Noises one after the other over the whole recording, each from its own position in the room."""
        if self.foreground is None:
            return []
        noises, at_s, end_s = [], rng.random() * self.options.fg_interval, duration_s(self.data, recording)
        while at_s < end_s:
            sound = self.foreground.draw(rng)
            place = self.rirs.draw_in_room(rir, rng) if self.rirs and rir else None
            snr_db, rir_there = float(rng.choice(self.fg_snrs)), place.audio if place else None
            noises.append(Noise(sound.audio, snr_db, _rounded(at_s), rir=rir_there, channel=sound.channel))
            at_s += max(source_duration_s(sound.audio), _MIN_NOISE_S) + self.options.fg_interval
        return noises


class Babble:
    """Utterances of other speakers as recorded: copies of utterances in the same data, and utterances at
    other speeds, are skipped."""

    def __init__(self, data: DataDir):
        self.data = data
        self._original = data.optional_table("utt2uniq")
        whole = data.utterances.take(np.flatnonzero(np.fromiter(map(self._is_whole, data.utterances), bool)))
        self._of_speaker = Groups(whole, map(data.utt2spk.__getitem__, whole))
        if len(self._of_speaker) < 2:
            raise UserError(
                f"{data.path}: babble requires two or more speakers with utterances at original speed; omit "
                "--num-babble"
            )

    def _is_whole(self, utt: str) -> bool:
        """Whether an utterance has its original speed and is not a copy of another utterance of the data."""
        original = self._original.get(utt, utt)
        is_copy = original != utt and original in self.data.utt2spk
        return not is_copy and speed(self.data, self.data.recording(utt)) == 1

    @property
    def num_others(self) -> int:
        """Number of other speakers available for the recordings of one speaker."""
        return len(self._of_speaker) - 1

    @cached_property
    def _utterances(self) -> Groups:
        """{recording: utterances in it}"""
        return Groups(self.data.utterances, map(self.data.recording, self.data.utterances))

    def draw(
        self, recording: str, num: int, rng: np.random.Generator
    ) -> list[tuple[str, float, float | None, str]]:
        """(audio, begin, end in seconds, channel) of one utterance of each of `num` speakers who do not speak
        in the recording, or of all such speakers if there are fewer."""
        known = self._of_speaker.names
        own = sorted(
            line for speaker in self._speakers_in(recording) if (line := known.line_of(speaker)) is not None
        )
        num_others = len(known) - len(own)
        chosen = [
            self._of_speaker.group(_skipping(i, own))
            for i in rng.choice(num_others, min(num, num_others), replace=False)
        ]
        return [self._place(utterances[rng.integers(len(utterances))]) for utterances in chosen]

    def _speakers_in(self, recording: str) -> set[str]:
        """The speakers of a recording."""
        utt2spk = self.data.utt2spk
        return {
            utt2spk.get(self._original.get(utt, utt), utt2spk[utt])
            for utt in self._utterances.get(recording, ())
        }

    def _place(self, utt: str) -> tuple[str, float, float | None, str]:
        segment = self.data.segments.get(utt, Segment("", 0.0, TO_THE_END))
        recording = self.data.recording(utt)
        end_s = None if segment.end_s == TO_THE_END else segment.end_s
        return self.data.wav_scp[recording], segment.begin_s, end_s, label_of(self.data, recording)


def _skipping(number: int, taken: list[int]) -> int:
    """Element `number` of the sequence 0, 1, ... without the elements of the ascending list `taken`."""
    for index in taken:
        number += number >= index
    return number


def _rounded(value: float) -> float:
    return round(float(value), 4)


def _numbers(options: AugmentOptions, name: str) -> list[float]:
    """The numbers of an option such as '20:15:10'. Raises UserError for numbers outside of -100 to 100."""
    return _parsed(
        options, name, float, -100, "numbers from -100 to 100, separated by colons, such as 20:15:10"
    )


def _counts(options: AugmentOptions, name: str) -> list[int]:
    """The numbers of an option such as '3:4:5'. Raises UserError for numbers outside of 1 to 100."""
    return _parsed(options, name, int, 1, "whole numbers from 1 to 100, separated by colons, such as 3:4:5")


def _parsed(options: AugmentOptions, name: str, kind: type, least: int, expected: str) -> list:
    text = getattr(options, name)
    try:
        found = [kind(word) for word in text.split(":")]
    except ValueError:
        found = [np.inf]
    if not all(least <= number <= 100 for number in found):
        raise UserError(f"--{name.replace('_', '-')} '{text}': expected {expected}")
    return found
