"""The content of a user's corpus, from any kind of source: utterances with their original texts, and their
recordings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

PARTS = ("train", "dev", "test")
NUM_NAMED = 3  # examples in a sentence
_NAMES_OF_PARTS = {
    "train": "train training tr",
    "dev": "dev development valid validation val cv",
    "test": "test testing eval",
}


@dataclass(frozen=True)
class ReadingOptions:
    """How the sources of a corpus are read."""

    heading = "input"

    columns: str | None = option(
        None,
        "columns of a table, if the program does not recognise them: a list such as "
        "file,text,speaker with '-' for columns to ignore",
    )
    tiers: str | None = option(None, "tiers of TextGrid files that contain the words, separated by commas")
    speakers: str = option(
        "auto",
        "speakers; source: those of the source; folder: one per folder; prefix: the beginning of "
        "file names up to '-' or '_'; one: the same for all; each: one per recording; auto: the "
        "first of source, folder, prefix, each that gives speakers",
        choices=("auto", "source", "folder", "prefix", "one", "each"),
    )
    skip_bad: bool = option(
        False,
        "skip utterances whose audio is missing, damaged or too short for their times, instead of stopping",
    )


@dataclass(frozen=True)
class OwnRecording:
    """An audio file: its entry of wav.scp, length, sampling rate in Hz, channels; `side` is a value of
    reco2file_and_channel."""

    entry: str
    seconds: float
    rate: int
    channels: int = 1
    side: str = ""


@dataclass(frozen=True)
class OwnUtterance:
    """The words of a recording, or of its part from `begin_s` to `end_s`.

    speaker  None if the source has none
    part     'train', 'dev' or 'test' if the source has parts, otherwise ''
    """

    name: str
    recording: str
    text: str
    speaker: str | None = None
    begin_s: float | None = None
    end_s: float | None = None
    part: str = ""
    gender: str = ""


@dataclass
class Corpus:
    """Utterances, recordings by name, and what was left out or assumed. `kind` describes the source."""

    kind: str
    utterances: list[OwnUtterance] = field(default_factory=list)
    recordings: dict[str, OwnRecording] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def duration_s(self, utterance: OwnUtterance) -> float:
        """Seconds of an utterance."""
        if utterance.begin_s is None:
            return self.recordings[utterance.recording].seconds
        assert utterance.end_s is not None
        return utterance.end_s - utterance.begin_s

    @property
    def hours(self) -> float:
        """Hours of all utterances."""
        return sum(map(self.duration_s, self.utterances)) / 3600


class Faults:
    """Faults of a corpus, collected so that all of one kind are reported together."""

    def __init__(self, skip: bool):
        self.skip = skip
        self._names: dict[tuple[str, str], list[str]] = {}

    def add(self, what: str, fix: str, name: object) -> None:
        """Record a fault of `name`. `what` describes it, `fix` is the remedy; both parts of a sentence."""
        self._names.setdefault((what, fix), []).append(str(name))

    def settle(self, where: object) -> list[str]:
        """Notes on what is left out. Raises UserError with the first kind of fault, unless faults are to be
        skipped."""
        message = [(f"{where}: {what}: {named(names)}", fix) for (what, fix), names in self._names.items()]
        self._names.clear()
        if message and not self.skip:
            more = f" (and {len(message) - 1} other kind(s) of faults)" if message[1:] else ""
            raise UserError(f"{message[0][0]}{more}; {message[0][1]}, or skip them with --skip-bad true")
        return [f"left out: {sentence}" for sentence, _ in message]


def named(names: list) -> str:
    """A count and the first few: '12, such as a.wav, b.wav'."""
    shown = ", ".join(map(str, names[:NUM_NAMED]))
    return f"{len(names)}, such as {shown}" if names[NUM_NAMED:] else f"{len(names)}, {shown}"


def part_of(name: str) -> str:
    """The part of a corpus in a table, manifest or directory, by its name: `dev` for valid.tsv and
    cuts_dev.jsonl.gz; else ''."""
    words = set("".join(c if c.isalpha() else " " for c in Path(name).name.lower()).split())
    found = [part for part, names in _NAMES_OF_PARTS.items() if words & set(names.split())]
    return found[0] if len(found) == 1 else ""
