r"""Long utterances cut at silences, each piece with its words, by the times of words in a ctm.

The transcript is aligned with the words of the ctm. An utterance may be cut between two adjacent words of the
transcript if they are also adjacent in the ctm, with a silence of at least `min_silence_s` in between, so
recognition errors stay within one piece. A piece keeps up to `padding_s` of the silence at a cut; pieces
never overlap.

Among all ways to cut an utterance longer than `max_segment_s`, the chosen one

    1. has the least time beyond max_segment_s in its pieces (none if there are enough silences),
    2. has the fewest pieces,
    3. has the greatest sum of silences at its cuts.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.data.parts.subsegments import Subsegment, extent_s
from pyasr.data.tables.datadir import DataDir
from pyasr.data.transcripts.ctm import CtmLine, Recordings
from pyasr.score.word_alignment import align

_NOTHING = 1e-6


@dataclass(frozen=True)
class UtteranceSplitOptions:
    """Length of the pieces, and where utterances are cut."""

    max_segment_s: float = option(
        15.0, "maximum length of pieces, seconds; longer utterances are split", minimum=0.5
    )
    min_silence_s: float = option(0.2, "minimum length of a silence at a cut, seconds", minimum=0.0)
    padding_s: float = option(0.2, "silence kept on each side of a cut, seconds", minimum=0.0)


@dataclass(frozen=True)
class Cut:
    """A place between words: pieces before it end at `end_s` and have words up to `word`; pieces after it
    begin at `begin_s`."""

    word: int
    end_s: float
    begin_s: float
    silence_s: float


def timed_words(text: list[str], lines: list[CtmLine]) -> list[tuple[int, CtmLine] | None]:
    """For each word of a transcript, its position in `lines` and the line; None if the ctm does not have the
    word there."""
    place, found = 0, []
    for word, recognised in align(text, [line.word for line in lines]):
        if word is not None:
            found.append((place, lines[place]) if word == recognised else None)
        place += recognised is not None
    return found


def possible_cuts(
    words: list[tuple[int, CtmLine] | None], extent: tuple[float, float], options: UtteranceSplitOptions
) -> list[Cut]:
    """Places where an utterance may be cut, in seconds of its recording; the first and last are its ends."""
    cuts = [Cut(0, extent[0], extent[0], 0.0)]
    for number, (left, right) in enumerate(zip(words, words[1:]), 1):
        if left is None or right is None or right[0] != left[0] + 1:
            continue
        end_s, begin_s = left[1].end_s, right[1].begin_s
        if begin_s - end_s >= options.min_silence_s - _NOTHING:
            middle = (end_s + begin_s) / 2
            cuts.append(
                Cut(
                    number,
                    min(end_s + options.padding_s, middle),
                    max(begin_s - options.padding_s, middle),
                    begin_s - end_s,
                )
            )
    return [*cuts, Cut(len(words), extent[1], extent[1], 0.0)]


def best_cuts(cuts: list[Cut], max_s: float) -> list[Cut]:
    """The chosen ones among `cuts`, including the two ends."""
    best: list[tuple[tuple[float, int, float], int]] = [((0.0, 0, 0.0), -1)]
    for last in range(1, len(cuts)):
        ways = []
        for first in range(last - 1, -1, -1):
            excess = max(cuts[last].end_s - cuts[first].begin_s - max_s, 0.0)
            (beyond, pieces, silence), _ = best[first]
            ways.append(((beyond + excess, pieces + 1, silence - cuts[last].silence_s), first))
            if excess > 0:  # for a piece that begins earlier, cutting here leaves less time beyond the limit
                break
        best.append(min(ways))
    chosen = [len(cuts) - 1]
    while chosen[-1] > 0:
        chosen.append(best[chosen[-1]][1])
    return [cuts[i] for i in reversed(chosen)]


def split_utterances(
    data: DataDir, lines: list[CtmLine], options: UtteranceSplitOptions
) -> dict[str, list[Subsegment]]:
    """Pieces of every utterance of `data`, by the words of a ctm; logs pieces that are still too long.

    Raises UserError for a ctm of other recordings.
    """
    recordings, spoken = Recordings(data), _by_channel(lines)
    if spoken.keys().isdisjoint(recordings.locate(utt)[:2] for utt in data.utterances):
        raise UserError(
            f"{data.path}: the ctm has no word of any of its recordings; give the ctm of this data directory"
        )
    parts, too_long = {}, []
    for utt in data.utterances:
        begin_s, end_s = extent = extent_s(data, utt)
        text = data.text.get(utt, "").split()
        if end_s - begin_s <= options.max_segment_s:
            parts[utt] = [Subsegment(0.0, end_s - begin_s, tuple(text))]
            continue
        channel = spoken.get(recordings.locate(utt)[:2])
        words = timed_words(text, channel.within(begin_s, end_s) if channel else [])
        cuts = best_cuts(possible_cuts(words, extent, options), options.max_segment_s)
        parts[utt] = [
            Subsegment(left.begin_s - begin_s, right.end_s - begin_s, tuple(text[left.word : right.word]))
            for left, right in zip(cuts, cuts[1:])
        ]
        too_long += [utt] * any(
            part.end_s - part.begin_s > options.max_segment_s + _NOTHING for part in parts[utt]
        )
    if too_long:
        named = " ".join(too_long[:3]) + (" ..." if too_long[3:] else "")
        log.warning(
            f"{len(too_long)} utterances have a piece above --max-segment-s, because the ctm has no silence "
            f"to cut at: {named}"
        )
    return parts


class _Channel:
    """Words of a channel by time, which allows a fast search for those of an utterance."""

    def __init__(self, lines: list[CtmLine]):
        self._lines = sorted(lines, key=lambda line: line.begin_s)
        middles = [line.begin_s + line.duration_s / 2 for line in self._lines]
        self._order = sorted(range(len(lines)), key=middles.__getitem__)
        self._middles = [middles[i] for i in self._order]

    def within(self, begin_s: float, end_s: float) -> list[CtmLine]:
        """The words whose middle is from `begin_s` on and before `end_s`."""
        first, end = bisect_left(self._middles, begin_s), bisect_left(self._middles, end_s)
        return [self._lines[i] for i in sorted(self._order[first:end])]


def _by_channel(lines: list[CtmLine]) -> dict[tuple[str, str], _Channel]:
    """{(file, channel): its words}"""
    found: dict[tuple[str, str], list[CtmLine]] = {}
    for line in lines:
        found.setdefault((line.file, line.channel), []).append(line)
    return {channel: _Channel(of_channel) for channel, of_channel in found.items()}
