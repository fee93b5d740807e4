"""Split a corpus into train, dev and test: the parts of the source, else by speakers, else, with few
speakers, by utterances."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace

from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.intake.own.reading.own_corpus import PARTS, Corpus, OwnUtterance

_MIN_SPEAKERS = 8  # at least two of them are held out
_MAX_SHARE_OF_ONE = 0.4  # largest share of the corpus of one speaker, for a split by speakers
_MIN_FILLED_SHARE = 0.25  # whole speakers must fill this share of the requested size of dev and test


@dataclass(frozen=True)
class SplitOptions:
    """Options for the held-out speech."""

    heading = "held-out speech"

    split: str = option(
        "auto",
        "what to hold out if the source is not divided into parts; auto: speakers if there are at least 8",
        choices=("auto", "speakers", "utterances"),
    )
    held_out: float = option(
        0.1, "fraction of the speech for dev, and the same for test", minimum=0.001, maximum=0.4
    )
    most_held_out: float = option(
        2.0, "maximum hours of speech for dev, and the same for test", minimum=0.001
    )


@dataclass(frozen=True)
class CorpusSplit:
    """{part: its utterances}, and a sentence on the way of splitting."""

    parts: dict[str, list[OwnUtterance]]
    message: str


def split(corpus: Corpus, options: SplitOptions, speakers_are_known: bool = True) -> CorpusSplit:
    """Split a corpus. Raises UserError if there are too few utterances for three parts."""
    if options.split == "auto" and not speakers_are_known:
        options = replace(options, split="utterances")
    parts = defaultdict(list)
    for utterance in corpus.utterances:
        parts[utterance.part].append(utterance)
    if parts["train"] and (parts["dev"] or parts["test"]):
        return _completed(corpus, parts, options)
    chosen = _choose(corpus, corpus.utterances, PARTS[1:], options)
    return CorpusSplit(_checked(chosen.parts), chosen.message)


def _completed(corpus: Corpus, parts: dict[str, list[OwnUtterance]], options: SplitOptions) -> CorpusSplit:
    """The parts of the source; a missing dev or test is split off its training set. Utterances without a part
    are left out."""
    missing = [part for part in PARTS[1:] if not parts[part]]
    if not missing:
        corpus.notes += (
            [f"left out: {len(parts[''])} utterances without a part in the source"] if parts[""] else []
        )
        return CorpusSplit(
            _checked({part: parts[part] for part in PARTS}), "train, dev and test are those of the source"
        )
    chosen = _choose(corpus, parts["train"], missing, options)
    found = {part: chosen.parts.get(part) or parts[part] for part in PARTS}
    return CorpusSplit(_checked(found), f"{missing[0]} is split off the source's train: {chosen.message}")


def _checked(parts: dict[str, list[OwnUtterance]]) -> dict[str, list[OwnUtterance]]:
    if empty := [part for part in PARTS if not parts.get(part)]:
        total = sum(map(len, parts.values()))
        raise UserError(
            f"{total} utterances are too few for a split: {empty[0]} would be empty; add utterances"
        )
    return {part: parts[part] for part in PARTS}


def _choose(
    corpus: Corpus, utterances: list[OwnUtterance], wanted: tuple[str, ...] | list[str], options: SplitOptions
) -> CorpusSplit:
    """Split held-out parts off these utterances; the rest is for training."""
    if options.split != "utterances":
        found = _by_groups(
            corpus, utterances, wanted, options, lambda utterance: utterance.speaker, whole=True
        )
        num = len({utterance.speaker for utterance in utterances})
        if found or options.split == "speakers":
            if not found:
                message = f"the {num} speaker(s) cannot be split into train, {' and '.join(wanted)}"
                raise UserError(f"--split speakers: {message}; give --split utterances")
            held_out = ", ".join(f"{len({one.speaker for one in found[part]})} for {part}" for part in wanted)
            return CorpusSplit(found, f"by speakers, {held_out}, of {num}")
    keys = (lambda utterance: utterance.text, lambda utterance: utterance.name)
    attempts = (_by_groups(corpus, utterances, wanted, options, key, whole=False) for key in keys)
    message = (
        "by utterances, because there are too few speakers"
        if options.split == "auto"
        else "by utterances of other sentences"
    )
    return CorpusSplit(next(filter(None, attempts), {"train": utterances}), message)


def _by_groups(
    corpus, utterances, wanted, options: SplitOptions, key, whole: bool
) -> dict[str, list[OwnUtterance]]:
    """{part: utterances}; utterances with the same `key` stay together. Empty if the groups are too few or
    too unequal.

    whole  groups are speakers; enough of them must remain for training
    """
    groups = defaultdict(list)
    for utterance in utterances:
        groups[key(utterance)].append(utterance)
    seconds = {name: sum(map(corpus.duration_s, group)) for name, group in groups.items()}
    total = sum(seconds.values())
    if len(groups) < (_MIN_SPEAKERS if whole and options.split == "auto" else len(wanted) + 1):
        return {}
    target = min(options.held_out * total, 3600 * options.most_held_out)
    found, left = {}, sorted(groups, key=lambda name: hashlib.sha256(name.encode()).digest())
    for part in wanted:
        names = _fill(left, seconds, target, _MAX_SHARE_OF_ONE * total)
        if not names or whole and sum(seconds[name] for name in names) < _MIN_FILLED_SHARE * target:
            return {}
        found[part] = [one for name in names for one in groups[name]]
        left = [name for name in left if name not in set(names)]
    found["train"] = [one for name in left for one in groups[name]]
    return found if left else {}


def _fill(names: list[str], seconds: dict[str, float], target: float, most: float) -> list[str]:
    """Groups in this order as long as they fit into the target, with some tolerance; at least the shortest,
    unless it is longer than `most`."""
    chosen, sum_s = [], 0.0
    for name in names:
        if sum_s + seconds[name] <= 1.25 * target:
            chosen.append(name)
            sum_s += seconds[name]
        if sum_s >= target:
            break
    shortest = min(names, key=lambda name: seconds[name], default=None)
    return chosen or ([shortest] if shortest is not None and seconds[shortest] <= most else [])
