"""Utterances of Switchboard-1 Release 2 (LDC97S62), from the calls on discs and their transcripts.

Utterances are named by their side and times in units of 10 ms, `sw02001-A_000098-001156`, or, if callers are
known, by their speaker, `sw1020-02001-A_000098-001156`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.corpora.conversations import SkippedItems, Utterance, hundredths
from pyasr.corpora.counts import Published
from pyasr.corpora.discs import Disc, files_by_name, log_calls_that_have, paths_below
from pyasr.corpora.switchboard.acronyms import with_acronyms
from pyasr.corpora.switchboard.swbd_text import words_of
from pyasr.corpora.switchboard.swbd_transcripts import Transcripts, Turn, turns_of

DISC = Disc(
    "Switchboard-1 Release 2 (LDC97S62)",
    "sw0NNNN.sph (2,435 or 2,438 calls, sw02001.sph to sw04940.sph)",
    "--swbd",
)
EMPTY_SIDES = frozenset({"sw02167-B"})  # contains only noise, on which training fails
NUM_CALLS = (2435, 2438)  # of the two releases in circulation
NUM_DVDS = 4
PUBLISHED = [
    Published("recordings", (4870, 4876)),
    Published("utterances", (264_000,), 0.02),
    Published("hours", (318.5,), 0.02),
]
_AUDIO = r"sw0?(\d{4})\.sph"


def find_audio(places: list[Path]) -> dict[str, Path]:
    """{call: file}, `sw02001` for sw02001.sph and sw2001.sph, in any folders below `places`. Raises UserError
    if there is none; logs which DVDs are there if not all are."""
    paths = list(paths_below(places))
    audio = {f"sw0{number}": path for number, path in files_by_name(paths, _AUDIO).items()}
    if not audio:
        raise DISC.missing(places, paths)
    numbers = {
        int(found[1])
        for path in audio.values()
        if (found := re.search(r"/swb1_d([1-4])/", path.as_posix(), re.IGNORECASE))
    }
    if numbers and len(numbers) < NUM_DVDS:
        missing = ", ".join(f"swb1_d{number}" for number in range(1, NUM_DVDS + 1) if number not in numbers)
        log.warning(
            f"{DISC.name}: no calls in {missing}, but in {len(numbers)} other discs; give the directory "
            "above all of them"
        )
    return audio


def calls_with_both(audio: Mapping[str, Path], sides: Iterable[str]) -> list[str]:
    """Calls with audio and the transcript of a side, sorted. Calls that lack one of them are logged. Raises
    UserError if all do."""
    transcribed = {side.partition("-")[0] for side in sides}
    both = sorted(audio.keys() & transcribed)
    if not both:
        raise UserError(
            f"{DISC.name}: of {len(audio)} calls with audio ({min(audio)} ...) and {len(transcribed)} with "
            f"transcripts ({min(transcribed, default='none')} ...) none has both; give audio and transcripts "
            "of the same corpus"
        )
    cases = {
        "audio, but no transcript": audio.keys() - transcribed,
        "a transcript, but no audio": transcribed - audio.keys(),
    }
    log_calls_that_have(cases, DISC.name)
    if len(audio) not in NUM_CALLS:
        log.warning(f"{DISC.name}: {len(audio)} calls have audio, of {NUM_CALLS[0]:,} or {NUM_CALLS[1]:,}")
    return both


def utterances_of(
    transcripts: Transcripts,
    calls: Iterable[str],
    acronyms: Mapping[str, str],
    callers: Mapping[str, str],
    left: SkippedItems,
) -> list[Utterance]:
    """The utterances of these calls that have words; others are added to `left`. `callers`: {side: speaker};
    a side without an entry is its own speaker."""
    wanted, found = set(calls), dict[str, Utterance]()
    for side, (name, content) in sorted(transcripts.sides.items()):
        for turn in turns_of(side, name, content, left):
            words = " ".join(with_acronyms(words_of(turn.text), acronyms)).lower()
            utterance = _utterance(turn, callers.get(side, side), words)
            if reason := _reason_against(utterance, wanted, found):
                left.add(reason, utterance.name)
            else:
                found[utterance.name] = utterance
    if not found:
        raise UserError(
            f"{DISC.name}: no segment with words is left of {len(transcripts.sides)} transcripts; check "
            "what was left out"
        )
    return list(found.values())


def _utterance(turn: Turn, speaker: str, words: str) -> Utterance:
    call, channel = turn.side.split("-")
    begin, end = hundredths(turn.begin_s), hundredths(turn.end_s)
    prefix = turn.side if speaker == turn.side else f"{speaker}-{turn.side.removeprefix('sw')}"
    return Utterance(f"{prefix}_{begin:06d}-{end:06d}", call, channel, speaker, begin / 100, end / 100, words)


def _reason_against(utterance: Utterance, calls: set[str], found: Mapping[str, Utterance]) -> str:
    """Why an utterance is left out; '' if it is used."""
    if not utterance.text:
        return "silence"
    if utterance.call not in calls:
        return "no audio of their call"
    if utterance.side in EMPTY_SIDES:
        return "a side on which nothing is said"
    if utterance.begin_s == utterance.end_s:
        return "shorter than 10 ms"
    return "the same times as another" if utterance.name in found else ""
