"""Names of utterances, recordings and speakers in Kaldi's tables, and rules that find the speakers if the
source does not name them."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.reading.own_corpus import Corpus, OwnUtterance, ReadingOptions, named, part_of

_MAX_NAME = 32  # characters of a speaker's name; longer names are truncated if they stay distinct
_CUT_NAME = 12


def name_speakers(corpus: Corpus, options: ReadingOptions) -> tuple[str, bool]:
    """Assign a speaker to each utterance; return (a sentence on the rule used, whether speakers are known).
    Raises UserError if `--speakers` finds none."""
    for rule in ["source", "folder", "prefix", "each"] if options.speakers == "auto" else [options.speakers]:
        message, find = _RULES[rule]
        if speakers := find(corpus):
            names = _plain_names(speakers)
            corpus.utterances = [replace(one, speaker=name) for one, name in zip(corpus.utterances, names)]
            return f"{message}: {named(sorted(set(names)))}", rule not in ("one", "each")
    raise UserError(
        f"--speakers {options.speakers}: this rule finds no speakers in the corpus; give --speakers auto"
    )


def _of_source(corpus: Corpus) -> list[str]:
    """Speakers of the source; empty if it names none. A missing speaker is replaced by the recording."""
    speakers = [one.speaker or _file(corpus, one) for one in corpus.utterances]
    return speakers if any(one.speaker for one in corpus.utterances) else []


def _file(corpus: Corpus, utterance: OwnUtterance) -> str:
    return (
        _stem(corpus.recordings[utterance.recording].entry)
        if utterance.begin_s is not None
        else utterance.name
    )


def _stem(entry: str) -> str:
    """A name for an entry of wav.scp."""
    return os.path.splitext(os.path.basename(entry.rstrip("| ")))[0]


def _folders(corpus: Corpus) -> list[tuple[str, ...]]:
    """The folders of each utterance's file below the common folder; empty for audio from commands."""
    entries = [corpus.recordings[one.recording].entry for one in corpus.utterances]
    if not all(entry.startswith("/") for entry in entries):
        return []
    root = os.path.commonpath([os.path.dirname(entry) for entry in entries])
    return [Path(os.path.relpath(os.path.dirname(entry), root)).parts for entry in entries]


def _by_folders(corpus: Corpus) -> list[str]:
    """The first folder below the common folder that is not a part (train, dev, test). Empty unless all files
    are in such folders, with several files per folder on average."""
    folders = _folders(corpus)
    if folders and all(parts and part_of(parts[0]) for parts in folders):
        folders = [parts[1:] for parts in folders]
    if not folders or not all(folders):
        return []
    names = [parts[0] for parts in folders]
    return names if 1 < len(set(names)) <= len(names) / 2 else []


def _by_prefixes(corpus: Corpus) -> list[str]:
    """The prefix of names before the first '-' or '_'; empty unless all names have one and several names
    share it."""
    prefixes = [re.match(r"([^-_]+)[-_].", one.name) for one in corpus.utterances]
    if not all(prefixes):
        return []
    names = [match[1] for match in prefixes if match]
    return names if 1 < len(set(names)) <= len(names) / 2 else []


_RULES = {  # rules for speakers: (description, function that returns a speaker per utterance)
    "source": ("of the source", _of_source),
    "folder": ("by folders", _by_folders),
    "prefix": ("by the names of files up to '-' or '_'", _by_prefixes),
    "one": ("one for all", lambda corpus: ["speaker"] * len(corpus.utterances)),
    "each": (
        "unknown, each recording counts as one",
        lambda corpus: [_file(corpus, one) for one in corpus.utterances],
    ),
}


def find_parts(corpus: Corpus) -> None:
    """If the source names no parts and all files are in folders called train, dev or test, take the parts
    from these folders."""
    folders = _folders(corpus)
    parts = [part_of(path[0]) if path else "" for path in folders]
    if (
        parts
        and all(parts)
        and "train" in parts
        and len(set(parts)) > 1
        and not any(one.part for one in corpus.utterances)
    ):
        corpus.utterances = [replace(one, part=part) for one, part in zip(corpus.utterances, parts)]


def _plain_names(speakers: list[str]) -> list[str]:
    """Speaker names as words for tables, without '-', which sorts before all other characters of names.
    Raises UserError if two names become equal."""
    words = {
        speaker: re.sub(r"[^\w.]+", "_", speaker).strip("_") or "_" for speaker in dict.fromkeys(speakers)
    }
    are_long = all(len(word) > _MAX_NAME for word in words.values())
    if are_long and len({word[:_CUT_NAME] for word in words.values()}) == len(words):
        words = {speaker: word[:_CUT_NAME] for speaker, word in words.items()}
    owners: dict[str, str] = {}
    for speaker, word in words.items():
        if (other := owners.setdefault(word, speaker)) != speaker:
            raise UserError(
                f"speakers '{other}' and '{speaker}' would both be named {word}; rename one of them"
            )
    return [words[speaker] for speaker in speakers]


def name_utterances(corpus: Corpus) -> None:
    """Give utterances (SPEAKER-NAME) and recordings unique names. Repeated utterances are left out."""
    _skip_repeated(corpus)
    names = _distinct_names(corpus)
    files = _distinct([_stem(recording.entry) for recording in corpus.recordings.values()])
    recordings = dict(zip(corpus.recordings, files))
    pairs = zip(corpus.utterances, names)
    corpus.utterances = [replace(one, name=name, recording=recordings[one.recording]) for one, name in pairs]
    corpus.recordings = {recordings[key]: recording for key, recording in corpus.recordings.items()}


def _skip_repeated(corpus: Corpus) -> None:
    seen, kept, repeated = set(), list[OwnUtterance](), list[OwnUtterance]()
    for one in corpus.utterances:
        place = (one.recording, one.begin_s, one.end_s, one.text)
        (repeated if place in seen else kept).append(one)
        seen.add(place)
    if repeated:
        corpus.notes.append(
            f"left out: further rows for the same audio and text: {named([one.name for one in repeated])}"
        )
        corpus.utterances = kept


def _distinct_names(corpus: Corpus) -> list[str]:
    """SPEAKER-NAME of all utterances, with times if names are not unique, and with folders if times do not
    suffice. Raises UserError if two names stay equal."""
    folders = _folders(corpus) or [()] * len(corpus.utterances)
    names: list[str] = []
    for times, paths in ((False, False), (True, False), (True, True)):
        names = [_key(one, times, path if paths else ()) for one, path in zip(corpus.utterances, folders)]
        if len(set(names)) == len(names):
            return names
    twice = Counter(names).most_common(1)[0][0]
    raise UserError(f"two utterances would be named {twice}; give them different files, speakers or times")


def _key(one: OwnUtterance, times: bool, folders: tuple[str, ...]) -> str:
    name = _word("_".join((*folders, one.name)))
    if times and one.begin_s is not None:
        assert one.end_s is not None
        name += f"-{round(100 * one.begin_s):07d}-{round(100 * one.end_s):07d}"
    return name if name.startswith(f"{one.speaker}-") else f"{one.speaker}-{name}"


def _word(name: str) -> str:
    return "_".join(name.replace("/", " ").split())


def _distinct(names: list[str]) -> list[str]:
    """Names as words for tables; repeated names are numbered."""
    counts, seen, found = Counter(map(_word, names)), Counter[str](), []
    for name in map(_word, names):
        seen[name] += 1
        found.append(name if counts[name] == 1 else f"{name}.{seen[name]}")
    return found
