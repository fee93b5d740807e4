"""Validation of a data directory: every problem with file, line, the offending text and a command that
repairs it.

    for problem in validate("data/train"):
        print(problem)

The rules are those on which Kaldi's programs rely: tables sorted in C order without duplicates, equal sets of
utterances, spk2utt the inverse of utt2spk, the same order of utterances and speakers, existing audio,
segments within their recordings.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import printable
from pyasr.base.files.table_paths import placed, root_of
from pyasr.base.utf8 import without_mark
from pyasr.data.audio.audio_checks import Look, inspect_audio
from pyasr.data.audio.channels import labels_of
from pyasr.data.checks.soundness import Soundness
from pyasr.data.tables.datadir import FILE_AND_CHANNEL, FIX, SPEED, DataDir
from pyasr.data.tables.rules import (
    MADE_BY_HAND,
    NO_WORDS,
    OF_WORDS,
    RULES,
    Rule,
    by_hand,
    overshoot_complaint,
    recording_seconds,
)
from pyasr.io.ark import archive_of
from pyasr.io.content import packing_of, read_file, unpack
from pyasr.io.tables import Lines
from pyasr.io.text_tables import read_lines, read_table


@dataclass(frozen=True)
class Problem:
    """A problem of a table. `line` is 1-based; 0 means the whole file."""

    path: Path
    line: int
    text: str
    message: str
    fix: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        said = f" '{self.text}':" if self.text else ""
        return printable(f"{where}:{said} {self.message}; fix: {self.fix}")


_AT_ONCE = 2  # maximum number of tables in memory
_OTHER_BLANK = re.compile(r"[^\S \t\n]")
_COLUMN_WORDS = {1: "one column", 2: "two columns", 3: "three columns", 4: "four columns", 5: "five columns"}
_EMPTY = {"wav.scp": "no audio named", "spk2utt": "speaker without utterances"}


def _key(line: str) -> str:
    return (line.split(None, 1) or [""])[0]


def _value(line: str) -> str:
    words = line.split(None, 1)
    return words[1].rstrip() if len(words) > 1 else ""


class TableLines:
    """The lines of a table, valid or not: `keys[i]` and `values[i]` belong to line i + 1; lines that are not
    UTF-8 are read as Latin-1.

    packing            compression of the file, which is unpacked when read; '' if it is not compressed
    has_mark           whether the file begins with a byte order mark, which is removed from the first key
    with_returns       numbers of the lines that end in a carriage return, which is removed in `lines`
    with_other_blanks  numbers of the lines with blanks other than spaces and tabs
    """

    def __init__(self, path: Path):
        self.path = path
        self.not_utf8: list[int] = []
        content = read_file(path)
        self.packing = packing_of(content, path)
        unpacked = unpack(content, path)
        content = without_mark(unpacked, path)
        self.has_mark = len(content) < len(unpacked)
        self.with_returns: list[int] = []
        self.lines = Lines(
            content if self._is_utf8(content) and b"\r" not in content else self._repaired(content)
        )
        odd = not content.isascii() or any(blank in content for blank in b"\r\x0b\x0c\x1c\x1d\x1e\x1f")
        self.with_other_blanks = (
            [i for i, line in enumerate(self.lines, 1) if _OTHER_BLANK.search(line)] if odd else []
        )
        self.keys, self.values = self.lines.parts(_key), self.lines.parts(_value)

    @cached_property
    def line_of(self) -> dict[str, int]:
        """{key: number of its first line}, in reverse order of the lines."""
        keys = list(self.keys)
        return dict(zip(reversed(keys), range(len(keys), 0, -1)))

    @staticmethod
    def _is_utf8(content: bytes) -> bool:
        try:
            return content.isascii() or bool(content.decode())
        except UnicodeDecodeError:
            return False

    def _repaired(self, content: bytes) -> bytes:
        """The text in UTF-8, without carriage returns at the ends of lines."""
        lines = self._decode(content)
        if not lines[-1]:
            lines.pop()
        self.with_returns = [i for i, line in enumerate(lines, 1) if line.endswith("\r")]
        return "".join(line.rstrip("\r") + "\n" for line in lines).encode()

    def _decode(self, content: bytes) -> list[str]:
        try:
            return content.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return [self._decode_line(line, number) for number, line in enumerate(content.split(b"\n"), 1)]

    def _decode_line(self, line: bytes, number: int) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            self.not_utf8.append(number)
            return line.decode("latin-1")


def validate(
    path: Path,
    *,
    need_text: bool = True,
    need_feats: bool = False,
    audio: str = "exists",
    lang: Path | None = None,
) -> list[Problem]:
    """All problems of a data directory; empty if it is valid.

    need_text, need_feats   whether `text`, `feats.scp` are required
    audio                   check of the audio (`pyasr.data.audio.audio_checks`): 'no'; 'exists': files exist
                            and have the size that their headers give; 'read': files can be read to their end
    lang                    language directory; every transcript must contain at least one of its words
    """
    collects_garbage = gc.isenabled()
    # with millions of lines, the collector would traverse objects without cycles again and again
    gc.disable()
    try:
        found = list(_Validator(Path(path), need_text, need_feats, audio).problems())
        return found + (
            list(_oov_only(Path(path) / "text", Path(lang)))
            if lang and (Path(path) / "text").exists()
            else []
        )
    finally:
        if collects_garbage:
            gc.enable()


class _Tables(Mapping[str, TableLines]):
    """The tables of a directory that have rules. Only the most recently used ones are in memory."""

    def __init__(self, path: Path):
        self._path, self._names = path, [name for name in RULES if (path / name).exists()]
        self._last: dict[str, TableLines] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> TableLines:
        if name not in self._last:
            if len(self._last) == _AT_ONCE:
                del self._last[next(iter(self._last))]
            self._last[name] = TableLines(self._path / name)
        return self._last[name]


class _Validator:
    def __init__(self, path: Path, need_text: bool, need_feats: bool, audio: str):
        DataDir(path)
        self.path, self.audio = path, audio
        self.need = ["utt2spk", "spk2utt"] + ["text"] * need_text + ["feats.scp"] * need_feats
        self.fix = f"{FIX} {path}"
        self.tables = _Tables(path)
        self.heard: dict[str, float] = {}  # {recording: seconds} of audio that was read

    def problems(self) -> Iterator[Problem]:
        """All problems: missing files, then tables one by one, then contradictions between tables, then files
        named by tables."""
        yield from self._missing_files()
        if not self._sound.of_tables:
            yield from self._table_problems()
        if self.audio != "no" and "wav.scp" in self.tables:
            yield from self._audio(self.tables["wav.scp"])
        if "segments" in self.tables:
            yield from self._segment_ends(self.tables["segments"])
        if "feats.scp" in self.tables and not self._sound.of_archives:
            yield from self._archives(self.tables["feats.scp"])

    @cached_property
    def _sound(self) -> Soundness:
        return Soundness(self.path, self.tables)

    def _table_problems(self) -> Iterator[Problem]:
        for name, table in self.tables.items():
            yield from self._lines(name, table)
            yield from self._order(table)
        if "text" in self.tables:
            yield from self._symbols(self.tables["text"])
        if "utt2spk" in self.tables:
            yield from self._keys()
            yield from self._speakers()
            yield from self._speaker_order()

    def _missing_files(self) -> Iterator[Problem]:
        """Missing or empty files, with the command that creates them, or what to write by hand."""
        by_hand = {
            "utt2spk": f"write it with lines '{RULES['utt2spk'].form}'",
            "text": "write it, or give --need-text false if there are no transcripts",
            "feats.scp": f"steps/make_mfcc.py {self.path}",
            "spk2utt": self.fix,
        }
        for name in self.need:
            if name not in self.tables:
                yield Problem(self.path / name, 0, "", "missing", by_hand[name])
            elif not self._sound.of_tables and not self.tables[name].lines:
                yield Problem(self.path / name, 0, "", "empty file", by_hand[name])
        if "wav.scp" not in self.tables and "feats.scp" not in self.tables:
            yield Problem(
                self.path / "wav.scp",
                0,
                "",
                "missing, and so is feats.scp",
                f"write it with lines '{RULES['wav.scp'].form}'",
            )

    def _lines(self, name: str, table: TableLines) -> Iterator[Problem]:
        """Problems of encoding, number of columns and values."""
        rule, (least, most) = RULES[name], RULES[name].columns
        for number in table.not_utf8:
            yield Problem(
                table.path,
                number,
                table.lines[number - 1],
                "not UTF-8 (the fix reads the line as Latin-1)",
                self.fix,
            )
        if table.packing:
            yield Problem(
                table.path,
                0,
                "",
                f"compressed by {table.packing}, but Kaldi's programs do not read compressed tables",
                self.fix,
            )
        if table.has_mark:
            message = (
                "the byte order mark at its beginning is skipped, but Kaldi's programs take it as a "
                "part of the first key"
            )
            log.warning(f"{table.path}: {message}; {self.fix} removes it")
        if lines := table.with_returns:
            message = (
                f"ends in a carriage return ({len(lines)} such lines), which Kaldi's programs take as "
                "a part of the last word"
            )
            yield Problem(table.path, lines[0], table.lines[lines[0] - 1], message, self.fix)
        for number in table.with_other_blanks if name in OF_WORDS else ():
            blank = _OTHER_BLANK.search(table.lines[number - 1])
            assert blank is not None
            message = (
                f"contains the blank U+{ord(blank[0]):04X}, which Kaldi's programs take as a part of a word"
            )
            yield Problem(table.path, number, table.lines[number - 1], message, self.fix)
        for i, (key, value) in enumerate(zip(table.keys, table.values)):
            if most is None and value and rule.check is None:
                continue
            num = (1 + value.count(" ") + value.count("\t") if value else 0) + bool(key)
            num = num if num == most else len(value.split()) + bool(key)
            complaint = ""
            if num < least or (most and num > most):
                complaint = self._column_complaint(name, rule, num)
            elif rule.check:
                complaint = rule.check(value)
            if complaint:
                yield Problem(
                    table.path, i + 1, table.lines[i], complaint, by_hand(name, key, num) or self.fix
                )

    @staticmethod
    def _column_complaint(name: str, rule: Rule, num: int) -> str:
        if num == 0:
            return "empty line"
        if num == 1 and name in _EMPTY:
            return _EMPTY[name]
        return f"{_COLUMN_WORDS.get(num, f'{num} columns')}, expected '{rule.form}'"

    def _order(self, table: TableLines) -> Iterator[Problem]:
        """Duplicate keys, and the first key that is smaller than its predecessor."""
        keys = list(table.keys)
        if len(table.line_of) < len(keys):
            for i, key in enumerate(keys):
                if key and table.line_of[key] != i + 1:
                    yield Problem(
                        table.path,
                        i + 1,
                        table.lines[i],
                        f"'{key}' is already in line {table.line_of[key]}",
                        self.fix,
                    )
        if keys != sorted(keys):
            i = next(i for i in range(1, len(keys)) if keys[i] < keys[i - 1])
            yield Problem(
                table.path,
                i + 1,
                table.lines[i],
                f"not sorted in C order, '{keys[i]}' comes after '{keys[i - 1]}'",
                self.fix,
            )

    @staticmethod
    def _symbols(table: TableLines) -> Iterator[Problem]:
        """Transcripts with symbols that language directories reserve; only the user knows what was meant."""
        reserved = frozenset(NO_WORDS)
        for i, value in enumerate(table.values):
            if not reserved.isdisjoint(words := value.split()):
                symbol = next(word for word in words if word in reserved)
                message = (
                    f"contains the symbol {symbol}, which is not a word, and training skips the utterance"
                )
                yield Problem(
                    table.path,
                    i + 1,
                    table.lines[i],
                    message,
                    "remove the symbol, or replace it by the spoken words",
                )

    def _keys(self) -> Iterator[Problem]:
        """Differences between the keys of each table and the existing utterances, speakers or recordings."""
        expected: dict[str, tuple[str, Mapping[str, object]]] = {
            "utterance": ("utt2spk", self.tables["utt2spk"].line_of),
            "speaker": ("utt2spk", dict.fromkeys(self._speaker_of.values())),
            "recording": self._recordings(),
        }
        for name, table in self.tables.items():
            source, known = expected[RULES[name].of]
            if name != "utt2spk" and known.keys() != table.line_of.keys():
                yield from self._differences(name, table, source, known)
        if "segments" in self.tables and "wav.scp" in self.tables:
            yield from self._missing_recordings(self.tables["segments"], self.tables["wav.scp"])

    @cached_property
    def _speaker_of(self) -> dict[str, str]:
        table = self.tables["utt2spk"]
        return {key: value.split(None, 1)[0] for key, value in zip(table.keys, table.values) if value}

    def _recordings(self) -> tuple[str, Mapping[str, object]]:
        """(the table that defines recordings, {recording: ...})"""
        if "segments" in self.tables:
            return "segments", dict.fromkeys(
                value.split(None, 1)[0] for value in self.tables["segments"].values if value
            )
        return "utt2spk", self.tables["utt2spk"].line_of

    def _differences(
        self, name: str, table: TableLines, source: str, known: Mapping[str, object]
    ) -> Iterator[Problem]:
        noun = RULES[name].of
        for key, line in table.line_of.items():
            if key and key not in known:
                yield Problem(
                    table.path, line, table.lines[line - 1], f"{noun} '{key}' is not in {source}", self.fix
                )
        if name == "wav.scp" and source == "segments":
            return  # reported for each line of segments
        reference = self.tables[source]
        fix = f"add the line to {table.path}" if name in MADE_BY_HAND else self.fix
        for key in known:
            if key and key not in table.line_of:
                line = reference.line_of.get(key, 0)
                text = reference.lines[line - 1] if line else key
                yield Problem(reference.path, line, text, f"{noun} '{key}' is not in {name}", fix)

    def _missing_recordings(self, segments: TableLines, wav: TableLines) -> Iterator[Problem]:
        for i, value in enumerate(segments.values):
            if value and value.split(None, 1)[0] not in wav.line_of:
                yield Problem(
                    segments.path,
                    i + 1,
                    segments.lines[i],
                    f"recording '{value.split()[0]}' is not in wav.scp",
                    self.fix,
                )

    def _speakers(self) -> Iterator[Problem]:
        """Differences between spk2utt and the inverse of utt2spk."""
        if "spk2utt" not in self.tables:
            return
        table, speaker_of = self.tables["spk2utt"], self._speaker_of
        named: dict[str, int] = {}
        for i, (speaker, value) in enumerate(zip(table.keys, table.values)):
            for utterance in value.split():
                if speaker_of.get(utterance) != speaker:
                    message = f"utt2spk assigns '{utterance}' to '{speaker_of.get(utterance, 'no speaker')}'"
                    yield Problem(table.path, i + 1, f"{speaker} ... {utterance}", message, self.fix)
                elif utterance in named:
                    message = f"'{utterance}' is already in line {named[utterance]}"
                    yield Problem(table.path, i + 1, f"{speaker} ... {utterance}", message, self.fix)
                named[utterance] = i + 1
        for utterance, speaker in speaker_of.items():
            if utterance not in named and speaker in table.line_of:
                line = table.line_of[speaker]
                yield Problem(
                    table.path, line, f"{speaker} ...", f"'{utterance}' of this speaker is missing", self.fix
                )

    def _speaker_order(self) -> Iterator[Problem]:
        """The first line of utt2spk where the order of utterances differs from that of speakers; Kaldi's
        programs iterate over both in parallel."""
        pairs = sorted(self._speaker_of.items())
        for (utterance1, speaker1), (utterance2, speaker2) in zip(pairs, pairs[1:]):
            if speaker2 < speaker1:
                line = self.tables["utt2spk"].line_of[utterance2]
                yield Problem(
                    self.path / "utt2spk",
                    line,
                    f"{utterance2} {speaker2}",
                    f"sorts after '{utterance1} {speaker1}' as utterance but before it as speaker; "
                    "Kaldi needs utterances that begin with their speaker",
                    f"{FIX} --prefix-speakers {self.path}",
                )
                return

    def _audio(self, table: TableLines) -> Iterator[Problem]:
        root, rates, labels = root_of(table.path, table.values), {}, labels_of(self._values(FILE_AND_CHANNEL))
        for i, (key, value) in enumerate(zip(table.keys, table.values)):
            found = inspect_audio(placed(root, value), self.audio, labels.get(key, "")) if value else Look()
            if found.complaint:
                yield Problem(
                    table.path, i + 1, table.lines[i], found.complaint, found.by_hand or self._fix_by_audio
                )
            elif found.seconds is not None:
                self.heard[key], rates[key] = found.seconds, found.rate
        yield from self._rates(table, rates)

    @staticmethod
    def _rates(table: TableLines, rates: Mapping[str, int]) -> Iterator[Problem]:
        """Recordings whose sampling rate differs from most; extraction of features with one configuration
        requires resampling them."""
        usual = max(Counter(rates.values()).items(), key=lambda item: (item[1], item[0]), default=(0, 0))[0]
        for i, key in enumerate(table.keys):
            if (rate := rates.get(key, usual)) != usual:
                flag = "--allow-downsample" if rate > usual else "--allow-upsample"
                yield Problem(
                    table.path,
                    i + 1,
                    table.lines[i],
                    f"audio of {rate} Hz, most recordings have {usual} Hz",
                    f"give {flag} true to the feature extraction step, or resample it",
                )

    @property
    def _fix_by_audio(self) -> str:
        """The repair command that checks audio in the same way as the validator."""
        return f"{FIX} --audio read {self.path}" if self.audio == "read" else self.fix

    def _values(self, name: str) -> dict[str, str]:
        return dict(zip(self.tables[name].keys, self.tables[name].values)) if name in self.tables else {}

    def _segment_ends(self, table: TableLines) -> Iterator[Problem]:
        """Segments that are not within their recordings, if the lengths of these are known."""
        seconds = recording_seconds(self._values("reco2dur"), self._values(SPEED), self.heard)
        for i, value in enumerate(table.values if seconds else ()):
            if complaint := overshoot_complaint(value, seconds):
                yield Problem(table.path, i + 1, table.lines[i], complaint, self._fix_by_audio)

    def _archives(self, table: TableLines) -> Iterator[Problem]:
        there, root = {}, root_of(table.path, table.values)
        for i, value in enumerate(table.values):
            path = archive_of(value)
            if path not in there:
                there[path] = not path or os.path.exists(root / path)
            if not there[path]:
                yield Problem(table.path, i + 1, table.lines[i], "no such archive", self.fix)


def _oov_only(text: Path, lang: Path) -> Iterator[Problem]:
    """Transcripts without any word of `lang`: valid, but nearly always of another language, case or
    normalisation."""
    oov = lang / "oov.txt"  # does not exist for the units of a CTC network
    known = read_table(lang / "words.txt").keys() - ({read_lines(oov)[0].strip()} if oov.exists() else set())
    table = TableLines(text)
    for i, value in enumerate(table.values):
        if value and known.isdisjoint(value.split()):
            complaint = f"none of its words is in {lang}/words.txt"
            yield Problem(
                text, i + 1, table.lines[i], complaint, "correct it, or add its words to the dictionary"
            )
