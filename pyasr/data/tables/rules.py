"""Rules for the tables of a data directory: the format of their lines, and the values in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pyasr.data.tables import distortion
from pyasr.data.tables.datadir import (
    AUDIO_CHANGES,
    DISTORTION,
    FILE_AND_CHANNEL,
    MAX_SPEED,
    MIN_SPEED,
    SPEED,
    VOLUME,
)
from pyasr.data.tables.fit_segments import MAX_OVERSHOOT_S


@dataclass(frozen=True)
class Rule:
    """The format of the lines of a table."""

    form: str  # expected form of a line
    columns: tuple[int, int | None]  # minimum and maximum number of words
    check: Callable[[str], str] | None = None  # complaint about the value of a line, or ''
    of: str = "utterance"  # meaning of the keys
    holds: Callable[[list[str]], bool] | None = None  # fast check: True if certainly all values are valid

    def are_valid(self, values: list[str]) -> bool:
        """Whether all values are valid; they are from lines with a valid number of columns."""
        return (
            self.check is None or bool(self.holds and self.holds(values)) or not any(map(self.check, values))
        )


def _segment_complaint(value: str) -> str:
    try:
        begin, end = map(float, value.split()[1:3])
    except ValueError:
        return "times are not numbers"
    if not math.isfinite(begin + end):
        return "times are not numbers"
    return "" if 0 <= begin < end or (end == -1 and begin >= 0) else "the end is not after the beginning"


def _are_segments(values: list[str]) -> bool:
    words = " ".join(values).split(" ")
    begins, ends = _numbers(words[1::3], float), _numbers(words[2::3], float)
    return bool((np.isfinite(begins + ends) & (begins >= 0) & ((begins < ends) | (ends == -1))).all())


def _are_positive(kind: type) -> Callable[[list[str]], bool]:
    return lambda values: bool(((found := _numbers(values, kind)) > 0).all() and (found < np.inf).all())


def _numbers(words: list[str], kind: type) -> np.ndarray:
    """float64 (number of words,); a single NaN if any word is not a number."""
    try:
        return np.fromiter(map(kind, words), np.float64, len(words))
    except (ValueError, OverflowError):
        return np.full(1, np.nan)


def _number_rule(form: str, noun: str, kind: type = float, of: str = "utterance") -> Rule:
    """The rule of a table of positive numbers."""
    return Rule(form, (2, 2), _number_complaint(kind, noun), of, _are_positive(kind))


def _number_complaint(kind: type, noun: str) -> Callable[[str], str]:
    def complaint(value: str) -> str:
        """'' for a positive number."""
        try:
            return "" if 0 < kind(value) < float("inf") else f"not a positive {noun}"
        except ValueError:
            return f"not a positive {noun}"

    return complaint


def speed_complaint(value: str) -> str:
    """What is wrong with a factor of `reco2speed`; '' if it is valid."""
    try:
        is_speed = MIN_SPEED <= float(value) <= MAX_SPEED
    except ValueError:
        is_speed = False
    return "" if is_speed else f"not a speed from {MIN_SPEED:g} to {MAX_SPEED:g}"


def _gender_complaint(value: str) -> str:
    return "" if value in ("m", "f") else "neither m nor f"


RULES = {
    "utt2spk": Rule("UTTERANCE SPEAKER", (2, 2)),
    "text": Rule("UTTERANCE WORD ...", (1, None)),  # no words if nothing is said
    "segments": Rule("UTTERANCE RECORDING BEGIN END", (4, 4), _segment_complaint, holds=_are_segments),
    "feats.scp": Rule("UTTERANCE FEATURES", (2, None)),
    "vad.scp": Rule("UTTERANCE VECTOR", (2, None)),
    "utt2dur": _number_rule("UTTERANCE SECONDS", "number of seconds"),
    "utt2num_frames": _number_rule("UTTERANCE NUM_FRAMES", "whole number", int),
    "utt2lang": Rule("UTTERANCE LANGUAGE", (2, 2)),
    "utt2uniq": Rule("UTTERANCE ORIGINAL", (2, 2)),
    "utt2warp": _number_rule("UTTERANCE WARP_FACTOR", "number"),
    "spk2utt": Rule("SPEAKER UTTERANCE ...", (2, None), of="speaker"),
    "cmvn.scp": Rule("SPEAKER STATISTICS", (2, None), of="speaker"),
    "spk2gender": Rule("SPEAKER m|f", (2, 2), _gender_complaint, of="speaker"),
    "spk2warp": _number_rule("SPEAKER WARP_FACTOR", "number", of="speaker"),
    "wav.scp": Rule("RECORDING AUDIO", (2, None), of="recording"),
    "reco2dur": _number_rule("RECORDING SECONDS", "number of seconds", of="recording"),
    SPEED: Rule("RECORDING FACTOR", (2, 2), speed_complaint, of="recording"),
    VOLUME: _number_rule("RECORDING FACTOR", "number", of="recording"),
    DISTORTION: Rule("RECORDING JSON", (2, None), distortion.complaint, of="recording"),
    FILE_AND_CHANNEL: Rule("RECORDING FILE CHANNEL", (3, 3), of="recording"),
}
# without file names
OF_WORDS = {"text", "spk2utt", *(name for name, rule in RULES.items() if rule.columns[1])}
MADE_BY_HAND = ("utt2lang", "spk2gender", FILE_AND_CHANNEL)  # their lines cannot be derived from other tables
# symbols of words.txt, as `pyasr.lang.lexicons.dict_dir.RESERVED_WORDS`
NO_WORDS = ("<eps>", "<s>", "</s>", "#0")


def by_hand(name: str, key: str, num_columns: int) -> str:
    """What the user has to do about an invalid line of the table `name` that cannot be created again; '' for
    a line to be removed."""
    if name == "segments" and num_columns == 5:
        return (
            f"make each channel a separate recording, list it in {FILE_AND_CHANNEL}, and remove the "
            "fifth column"
        )
    return "correct the line" if key and name in (*MADE_BY_HAND, *AUDIO_CHANGES) else ""


def recording_seconds(
    reco2dur: Mapping[str, str], reco2speed: Mapping[str, str], heard: Mapping[str, float]
) -> dict[str, float]:
    """{recording: seconds at its playback speed}, from the audio in `heard` if the speed is valid, otherwise
    from a valid line of reco2dur."""
    complaint = _number_complaint(float, "number of seconds")
    speeds = {name: reco2speed.get(name, "1") for name in heard}
    return {
        **{name: float(text) for name, text in reco2dur.items() if not complaint(text)},
        **{name: heard[name] / float(speed) for name, speed in speeds.items() if not speed_complaint(speed)},
    }


def overshoot_complaint(value: str, seconds: Mapping[str, float]) -> str:
    """What is wrong with the times of a valid line of segments, given {recording: seconds}; '' if nothing is,
    or the length is unknown."""
    if _segment_complaint(value) or (recording := value.split(None, 1)[0]) not in seconds:
        return ""
    (begin, end), most = map(float, value.split()[1:3]), seconds[recording]
    if begin >= most:
        return f"begins after the end of the recording, which has {most:g} s"
    return (
        f"ends {end - most:.2f} s after the end of the recording, which has {most:g} s"
        if end > most + MAX_OVERSHOOT_S
        else ""
    )
