"""Lhotse's manifests of recordings and supervisions as a Kaldi data directory.

A manifest is a file of JSON objects, one a line, plain or gzipped. Of those, these entries are taken:

    recording    id, sources [{type: file | command, channels, source}], duration
    supervision  id, recording_id, start, duration, channel, text, speaker, gender

Recordings of several channels become one for each channel in use, RECORDING_CHANNEL, by a pipe through sox. Every supervision becomes an
utterance for each of its channels. Recordings without a supervision are left out.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.foreign_json import parse_text_object
from pyasr.data.datadir import write_data_dir
from pyasr.intake.report import Report
from pyasr.io.content import read_content

_MOST_S = 1e9  # that a manifest's times may be
_SLACK_S = 0.05  # by which a supervision may end after its recording: times are rounded
_GENDERS = {"f": "f", "female": "f", "m": "m", "male": "m"}


@dataclass(frozen=True)
class Utterance:
    """A supervision in one channel of its recording; times in seconds."""

    name: str
    recording: str
    begin: float
    end: float
    speaker: str
    text: str
    gender: str


@dataclass
class Manifests:
    """Utterances, {recording: entry of wav.scp}, {recording: seconds}, and what is wrong, each problem with its fix."""

    utterances: list[Utterance]
    audio: dict[str, str]
    seconds: dict[str, float]
    problems: list[str]


def read_manifest(path: Path) -> list[dict]:
    """The objects of a manifest. Raises UserError with the line that is none."""
    path, objects = Path(path), []
    try:
        lines = read_content(path).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; give a manifest of lhotse's, .jsonl or .jsonl.gz") from None
    for number, line in enumerate(lines, 1):
        try:
            found = parse_text_object(line) if line.strip() else {}
        except UnicodeEncodeError:
            raise UserError(f"{path}:{number}: there is half a character in it, such as \\ud83d; write the manifest anew") from None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{path}:{number}: '{line[:20]}' is no JSON object; give a manifest of lhotse's, .jsonl or .jsonl.gz")
        objects += [found] if found else []
    return objects


def read_manifests(recordings: Path, supervisions: Path, prefix_speakers: bool = True) -> Manifests:
    """What two manifests tell.

    prefix_speakers  utterances are SPEAKER-NAME, so that they sort as speakers do, which Kaldi's programs need

    Raises UserError for a file that is no manifest.
    """
    reader = _Reader(Path(recordings), Path(supervisions), prefix_speakers)
    for number, entry in enumerate(read_manifest(reader.recordings_path), 1):
        reader.report.attempt("give each recording an id of its own", reader.add_recording, entry, number)
    for number, entry in enumerate(read_manifest(reader.supervisions_path), 1):
        reader.report.attempt("give manifests that lhotse has written", reader.add, entry, number)
    return reader.found


class _Reader:
    def __init__(self, recordings_path: Path, supervisions_path: Path, prefix_speakers: bool):
        self.recordings_path, self.supervisions_path, self.prefix_speakers = recordings_path, supervisions_path, prefix_speakers
        self.report, self.recordings, self.names, self.owners = Report(), {}, set(), {}
        self.found = Manifests([], {}, {}, self.report.problems)

    def add_recording(self, entry: dict, number: int) -> None:
        """Raises UserError for another recording of the same id."""
        name = str(entry.get("id", f"of entry {number}"))
        if self.recordings.setdefault(name, entry) != entry:
            raise UserError(f"{self.recordings_path}: there are two recordings {name}")

    def add(self, entry: dict, number: int) -> None:
        """The utterances of a supervision. Raises UserError where it lacks something."""
        where = f"{self.supervisions_path}: supervision {entry.get('id', f'of entry {number}')}"
        recording = _value(entry, "recording_id", str, where)
        if recording not in self.recordings:
            raise UserError(f"{where}: there is no recording {recording} in {self.recordings_path}")
        channels = entry.get("channel", 0)
        channels = channels if isinstance(channels, list) else [channels]
        if not channels:
            raise UserError(f"{where}: it has no channel")
        for channel in channels:
            audio = self._recording(recording, channel)
            self._utterance(entry, where, audio, "" if len(channels) == 1 else f"-{channel}")

    def _utterance(self, entry: dict, where: str, recording: str, suffix: str) -> None:
        speaker = entry.get("speaker")
        speaker = _word(recording if speaker in (None, "") else str(speaker), f"{where}: speaker")
        name = _word(_value(entry, "id", str, where), f"{where}: id") + suffix
        if self.prefix_speakers and name != speaker and not name.startswith(f"{speaker}-"):
            name = f"{speaker}-{name}"
        if name in self.names:
            raise UserError(f"{where}: there are two utterances {name}")
        self.names.add(name)
        begin, most = _seconds(entry, "start", where), self.found.seconds[recording]
        end = begin + _seconds(entry, "duration", where)
        if not (0 <= begin < min(end, most) and end <= most + _SLACK_S):
            raise UserError(f"{where}: it lasts from {begin:g} to {end:g} s in a recording of {most:g} s")
        gender = _GENDERS.get(str(entry.get("gender")).lower(), "")
        text = " ".join(_value(entry, "text", str, where).split()) if entry.get("text") else ""
        self.found.utterances.append(Utterance(name, recording, begin, min(end, most), speaker, text, gender))

    def _recording(self, name: str, channel: int) -> str:
        """The name of a channel of a recording, which is put down among the audio."""
        entry, where = self.recordings[name], f"{self.recordings_path}: recording {name}"
        sources = _value(entry, "sources", list, where)
        channels = [_value(source, "channels", list, where) for source in sources]
        if strange := [channel for of_source in channels for channel in of_source if not isinstance(channel, int)]:
            raise UserError(f"{where}: it has a channel {str(strange[0])[:20]}, which is no number")
        source = next((source for source, of_source in zip(sources, channels) if channel in of_source), None)
        if source is None:
            raise UserError(f"{where}: it has no channel {channel}")
        if entry.get("transforms"):
            raise UserError(f"{where}: lhotse would change it when it reads it (transforms); give the manifest of the originals, "
                            "and perturb the data directory with utils/perturb_data_dir.py")
        full_name = _word(name, f"{where}: id") + (f"_{channel}" if sum(map(len, channels)) > 1 else "")
        if (other := self.owners.setdefault(full_name, name)) != name:
            raise UserError(f"{where}: its audio would be named {full_name}, as that of recording {other} is; rename one of them")
        self.found.audio[full_name] = _audio(source, channel, where)
        self.found.seconds[full_name] = _seconds(entry, "duration", where)
        return full_name


def _audio(source: dict, channel: int, where: str) -> str:
    """The entry of wav.scp for a channel of a source."""
    kind, place = source.get("type"), _value(source, "source", str, where)
    if kind not in ("file", "command"):
        raise UserError(f"{where}: its audio is of the type {kind}, not file or command; store it in files with lhotse")
    if kind == "file" and place.rstrip().endswith("|"):
        raise UserError(f"{where}: a file of the name {place[-20:]} would be taken for a command; rename it")
    if len(source["channels"]) == 1:
        return place if kind == "file" else f"{place} |"
    mixer = f"remix {1 + sorted(source['channels']).index(channel)}"
    return f"sox {shlex.quote(place)} -t wav - {mixer} |" if kind == "file" else f"{place} | sox -t wav - -t wav - {mixer} |"


def _value(entry: dict, name: str, kinds, where: str):
    found = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(found, kinds):
        raise UserError(f"{where}: its {name} is {str(found)[:20]}")
    return found


def _seconds(entry: dict, name: str, where: str) -> float:
    found = _value(entry, name, (int, float), where)
    if abs(found) > _MOST_S:
        raise UserError(f"{where}: its {name} is {str(found)[:20]}")
    return float(found)


def _word(text: str, where: str) -> str:
    if not text or text.split() != [text]:
        raise UserError(f"{where} '{text}' is not one word")
    return text


def save_data_dir(found: Manifests, out: Path) -> None:
    """wav.scp, reco2dur, segments, utt2spk, spk2utt, text where there is any, spk2gender where all speakers' are known."""
    texts = {one.name: one.text for one in found.utterances if one.text}
    taken = [one for one in found.utterances if one.text or not texts]
    recordings = {one.recording for one in taken}
    genders = {one.speaker: one.gender for one in taken}
    tables = {
        "wav.scp": {name: audio for name, audio in found.audio.items() if name in recordings},
        "reco2dur": {name: f"{seconds:.10g}" for name, seconds in found.seconds.items() if name in recordings},
        "segments": {one.name: f"{one.recording} {one.begin:.10g} {one.end:.10g}" for one in taken},
        "utt2spk": {one.name: one.speaker for one in taken},
        "text": texts,
        "spk2gender": genders if all(genders.values()) else {},
    }
    write_data_dir(out, {name: table for name, table in tables.items() if table})
