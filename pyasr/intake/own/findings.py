"""Sentences on the content of a corpus and on the choices made for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyasr.intake.own.preparing import Prepared, choose_rate
from pyasr.intake.own.reading.own_corpus import PARTS
from pyasr.intake.own.sizes import lm_min_counts, lm_order, sizes_for
from pyasr.lang.pronouncing.prepare_dict import LETTERS

_MUCH_KNOWN = 0.5  # share of the test sentences that also occur in train
_LONG_S = 40.0
_MIN_HOURS = 0.5  # with less training speech, results are not meaningful


def findings(prepared: Prepared) -> Iterator[str]:
    """Sentences on the content of the corpus."""
    corpus = prepared.corpus
    yield f"found {corpus.kind}"
    speakers = len({one.speaker for one in corpus.utterances})
    num_words = sum(len(one.text.split()) for one in corpus.utterances)
    amount = (
        f"{_hours(corpus.hours)} of speech in {len(corpus.utterances)} utterances of "
        f"{len(corpus.recordings)} recordings"
    )
    yield f"{amount}, {num_words} words, {speakers} speaker(s); speakers are {prepared.speakers}"
    yield f"sampling rates: {_counted(corpus, 'rate', ' Hz')}; channels: {_counted(corpus, 'channels', '')}"
    yield from _pronunciations(prepared)
    yield from corpus.notes


def choices(prepared: Prepared) -> Iterator[str]:
    """Sentences on the choices, and warnings on problems of the corpus."""
    hours, words = prepared.hours("train"), prepared.counts("train").total()
    yield prepared.language.message
    sizes = ", ".join(
        f"{part} {_hours(prepared.hours(part))} ({len(prepared.split.parts[part])} utterances)"
        for part in PARTS
    )
    yield f"{sizes}: {prepared.split.message}"
    channel = ", of the left channel" if has_several_channels(prepared) else ""
    yield f"features at {choose_rate(prepared.corpus)} Hz{channel}"
    row = sizes_for(hours)
    yield (
        f"models for up to {row.hours:g} h of training speech: {row.tri3[0]} leaves and {row.tri3[1]} "
        f"Gaussians with SAT, a network of {row.layers} layers of {row.units} units"
    )
    dropped = ", without trigrams that occur once" if lm_min_counts(words) == "1,2" else ""
    yield f"a language model of order {lm_order(words)} from the {words} words of train{dropped}"
    yield from _warnings(prepared)


def _hours(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def _counted(corpus, name: str, unit: str) -> str:
    """'16000 Hz (1200), 8000 Hz (3)' of recordings."""
    counts = Counter(getattr(recording, name) for recording in corpus.recordings.values())
    return ", ".join(
        f"{value or 'unknown'}{unit if value else ''} ({count})" for value, count in counts.most_common()
    )


def has_several_channels(prepared: Prepared) -> bool:
    """Whether a recording has several channels, without a table that names the one to use."""
    return any(
        recording.channels > 1 and not recording.side for recording in prepared.corpus.recordings.values()
    )


def _pronunciations(prepared: Prepared) -> Iterator[str]:
    counts = sum((prepared.counts(part) for part in PARTS), Counter())
    if prepared.language.dictionary == LETTERS:
        return
    missing = Counter(
        {word: count for word, count in counts.items() if not _is_known(word, prepared.language.known)}
    )
    if missing:
        share = 100 * missing.total() / counts.total()
        yield (
            f"words without pronunciation: {len(missing)} of {len(counts)} ({share:.1f} % of the running "
            f"words), such as {', '.join(word for word, _ in missing.most_common(3))}; their pronunciations "
            "are guessed from their letters"
        )
    else:
        yield f"words without pronunciation: none of {len(counts)}"


def _is_known(word: str, known) -> bool:
    return word in known or word.lower() in known or word[0] in "[<{"


def _warnings(prepared: Prepared) -> Iterator[str]:
    trained = {one.text for one in prepared.split.parts["train"]}
    for part in PARTS[1:]:
        texts = [one for one in prepared.split.parts[part] if one.text in trained]
        if len(texts) > _MUCH_KNOWN * len(prepared.split.parts[part]):
            share = 100 * len(texts) / len(prepared.split.parts[part])
            yield (
                f"{share:.0f} % of the sentences of {part} are also in train, so its WER is lower than on "
                "new sentences"
            )
    unknown = {part: _unknown_share(prepared, part) for part in PARTS[1:]}
    if max(unknown.values()) > 0.02:
        message = ", ".join(f"{100 * share:.1f} % of {part}" for part, share in unknown.items())
        yield f"words that are not in train cannot be recognised: {message}"
    yield from _long(prepared)
    if prepared.hours("train") < _MIN_HOURS:
        hours = _hours(prepared.hours("train"))
        yield (
            f"{hours} of training speech is too little for good results; use it to check that the recipe runs"
        )


def _long(prepared: Prepared) -> Iterator[str]:
    corpus = prepared.corpus
    long = [one for one in corpus.utterances if corpus.duration_s(one) > _LONG_S]
    if long:
        found = (
            f"{len(long)} utterances are longer than {_LONG_S:.0f} s, such as {long[0].name} with "
            f"{corpus.duration_s(long[0]):.0f} s"
        )
        yield (
            f"{found}: they are hard to align; give times of their parts in a table or TextGrid, or see "
            "utils/split_long_utterances.py"
        )


def _unknown_share(prepared: Prepared, part: str) -> float:
    known, counts = prepared.counts("train"), prepared.counts(part)
    return sum(count for word, count in counts.items() if word not in known) / max(counts.total(), 1)
