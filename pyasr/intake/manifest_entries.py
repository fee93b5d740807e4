"""Entries of manifests, possibly millions, stored in little more memory than their texts and names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import eq

from pyasr.io.keys import KnownNames
from pyasr.io.mapped_files.packed_rows import GrowingRows


@dataclass(frozen=True)
class ManifestUtterance:
    """A supervision in one channel of its recording; times in seconds; `text` is '' where nothing is said,
    None where nothing is known.

    Names are single words; texts have single spaces between their words.
    """

    name: str
    recording: str
    begin: float
    end: float
    speaker: str
    text: str | None
    gender: str


class ManifestUtterances(Sequence[ManifestUtterance]):
    """Utterances, each of them an object when it is asked for."""

    def __init__(self):
        self._rows = GrowingRows()

    def append(self, one: ManifestUtterance) -> None:
        """Add one at the end."""
        text = [] if one.text is None else [one.text]
        self._rows.append(
            "\t".join(
                (one.name, one.recording, repr(one.begin), repr(one.end), one.speaker, one.gender, *text)
            )
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> ManifestUtterance:  # type: ignore[override]
        name, recording, begin, end, speaker, gender, *text = self._rows[range(len(self))[number]].split("\t")
        return ManifestUtterance(
            name, recording, float(begin), float(end), speaker, text[0] if text else None, gender
        )

    def __iter__(self) -> Iterator[ManifestUtterance]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))


class Entries:
    """{id: JSON object}"""

    def __init__(self):
        self._ids, self._rows, self._last = KnownNames(), GrowingRows(), ("", {})

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __getitem__(self, name: str) -> dict:
        if name != self._last[0]:
            self._last = name, json.loads(self._rows[self._ids.number(name)])
        return self._last[1]

    def add(self, name: str, entry: dict) -> bool:
        """Whether an id is a new one, whose entry is known from now on, or its entry is the known one."""
        if not self._ids.add(name):
            return self[name] == entry
        self._rows.append(json.dumps(entry, ensure_ascii=False))
        return True
