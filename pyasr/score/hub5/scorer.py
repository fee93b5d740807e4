"""Scores against an stm, with the counts of NIST's hubscr.pl -h hub5 -l english (csrfilt -dh, sclite -F -D).

    scorer = StmScorer(read_stm(stm), read_glm(glm))
    scorer.score(read_entries(ctm)).total.wer

The words of a side are assigned to its segments in order. A segment takes the words up to the first one whose
middle is not before the end of the segment, so words between two segments belong to the later one. The last
segment takes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.transcripts.glm import Glm
from pyasr.data.transcripts.stm import IGNORED, Stm, StmSegment
from pyasr.score.filters import SCORING_VERSION, SIGNATURE
from pyasr.score.hub5.csrfilt import filtered_text
from pyasr.score.hub5.ctm_elements import CtmEntry, Side, TimedElement, timed_elements
from pyasr.score.hub5.network_alignment import Edit, align_networks, count_networks
from pyasr.score.hub5.stm_subsets import by_label, members, read_subsets
from pyasr.score.hub5.word_network import WordNetwork, elements_of
from pyasr.score.score_tables import alignment_lines
from pyasr.score.wer import Score

_LETTERS = {"1": "a", "2": "b"}
_NUMBERS = {letter: number for number, letter in _LETTERS.items()}


class StmScorer:
    """Scores ctm entries against the segments of an stm, without ignored ones. Ids are `SPEAKER-NNN`, as in
    sclite.

    subsets  subsets file (`pyasr.score.hub5.stm_subsets`)
    dropped  words that were removed from the ctm before; part of the signature

    Raises UserError for a malformed subsets file, and if no segment has words.
    """

    def __init__(self, stm: Stm, glm: Glm | None = None, subsets: Path | None = None, dropped: str = "none"):
        self.stm, self._rules = stm, glm.hypothesis if glm else None
        texts = [
            filtered_text(segment.text, glm.reference) if glm else segment.text for segment in stm.segments
        ]
        self._references = [
            None if IGNORED in text.upper() else WordNetwork.of(elements_of(text.lower())) for text in texts
        ]
        if not any(network and network.words for network in self._references):
            raise UserError(f"{stm.path}: no segment has words to score against")
        self._keys, self._sides = _keys(stm.segments, self._references), _by_side(stm.segments)
        self.segments = {key: segment for key, segment in zip(self._keys, stm.segments) if key}
        self.utt2spk = _speakers(self.segments)
        names = f"stm:{stm.identity}|glm:{glm.identity if glm else 'none'}"
        self.signature = f"{SIGNATURE}{names}|drop:{dropped}|align:sclite|v{SCORING_VERSION}"
        self.subsets = members(read_subsets(subsets), self.segments, subsets) if subsets else {}
        self.parts = self.subsets | {f"<{label}>": keys for label, keys in by_label(self.segments).items()}
        self._counted: dict[tuple[int, str], tuple[int, int, int, int]] = {}
        self._logged: set[str] = set()

    def score(self, hypothesis: Iterable[CtmEntry], name: str = "the ctm") -> Score:
        """Counts of all segments; `missing` are the segments of channels without a word in the ctm.

        Raises UserError, with the name of the ctm, if the stm has no segment of a channel of the ctm.
        """
        sides = self._elements(hypothesis, name)
        counts = [self._count(i, elements) for i, elements in self._assigned(sides)]
        missing = [key for key, segment in self.segments.items() if segment.side not in sides]
        return Score(list(self.segments), np.array(counts, np.int64), missing, self.signature)

    def per_utterance(self, hypothesis: Iterable[CtmEntry]) -> str:
        """The content of per_utt."""
        lines = []
        for i, elements in self._assigned(self._elements(hypothesis, "the ctm")):
            key, spoken = self._keys[i], WordNetwork.of([timed.element for timed in elements])
            assert key is not None
            lines += alignment_lines(key, list(map(_shown, align_networks(self._reference(i), spoken))))
        return "".join(f"{line}\n" for line in lines)

    def write(self, directory: Path, name: str, hypothesis: Iterable[CtmEntry]) -> None:
        """Write words without alternatives to DIRECTORY/NAME.ctm."""
        with atomic_write(directory / f"{name}.ctm") as f:
            f.writelines(f"{entry.first}\n" for entry in hypothesis)

    def _elements(self, entries: Iterable[CtmEntry], name: str) -> dict[Side, list[TimedElement]]:
        found = self._with_channels_of_stm(timed_elements(entries, self._rules), name)
        unknown = sorted(found.keys() - self._sides.keys())
        if unknown:
            file, channel = unknown[0]
            raise UserError(
                f"{name}: {len(found[unknown[0]])} word(s) are in file '{file}', channel '{channel}', "
                f"without a segment in {self.stm.path} ({len(unknown)} such channels); give the stm of these "
                "recordings"
            )
        return found

    def _with_channels_of_stm(
        self, sides: dict[Side, list[TimedElement]], name: str
    ) -> dict[Side, list[TimedElement]]:
        """Channels 1 and 2 of the ctm are A and B of the stm, or the other way round, if one has only numbers
        and the other only letters."""
        ours, theirs = ({channel for _, channel in keys} for keys in (self._sides, sides))
        for table, others in ((_LETTERS, _NUMBERS), (_NUMBERS, _LETTERS)):
            if theirs and theirs <= table.keys() and ours <= others.keys():
                renamed = ", ".join(
                    f"{channel.upper()} is {table[channel].upper()}" for channel in sorted(theirs)
                )
                self._log_once(f"channels of {name} in {self.stm.path}: {renamed}")
                return {(file, table[channel]): elements for (file, channel), elements in sides.items()}
        return sides

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.info(message)

    def _assigned(
        self, sides: dict[Side, list[TimedElement]]
    ) -> Iterator[tuple[int, Sequence[TimedElement]]]:
        """(index, elements) of each segment that is scored."""
        for side, indices in self._sides.items():
            elements, at = sides.get(side, []), 0
            for i in indices:
                first, end_s = at, float(np.float32(self.stm.segments[i].end_s))  # sclite's ends are float32
                while at < len(elements) and (i == indices[-1] or elements[at].middle_s < end_s):
                    at += 1
                if self._keys[i]:
                    yield i, elements[first:at]

    def _reference(self, index: int) -> WordNetwork:
        """The network of a segment that is scored."""
        network = self._references[index]
        assert network is not None
        return network

    def _count(self, index: int, timed: Sequence[TimedElement]) -> tuple[int, int, int, int]:
        """The counts of a segment, from the cache if the same words were counted before."""
        elements = [one.element for one in timed]
        key = (index, repr(elements))
        if key not in self._counted:
            self._counted[key] = count_networks(self._reference(index), WordNetwork.of(elements))
        return self._counted[key]


def _shown(step: Edit) -> tuple[str | None, str | None, str]:
    """A step as per_utt shows it."""
    reference = step.reference.shown if step.reference else None
    hypothesis = step.hypothesis.shown if step.hypothesis else None
    return reference, hypothesis, step.kind.name[0]


def _by_side(segments: list[StmSegment]) -> dict[Side, list[int]]:
    """{side: indices of its segments}"""
    found: dict[Side, list[int]] = {}
    for i, segment in enumerate(segments):
        found.setdefault(segment.side, []).append(i)
    return found


def _keys(segments: list[StmSegment], references: list[WordNetwork | None]) -> list[str | None]:
    """The id of each segment; None for ignored segments."""
    numbers: dict[str, int] = {}
    found = []
    for segment, network in zip(segments, references):
        speaker = segment.speaker.lower()
        found.append(f"{speaker}-{numbers.get(speaker, 0):03d}" if network else None)
        numbers[speaker] = numbers.get(speaker, 0) + (network is not None)
    return found


def _speakers(segments: dict[str, StmSegment]) -> dict[str, str]:
    """{id of a segment: speaker}, each speaker as first spelled."""
    spelled: dict[str, str] = {}
    return {
        key: spelled.setdefault(segment.speaker.lower(), segment.speaker) for key, segment in segments.items()
    }
