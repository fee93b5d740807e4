"""Which tiers of a TextGrid hold what was said, and by whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.textgrid import Interval, Tier

_SENTENCES = (
    "utterance utterances utt sentence sentences transcript transcription transcriptions text texts ort ortho orthography phrase phrases "
    "speech ipu"
)
_WORDS = "word words ort-mau"
_NO_SPEECH = (
    "phone phones phoneme phonemes segment segments seg mau kan syllable syllables syl tone tones break breaks note notes comment comments "
    "pos lemma gloss"
)
_SILENCE = {"", "sil", "sp", "<sil>", "<p:>", "<sp>", "<eps>", "#", "_"}
_MOST_PAUSE_S = 0.3  # between words of an utterance
_MOST_JOINED_S = 15.0


def spoken(tiers: list[Tier], wanted: str | None, path: Path) -> Iterator[tuple[str | None, Interval]]:
    """(speaker, None where the tier does not name one; interval with words) of the tiers that hold what was said.

    wanted  names of these tiers, separated by commas; None: by their names and contents

    Raises UserError where there are none.
    """
    chosen = _named(tiers, wanted, path) if wanted else _by_names(tiers)
    if not chosen:
        told = ", ".join(tier.name for tier in tiers) or "no interval tier"
        raise UserError(f"{path}: which tier holds what was said is not told by the names ({told}); give it by --tiers NAME")
    for tier in chosen:
        speaker = _speaker(tier.name, len(chosen) > 1)
        intervals = [interval for interval in tier.intervals if interval.text.strip().lower() not in _SILENCE]
        yield from ((speaker, interval) for interval in (_joined(intervals) if _role(tier.name) == "words" else intervals))


def _named(tiers: list[Tier], wanted: str, path: Path) -> list[Tier]:
    names = [name.strip() for name in wanted.split(",")]
    found = [tier for tier in tiers if tier.name.strip() in names]
    if not found:
        told = ", ".join(tier.name for tier in tiers) or "none"
        raise UserError(f"{path}: no interval tier of the name {' or '.join(names)}, its tiers are: {told}; correct --tiers")
    return found


def _by_names(tiers: list[Tier]) -> list[Tier]:
    """Those of sentences, else those that are named after speakers, else those of words; empty tiers are passed over."""
    filled = [tier for tier in tiers if any(interval.text.strip() for interval in tier.intervals)] or tiers[:1]
    for role in ("sentences", "", "words"):
        if found := [tier for tier in filled if _role(tier.name) == role]:
            return found
    return []


def _role(name: str) -> str:
    """sentences, words, or 'no speech' by the last word of a tier's name; '' for another name, such as a speaker's."""
    last = (re.split(r"[\s:_]+|\s-\s", name.strip().lower()) or [""])[-1]
    roles = {"sentences": _SENTENCES, "words": _WORDS, "no speech": _NO_SPEECH}
    return next((role for role, names in roles.items() if last in names.split()), "")


def _speaker(name: str, is_one_of_several: bool) -> str | None:
    """The speaker that a tier is named after, as in 'Anna' and 'Anna - words'; None for a name such as 'words'."""
    if not _role(name):
        return name.strip() if is_one_of_several else None
    before = re.sub(r"[\s:_-]+\S+$", "", name.strip())
    return before if before != name.strip() and before else None


def _joined(words: list[Interval]) -> Iterator[Interval]:
    """Utterances of words that follow each other within a pause, up to a length."""
    group: list[Interval] = []
    for word in words:
        if group and (word.begin_s - group[-1].end_s > _MOST_PAUSE_S or word.end_s - group[0].begin_s > _MOST_JOINED_S):
            yield _sentence(group)
            group = []
        group.append(word)
    if group:
        yield _sentence(group)


def _sentence(words: list[Interval]) -> Interval:
    return Interval(words[0].begin_s, words[-1].end_s, " ".join(word.text.strip() for word in words))
