"""Data directories of two-sided telephone calls: one recording per side, segments, and the channel of each
recording.

wav.scp                 sw02001-A /discs/swb1_d1/data/sw02001.sph
reco2file_and_channel   sw02001-A sw02001 A
segments                sw02001-A_000098-001156 sw02001-A 0.98 11.56
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.files.table_paths import as_named

CHANNELS = ("A", "B")
_NUM_NAMED = 5


@dataclass(frozen=True)
class Utterance:
    """A segment of one side of a call; times in seconds; `text` is None if the words are unknown."""

    name: str
    call: str
    channel: str
    speaker: str
    begin_s: float
    end_s: float
    text: str | None

    @property
    def side(self) -> str:
        """The recording: `sw02001-A`."""
        return f"{self.call}-{self.channel}"


def hundredths(seconds: float) -> int:
    """Units of 10 ms, rounded, for the names of utterances."""
    return int(100 * seconds + 0.5)


def tables_of(
    utterances: list[Utterance], audio: dict[str, Path], genders: dict[str, str] | None = None
) -> dict[str, dict[str, object]]:
    """The tables of the data directory of these utterances; `audio` is {call: file}, `genders` {speaker: f or
    m}.

    Only recordings with utterances are listed. Utterances whose words are unknown have no line in `text`.
    """
    sides = {utterance.side: utterance for utterance in utterances}
    tables: dict[str, dict[str, object]] = {
        "wav.scp": {side: as_named(audio[one.call]) for side, one in sides.items()},
        "reco2file_and_channel": {side: f"{one.call} {one.channel}" for side, one in sides.items()},
        "segments": {u.name: f"{u.side} {u.begin_s:.2f} {u.end_s:.2f}" for u in utterances},
        "utt2spk": {u.name: u.speaker for u in utterances},
        "text": {u.name: u.text for u in utterances if u.text is not None},
    }
    if genders:
        speakers = {u.speaker for u in utterances}
        tables["spk2gender"] = {speaker: gender for speaker, gender in genders.items() if speaker in speakers}
    return tables


class SkippedItems:
    """Skipped items of a preparation: counts by reason, with the first names for each."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self._names: dict[str, list[str]] = {}

    def add(self, reason: str, name: str) -> None:
        """Count `name` as skipped for `reason`, a phrase such as `no audio of their call`."""
        self.counts[reason] += 1
        names = self._names.setdefault(reason, [])
        if len(names) < _NUM_NAMED and name not in names:
            names.append(name)

    def log(self, what: str) -> None:
        """Log a line for each reason: `14 utterances left out: no audio of their call: sw02289-A_... ...`."""
        for reason, count in self.counts.most_common():
            names = self._names[reason]
            log.warning(
                f"{count} {what} left out: {reason}: {' '.join(names)}{' ...' * (count > len(names))}"
            )
