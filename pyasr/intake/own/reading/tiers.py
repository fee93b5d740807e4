"""Find the tiers of a TextGrid that contain the words, and their speakers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.textgrid import Interval, Tier

_SENTENCES = (
    "utterance utterances utt sentence sentences transcript transcription transcriptions text texts ort "
    "ortho orthography phrase phrases speech ipu"
)
_WORDS = "word words ort-mau"
_NO_SPEECH = (
    "phone phones phoneme phonemes segment segments seg mau kan syllable syllables syl tone tones break "
    "breaks note notes comment comments pos lemma gloss"
)
_SILENCE = {"", "sil", "sp", "<sil>", "<p:>", "<sp>", "<eps>", "#", "_"}
_MAX_PAUSE_S = 0.3  # longest pause between words of an utterance
_MAX_JOINED_S = 15.0


def spoken(tiers: list[Tier], wanted: str | None, path: Path) -> Iterator[tuple[str | None, Interval]]:
    """(speaker or None, interval with words) of the tiers that contain the words. The speaker is None if the
    tier does not name one.

    wanted  names of these tiers, separated by commas; None: find them by their names and contents

    Raises UserError if there are none.
    """
    chosen = _named(tiers, wanted, path) if wanted else _by_names(tiers)
    if not chosen:
        message = ", ".join(tier.name for tier in tiers) or "no interval tier"
        raise UserError(
            f"{path}: the names of the tiers ({message}) do not show which one contains the words; give it "
            "with --tiers NAME"
        )
    for tier in chosen:
        speaker = _speaker(tier.name, len(chosen) > 1)
        intervals = [interval for interval in tier.intervals if interval.text.strip().lower() not in _SILENCE]
        yield from (
            (speaker, interval)
            for interval in (_joined(intervals) if _role(tier.name) == "words" else intervals)
        )


def _named(tiers: list[Tier], wanted: str, path: Path) -> list[Tier]:
    names = [name.strip() for name in wanted.split(",")]
    found = [tier for tier in tiers if tier.name.strip() in names]
    if not found:
        message = ", ".join(tier.name for tier in tiers) or "none"
        raise UserError(
            f"{path}: no interval tier named {' or '.join(names)}; its tiers are: {message}; correct --tiers"
        )
    return found


def _by_names(tiers: list[Tier]) -> list[Tier]:
    """Tiers of sentences, else tiers named after speakers, else tiers of words; empty tiers are skipped."""
    filled = [tier for tier in tiers if any(interval.text.strip() for interval in tier.intervals)] or tiers[
        :1
    ]
    for role in ("sentences", "", "words"):
        if found := [tier for tier in filled if _role(tier.name) == role]:
            return found
    return []


def _role(name: str) -> str:
    """'sentences', 'words' or 'no speech', from the last word of a tier's name; '' for another name, such as
    a speaker's."""
    last = (re.split(r"[\s:_]+|\s-\s", name.strip().lower()) or [""])[-1]
    roles = {"sentences": _SENTENCES, "words": _WORDS, "no speech": _NO_SPEECH}
    return next((role for role, names in roles.items() if last in names.split()), "")


def _speaker(name: str, is_one_of_several: bool) -> str | None:
    """The speaker in a tier's name, as in 'Anna' and 'Anna - words'; None for a name such as 'words'."""
    if not _role(name):
        return name.strip() if is_one_of_several else None
    before = re.sub(r"[\s:_-]+\S+$", "", name.strip())
    return before if before != name.strip() and before else None


def _joined(words: list[Interval]) -> Iterator[Interval]:
    """Join words into utterances, split at long pauses and at a maximum length."""
    group: list[Interval] = []
    for word in words:
        if group and (
            word.begin_s - group[-1].end_s > _MAX_PAUSE_S or word.end_s - group[0].begin_s > _MAX_JOINED_S
        ):
            yield _sentence(group)
            group = []
        group.append(word)
    if group:
        yield _sentence(group)


def _sentence(words: list[Interval]) -> Interval:
    return Interval(words[0].begin_s, words[-1].end_s, " ".join(word.text.strip() for word in words))
