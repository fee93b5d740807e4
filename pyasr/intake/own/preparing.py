"""Data directories of a user's corpus. utils/new_recipe.py describes what they will contain,
utils/prepare_own_data.py writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pyasr.base.cli.options import group
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.data.tables.datadir import FILE_AND_CHANNEL
from pyasr.intake.own.language import Language, LanguageOptions, choose_language
from pyasr.intake.own.naming import find_parts, name_speakers, name_utterances
from pyasr.intake.own.reading.own_corpus import PARTS, Corpus, Faults, OwnUtterance, ReadingOptions, named
from pyasr.intake.own.sources import read_corpus
from pyasr.intake.own.splitting import CorpusSplit, SplitOptions, split
from pyasr.intake.own.words import Normaliser

_SLACK_S = 0.5  # tolerance for an utterance that ends after its recording
_MIN_S = 0.1  # shortest utterance
_OUTSIDE = f"utterances outside their recordings or shorter than {_MIN_S} s"
_USUAL_RATE_HZ = 16000
_SHARE_AT_RATE = 0.95  # share of the speech that has at least the chosen sampling rate


@dataclass(frozen=True)
class CorpusOptions:
    """How a corpus is read, normalised and split."""

    reading: ReadingOptions = group(ReadingOptions)
    language: LanguageOptions = group(LanguageOptions)
    split: SplitOptions = group(SplitOptions)


@dataclass(frozen=True)
class Prepared:
    """A corpus with normalised texts, and its parts; `speakers` says how speakers were found."""

    corpus: Corpus
    language: Language
    split: CorpusSplit
    speakers: str

    def hours(self, part: str) -> float:
        """Hours of speech of a part."""
        return sum(map(self.corpus.duration_s, self.split.parts[part])) / 3600

    def seconds_of_speakers(self, parts: Iterable[str]) -> dict[tuple[str, str | None], float]:
        """{(part, speaker): seconds of speech}."""
        seconds: dict[tuple[str, str | None], float] = {}
        for part in parts:
            for one in self.split.parts[part]:
                key = part, one.speaker
                seconds[key] = seconds.get(key, 0.0) + self.corpus.duration_s(one)
        return seconds

    def counts(self, part: str) -> Counter:
        """{word: count} of a part."""
        return Counter(word for one in self.split.parts[part] for word in one.text.split())


def prepare(sources: list[Path], options: CorpusOptions) -> Prepared:
    """Read, normalise and split a corpus. Raises UserError for faults of sources, and if nothing is left."""
    corpus = read_corpus(sources, options.reading)
    language = choose_language((one.text for one in corpus.utterances), options.language)
    normalise = Normaliser(language.known, language.is_english)
    _write_words(corpus, normalise if options.language.normalise else lambda text: " ".join(text.split()))
    _check_times(corpus, options.reading.skip_bad, " ".join(map(str, sources)))
    if not corpus.utterances:
        raise UserError(
            f"{' '.join(map(str, sources))}: no utterance is left; check what was left out: "
            f"{'; '.join(corpus.notes)}"
        )
    find_parts(corpus)
    speakers, are_known = name_speakers(corpus, options.reading)
    name_utterances(corpus)
    return Prepared(corpus, language, split(corpus, options.split, are_known), speakers)


def _write_words(corpus: Corpus, normalise) -> None:
    """Normalise the texts. Utterances without words, or with numbers that cannot be spelled, are left out."""
    written = [(one, normalise(one.text)) for one in corpus.utterances]
    reasons = {None: "numbers in digits, which are spelled in English only", "": "no words"}
    for nothing, what in reasons.items():
        if found := [one for one, text in written if text == nothing]:
            corpus.notes.append(f"left out: utterances with {what}: {named([_shown(one) for one in found])}")
    corpus.utterances = [replace(one, text=text) for one, text in written if text]


def _shown(one: OwnUtterance) -> str:
    return f"{one.name} ('{one.text[:30]}')" if one.text else one.name


def _check_times(corpus: Corpus, skip_bad: bool, where: str) -> None:
    """Clip utterances to the end of their recordings. Raises UserError for utterances outside their
    recordings, unless `skip_bad`."""
    faults, kept = Faults(skip_bad), []
    for one in corpus.utterances:
        seconds = corpus.recordings[one.recording].seconds
        if one.begin_s is None:
            kept.append(one)
            continue
        assert one.end_s is not None
        if 0 <= one.begin_s < min(one.end_s, seconds) - _MIN_S and one.end_s <= seconds + _SLACK_S:
            kept.append(replace(one, end_s=min(one.end_s, seconds)))
        else:
            message = f"{one.name} from {one.begin_s:g} to {one.end_s:g} s of {seconds:.2f} s"
            faults.add(_OUTSIDE, "correct their times", message)
    corpus.notes += faults.settle(where)
    corpus.utterances = kept


def choose_rate(corpus: Corpus) -> int:
    """The sampling rate of features in Hz: the highest, up to 16 kHz, that 95 % of the speech has."""
    seconds: dict[int, float] = {}
    for recording in corpus.recordings.values():
        rate = min(recording.rate or _USUAL_RATE_HZ, _USUAL_RATE_HZ)
        seconds[rate] = seconds.get(rate, 0.0) + recording.seconds
    total, reached = sum(seconds.values()), 0.0
    for rate in sorted(seconds, reverse=True):
        reached += seconds[rate]
        if reached >= _SHARE_AT_RATE * total:
            return rate
    return _USUAL_RATE_HZ


def tables_of(corpus: Corpus, utterances: list[OwnUtterance]) -> dict[str, dict[str, object]]:
    """The tables of the data directory of these utterances."""
    recordings = {one.recording: corpus.recordings[one.recording] for one in utterances}
    tables: dict[str, dict[str, object]] = {
        "text": {one.name: one.text for one in utterances},
        "utt2spk": {one.name: one.speaker for one in utterances},
        "utt2dur": {one.name: f"{corpus.duration_s(one):.3f}" for one in utterances},
    }
    if any(one.begin_s is not None for one in corpus.utterances):
        tables["segments"] = {one.name: _segment(corpus, one) for one in utterances}
        tables["reco2dur"] = {name: f"{recording.seconds:.4f}" for name, recording in recordings.items()}
        keys = {name: name for name in recordings}
    else:
        keys = {one.recording: one.name for one in utterances}
    tables["wav.scp"] = {keys[name]: recording.entry for name, recording in recordings.items()}
    if any(recording.side for recording in recordings.values()):
        sides = {keys[name]: recording.side for name, recording in recordings.items()}
        tables[FILE_AND_CHANNEL] = {key: side or f"{key} A" for key, side in sides.items()}
    genders: dict[str, object] = {one.speaker: one.gender for one in utterances if one.speaker is not None}
    return tables | ({"spk2gender": genders} if all(genders.values()) else {})


def _segment(corpus: Corpus, one: OwnUtterance) -> str:
    begin = one.begin_s or 0.0
    return f"{one.recording} {begin:.3f} {begin + corpus.duration_s(one):.3f}"


def write_listing(prepared: Prepared, path: Path) -> None:
    """Write a table of all utterances, the input of data directories. The file is replaced only if its
    content changes."""
    corpus, lines = prepared.corpus, ["part\tutterance\tspeaker\taudio\tside\tbegin\tseconds\ttext"]
    for part in PARTS:
        for one in sorted(prepared.split.parts[part], key=lambda one: one.name):
            audio = corpus.recordings[one.recording]
            begin = "" if one.begin_s is None else f"{one.begin_s:.3f}"
            seconds = f"{corpus.duration_s(one):.3f}"
            lines.append(
                "\t".join(
                    (part, one.name, one.speaker or "", audio.entry, audio.side, begin, seconds, one.text)
                )
            )
    text = "\n".join(lines) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(text)
