"""Convert lhotse's manifests (recordings and supervisions, or cuts) to a Kaldi data directory.

A manifest contains JSON objects, one per line or in one array, plain or compressed. These fields are used:

    recording    id, sources [{type: file | command, channels, source}], duration
    supervision  id, recording_id, start, duration, channel, text, speaker, gender
    cut          id, start, duration, channel, recording, supervisions, type MonoCut | MultiCut

A supervision of a cut begins `start` seconds after the cut and is clipped to the end of the cut, as in
lhotse's `trim_to_supervisions`. A recording of several channels becomes one recording RECORDING_CHANNEL per
used channel, listed in `reco2file_and_channel`. A supervision becomes one utterance per channel. Recordings
without a supervision are skipped. Blanks in names become `_`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyasr.base.errors import UserError, printable
from pyasr.base.files.foreign_json import parse_text_object
from pyasr.data.tables.datadir import FILE_AND_CHANNEL, write_data_dir
from pyasr.intake.check_report import Report
from pyasr.intake.manifest_entries import Entries, ManifestUtterance, ManifestUtterances
from pyasr.io.content import ContentReader, iterate_lines, read_content
from pyasr.io.keys import KnownNames, distinct
from pyasr.io.lazy_tables import Lazy, having
from pyasr.io.mapped_files.packed_rows import GrowingRows
from pyasr.io.tables import Parsed, TableBuilder

_MAX_S = 1e9  # largest valid time in a manifest
_SLACK_S = 0.05  # tolerance for a supervision that ends after its recording, because times are rounded
_HEAD_BYTES = 100
_GENDERS = {"f": "f", "female": "f", "m": "m", "male": "m"}
_CUTS = ("MonoCut", "MultiCut", "Cut")  # the last is the former name of MonoCut
_WANTED = "give a manifest of lhotse's, .jsonl, .jsonl.gz or .json"
_CORRECT = "correct the entry, or write the manifest again with lhotse"
_RENAME = "rename one of them"
_REFUSED = {  # kind of cut: (problem, fix)
    "MixedCut": (
        "are mixed or padded (MixedCut)",
        "give the cuts from which they were mixed, or remove their lines with zgrep -v '\"MixedCut\"'; to "
        "add noise and rooms to the data directory, use utils/reverberate_data_dir.py",
    ),
    "PaddingCut": (
        "are padding without a recording (PaddingCut)",
        "remove their lines with zgrep -v '\"PaddingCut\"'",
    ),
    "transforms": (
        "have recordings that lhotse transforms when it reads them (transforms)",
        (
            "remove their lines with zgrep -v '\"transforms\"', and perturb the data directory with "
            "utils/perturb_data_dir.py"
        ),
    ),
    "features": (
        "have no recording",
        "create the cuts from manifests of recordings and supervisions, or give these manifests",
    ),
    "other": ("are not cuts", "give a manifest of cuts, or manifests of recordings and supervisions"),
}


@dataclass
class Manifests:
    """Utterances; recordings, each with the JSON of [entry of wav.scp, its file, its channel if there are
    several, else 0, seconds]; problems, each with its fix; notes on changed or skipped entries."""

    utterances: ManifestUtterances = field(default_factory=ManifestUtterances)
    recordings: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def audio(self) -> Mapping[str, str]:
        """{recording: entry of wav.scp}"""
        return Parsed(self.recordings, lambda known: json.loads(known)[0])

    @property
    def channels(self) -> Mapping[str, tuple[str, int]]:
        """{recording: (its file, its channel if there are several, else 0)}"""
        return Parsed(self.recordings, lambda known: tuple(json.loads(known)[1:3]))

    @property
    def seconds(self) -> Mapping[str, float]:
        """{recording: seconds}"""
        return Parsed(self.recordings, lambda known: json.loads(known)[3])


class _Flaw(UserError):
    """A problem of an entry, and its fix."""

    def __init__(self, where: object, what: str, fix: str = _CORRECT):
        super().__init__(f"{where}: {what}")
        self.where, self.what, self.fix = str(where), what, fix


def entries_in(path: Path) -> Iterator[dict]:
    """Iterate over the objects of a manifest: parsed cuts take many times the memory of their lines. Raises
    UserError with the number of an invalid line."""
    with ContentReader(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.lstrip()[:1] == b"[":
        content = read_content(path)
        entries = _parsed(b'{"entries": %b}' % content, content, f"{path}")["entries"]
        yield from (_object(entry, f"{path}: entry {number}") for number, entry in enumerate(entries, 1))
        return
    for number, line in enumerate(iterate_lines(path), 1):
        if line.strip() and (found := _parsed(line, line, f"{path}:{number}")):
            yield found


def _parsed(text: bytes, content: bytes, where: str) -> dict:
    """Parse the JSON object `text`. Raises UserError, beginning with `where` and quoting the start of
    `content`, if it is invalid."""
    try:
        return parse_text_object(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8 text; {_WANTED}") from None
    except UnicodeEncodeError:
        raise UserError(
            f"{where}: it contains half a character, such as \\ud83d; write the manifest again"
        ) from None
    except ValueError:
        raise UserError(
            f"{where}: '{content[:20].decode(errors='replace').rstrip()}' is not a JSON object; {_WANTED}"
        ) from None


def _object(entry: object, where: str) -> dict:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: '{str(entry)[:20]}' is not a JSON object; {_WANTED}")
    return entry


def read_manifests(recordings: Path, supervisions: Path, prefix_speakers: bool = True) -> Manifests:
    """Read a manifest of recordings and one of supervisions.

    prefix_speakers  name utterances SPEAKER-NAME, so that they sort in the order of speakers, as Kaldi's
                     programs require

    Raises UserError for a file that is not a manifest.
    """
    reader = _PairReader(Path(recordings), Path(supervisions), prefix_speakers)
    for number, entry in enumerate(entries_in(reader.recordings_path), 1):
        reader.attempt(reader.add_recording, entry, number)
    for number, entry in enumerate(entries_in(reader.path), 1):
        reader.attempt(reader.add, entry, number)
    return reader.result()


def read_cuts(cuts: Path, prefix_speakers: bool = True) -> Manifests:
    """Read a manifest of cuts, which contain their recordings and supervisions."""
    reader = _CutReader(Path(cuts), prefix_speakers)
    for number, entry in enumerate(entries_in(reader.path), 1):
        reader.attempt(reader.add, entry, number)
    return reader.result()


class _Reader:
    """Common part of both readers. `path`: the manifest of supervisions; `recordings_path`: the manifest of
    recordings."""

    fix_of_twins: str  # for two utterances of the same name
    fix_beyond: str  # for a supervision that ends after its recording

    def __init__(self, path: Path, recordings_path: Path, prefix_speakers: bool):
        self.path, self.recordings_path, self.prefix_speakers = path, recordings_path, prefix_speakers
        self.report, self.recordings = Report(), Entries()
        # channels in use, ids of their recordings
        self.audio, self.owners, self.of_channels = KnownNames(), GrowingRows(), TableBuilder()
        self.names = KnownNames()  # of utterances
        # {kind of name: names that are words}
        self.words: dict[str, KnownNames | set[str]] = {
            "id": KnownNames(),
            "speaker": set[str](),
            "recording": KnownNames(),
        }
        self.meant: dict[tuple[str, str], str] = {}  # {(kind of name, word): original name with blanks}
        self.found = Manifests(problems=self.report.problems)

    def attempt(self, read: Callable[..., None], *arguments) -> None:
        """Call `read`; a _Flaw that it raises becomes a problem."""
        try:
            read(*arguments)
        except _Flaw as flaw:
            where, what, fix = map(printable, (flaw.where, flaw.what, flaw.fix))
            self.report.add(where, what, fix)

    def result(self) -> Manifests:
        """The result, with a note on changed names."""
        if changed := sorted(self.meant.values()):
            self.found.notes.append(
                f"blanks of {len(changed)} name(s), such as '{changed[0]}', were replaced by _"
            )
        self.found.recordings = self.of_channels.table()
        return self.found

    def add_recording(self, entry: dict, number: int) -> None:
        """Add a recording. Raises _Flaw if another recording has the same id."""
        name = str(entry.get("id", f"of entry {number}"))
        if not self.recordings.add(name, entry):
            raise _Flaw(
                self.recordings_path, f"there are two recordings {name}", "give each recording a unique id"
            )

    def add_supervision(
        self, entry: dict, where: str, recording: str, channels: object, begin: float, end: float
    ) -> None:
        """Add the utterances of a supervision from `begin` to `end` in `recording`. Raises _Flaw if a field
        is missing."""
        channels = channels if isinstance(channels, list) else [channels]
        if not channels:
            raise _Flaw(where, "it has no channel", "add the channels in which it was spoken (channel)")
        for channel in channels:
            audio, seconds = self._recording(recording, channel)
            self._add_utterance(
                entry, where, audio, "" if len(channels) == 1 else f"-{channel}", begin, end, seconds
            )

    def _add_utterance(
        self, entry: dict, where: str, recording: str, suffix: str, begin: float, end: float, most: float
    ) -> None:
        """Add an utterance from `begin` to `end` in a recording of `most` seconds."""
        speaker = entry.get("speaker")
        speaker = self._word("speaker", recording if speaker in (None, "") else str(speaker), where)
        name = self._word("id", _value(entry, "id", str, where), where) + suffix
        if self.prefix_speakers and name != speaker and not name.startswith(f"{speaker}-"):
            name = f"{speaker}-{name}"
        if not self.names.add(name):
            raise _Flaw(where, f"there are two utterances {name}", self.fix_of_twins)
        if not (0 <= begin < min(end, most) and end <= most + _SLACK_S):
            is_beyond = 0 <= begin < end and begin != most
            message = f"it lasts from {begin:g} to {end:g} s in a recording of {most:g} s"
            raise _Flaw(where, message, self.fix_beyond if is_beyond else "correct its start and duration")
        gender = _GENDERS.get(str(entry.get("gender")).lower(), "")
        text = None if entry.get("text") is None else " ".join(_value(entry, "text", str, where).split())
        self.found.utterances.append(
            ManifestUtterance(name, recording, begin, min(end, most), speaker, text, gender)
        )

    def _recording(self, name: str, channel: object) -> tuple[str, float]:
        """(name of a channel of a recording, its seconds); adds its audio to the result."""
        entry, where = self.recordings[name], f"{self.recordings_path}: recording {name}"
        sources = _value(entry, "sources", list, where)
        channels = [_value(source, "channels", list, where) for source in sources]
        if strange := [
            channel for of_source in channels for channel in of_source if not isinstance(channel, int)
        ]:
            raise _Flaw(
                where,
                f"it has a channel {str(strange[0])[:20]}, not a number",
                "number the channels of its sources from 0",
            )
        source = next((source for source, of_source in zip(sources, channels) if channel in of_source), None)
        if source is None:
            raise _Flaw(
                where,
                f"it has no channel {str(channel)[:20]}",
                "correct its sources, or the channel of its supervisions",
            )
        if entry.get("transforms"):
            raise _Flaw(
                where,
                "lhotse transforms it when it reads it (transforms)",
                "give the manifest of the originals, and perturb the data directory with "
                "utils/perturb_data_dir.py",
            )
        word = self._word("recording", name, where)
        full_name = word + (f"_{channel}" if sum(map(len, channels)) > 1 else "")
        if is_new := self.audio.add(full_name):
            self.owners.append(name)
        elif (other := self._owner(full_name)) != name:
            raise _Flaw(
                where, f"its audio would be named {full_name}, like that of recording {other}", _RENAME
            )
        place = 1 + sorted(source["channels"]).index(channel) if len(source["channels"]) > 1 else 0
        audio, seconds = _audio(source, where), _seconds(entry, "duration", where)
        known = [audio, word if len(sources) == 1 else full_name, place, seconds]
        if is_new:
            self.of_channels.add(full_name, json.dumps(known, ensure_ascii=False))
        return full_name, seconds

    def _owner(self, full_name: str) -> str:
        """The recording of a channel in use."""
        number = self.audio.number(full_name)
        assert number is not None
        return self.owners[number]

    def _word(self, kind: str, name: str, where: str) -> str:
        """A name as one word, with `_` for blanks. Raises _Flaw for a name of blanks only, and if two names
        become equal."""
        word = "_".join(name.split())
        if not word:
            raise _Flaw(where, f"its {kind} is '{name}'", "give it a name")
        other = word if word != name and word in self.words[kind] else self.meant.get((kind, word), name)
        if other != name:
            raise _Flaw(self.path, f"{kind} '{name}' would become {word}, like '{other}'", _RENAME)
        if word == name:
            self.words[kind].add(word)
        else:
            self.meant[kind, word] = name
        return word


class _PairReader(_Reader):
    """Reads manifests of recordings and of supervisions."""

    fix_of_twins = "give each supervision a unique id"

    def __init__(self, recordings_path: Path, path: Path, prefix_speakers: bool):
        super().__init__(path, recordings_path, prefix_speakers)
        command = f"lhotse fix {shlex.quote(str(recordings_path))} {shlex.quote(str(path))} FIXED"
        self.fix_beyond = f"clip it with '{command}', and give the manifests in FIXED"
        self.fix_missing = (
            f"give the manifest that has it, or remove its supervisions with '{command}', "
            "and give the manifests in FIXED"
        )

    def add(self, entry: dict, number: int) -> None:
        """Add a supervision. Raises _Flaw if a field is missing."""
        where = f"{self.path}: supervision {entry.get('id', f'of entry {number}')}"
        recording = _value(entry, "recording_id", str, where)
        if recording not in self.recordings:
            raise _Flaw(
                where, f"there is no recording {recording} in {self.recordings_path}", self.fix_missing
            )
        begin = _seconds(entry, "start", where)
        self.add_supervision(
            entry,
            where,
            recording,
            entry.get("channel", 0),
            begin,
            begin + _seconds(entry, "duration", where),
        )


class _CutReader(_Reader):
    """Reads a manifest of cuts."""

    fix_of_twins = "give cuts that share no supervisions, not windows"
    fix_beyond = "create the cuts again from manifests repaired by 'lhotse fix'"

    def __init__(self, path: Path, prefix_speakers: bool):
        super().__init__(path, path, prefix_speakers)
        self.of_kind: dict[str, list[str]] = {}  # {kind: names of skipped or changed entries}

    def add(self, entry: dict, number: int) -> None:
        """Add the supervisions of a cut of a supported kind. Raises _Flaw if a field is missing."""
        name = str(entry.get("id", f"of entry {number}"))
        kind, where = _kind_of(entry), f"{self.path}: cut {name}"
        if kind:
            self.of_kind.setdefault(kind, []).append(name)
            return
        recording, begin = _value(entry, "recording", dict, where), _seconds(entry, "start", where)
        recording_name = _value(recording, "id", str, f"{where}: recording")
        self.add_recording(recording, number)
        end = begin + _seconds(entry, "duration", where)
        for supervision in _value(entry, "supervisions", list, where):
            self.attempt(
                self._add_of_cut, supervision, where, recording_name, entry.get("channel", 0), begin, end
            )

    def _add_of_cut(
        self, entry: dict, cut: str, recording: str, channel: object, cut_begin: float, cut_end: float
    ) -> None:
        """Add a supervision of a cut that lasts from `cut_begin` to `cut_end` in the recording."""
        name = _value(entry, "id", str, f"{cut}: supervision")
        where = f"{self.path}: supervision {name}"
        start, duration = _seconds(entry, "start", where), _seconds(entry, "duration", where)
        if start < -_SLACK_S:
            raise _Flaw(
                where,
                f"it begins {-start:g} s before its cut, so that the cut lacks a part of its text",
                "give cuts that contain their supervisions completely, not windows",
            )
        begin, end = max(cut_begin + start, cut_begin), cut_begin + start + duration
        if end > cut_end + _SLACK_S:
            self.of_kind.setdefault("clipped", []).append(name)
        self.add_supervision(entry, where, recording, entry.get("channel", channel), begin, min(end, cut_end))

    def result(self) -> Manifests:
        """The result; one problem for each kind of unsupported cuts comes first."""
        message = {kind: f"{len(names)}, such as {names[0]}," for kind, names in self.of_kind.items()}
        self.found.problems[:0] = [
            printable(f"{self.path}: of its cuts {message[kind]} {what}; fix: {fix}")
            for kind, (what, fix) in _REFUSED.items()
            if kind in message
        ]
        if "silent" in message:
            self.found.notes.append(f"of the cuts {message['silent']} have no supervision and are skipped")
        if "clipped" in message:
            self.found.notes.append(
                f"of the supervisions {message['clipped']} end after their cut and are clipped to it, as in "
                "lhotse"
            )
        return super().result()


def _kind_of(cut: dict) -> str:
    """Why an entry of a manifest of cuts is not used: a key of _REFUSED, or 'silent'; '' if it is used."""
    kind, recording = cut.get("type"), cut.get("recording")
    if kind not in _CUTS:
        return kind if kind in ("MixedCut", "PaddingCut") else "other"
    if recording is None:
        return "features"
    if isinstance(recording, dict) and recording.get("transforms"):
        return "transforms"
    return "" if cut.get("supervisions") else "silent"


def _audio(source: dict, where: str) -> str:
    """The entry of wav.scp for a source."""
    kind, place = source.get("type"), _value(source, "source", str, where)
    if kind not in ("file", "command"):
        raise _Flaw(
            where,
            f"its audio is of the type {kind}, not file or command",
            "save it in files with lhotse (save_audios)",
        )
    if kind == "file" and place.rstrip().endswith("|"):
        raise _Flaw(where, f"the file name {place[-20:]} would be read as a command", "rename it")
    return place if kind == "file" else f"{place} |"


def _value(entry: dict, name: str, kinds, where: str):
    found = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(found, kinds):
        raise _Flaw(where, f"its {name} is {str(found)[:20]}")
    return found


def _seconds(entry: dict, name: str, where: str) -> float:
    found = _value(entry, name, (int, float), where)
    if abs(found) > _MAX_S:
        raise _Flaw(where, f"its {name} is {str(found)[:20]}")
    return float(found)


def save_data_dir(found: Manifests, out: Path) -> None:
    """Write wav.scp, reco2dur, segments, utt2spk, spk2utt; text if there is any, spk2gender if it is known
    for all speakers, and reco2file_and_channel if recordings are channels of one file."""
    has_texts = any(one.text is not None for one in found.utterances)

    def table(value: Callable[[ManifestUtterance], object]) -> Lazy:
        return Lazy(
            lambda: (
                (one.name, value(one)) for one in found.utterances if one.text is not None or not has_texts
            )
        )

    segments = table(lambda one: f"{one.recording} {one.begin:.10g} {one.end:.10g}")
    utt2spk = table(lambda one: one.speaker)
    recordings = distinct(value.partition(" ")[0] for value in segments.values())[0].in_order()
    has_channels = any(place for name, (_, place) in found.channels.items() if name in recordings)
    channels = Lazy(
        lambda: (
            (name, f"{file} {place or 1}")
            for name, (file, place) in found.channels.items()
            if name in recordings
        )
    )
    seconds = Lazy(
        lambda: ((name, f"{one:.10g}") for name, one in found.seconds.items() if name in recordings)
    )
    genders = {one.speaker: one.gender for one in found.utterances if one.text is not None or not has_texts}
    tables: dict[str, Mapping[str, str]] = {
        "wav.scp": having(found.audio, recordings),
        FILE_AND_CHANNEL: channels if has_channels else {},
        "reco2dur": seconds,
        "segments": segments,
        "utt2spk": utt2spk,
        "text": table(lambda one: one.text) if has_texts else {},
        "spk2gender": genders if all(genders.values()) else {},
    }
    write_data_dir(out, {name: table for name, table in tables.items() if table})
