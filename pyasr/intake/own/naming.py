"""Names of utterances, recordings and speakers in Kaldi's tables, and who speaks where the source does not tell."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.intake.own.corpus import Corpus, ReadingOptions, Utterance, named, part_of

_MOST_NAME = 32  # characters of a speaker's name; longer ones are cut where they stay distinct
_CUT_NAME = 12


def name_speakers(corpus: Corpus, options: ReadingOptions) -> tuple[str, bool]:
    """Give every utterance a speaker; (a sentence on how, whether they are known). Raises UserError where `--speakers` finds none."""
    for rule in ["source", "folder", "prefix", "each"] if options.speakers == "auto" else [options.speakers]:
        told, find = _RULES[rule]
        if speakers := find(corpus):
            names = _plain_names(speakers)
            corpus.utterances = [replace(one, speaker=name) for one, name in zip(corpus.utterances, names)]
            return f"{told}: {named(sorted(set(names)))}", rule not in ("one", "each")
    raise UserError(f"--speakers {options.speakers}: the corpus does not tell speakers so; give --speakers auto")


def _of_source(corpus: Corpus) -> list[str]:
    """Empty where the source names none; the recording stands for one that is missing."""
    speakers = [one.speaker or _file(corpus, one) for one in corpus.utterances]
    return speakers if any(one.speaker for one in corpus.utterances) else []


def _file(corpus: Corpus, utterance: Utterance) -> str:
    return _stem(corpus.recordings[utterance.recording].entry) if utterance.begin_s is not None else utterance.name


def _stem(entry: str) -> str:
    """A name for an entry of wav.scp."""
    return os.path.splitext(os.path.basename(entry.rstrip("| ")))[0]


def _folders(corpus: Corpus) -> list[tuple[str, ...]]:
    """The folders of each utterance's file below the one that holds all; empty where audio comes from commands."""
    entries = [corpus.recordings[one.recording].entry for one in corpus.utterances]
    if not all(entry.startswith("/") for entry in entries):
        return []
    root = os.path.commonpath([os.path.dirname(entry) for entry in entries])
    return [Path(os.path.relpath(os.path.dirname(entry), root)).parts for entry in entries]


def _by_folders(corpus: Corpus) -> list[str]:
    """The first folder below the common one, that of a part (train, dev, test) left out; empty unless all files are in such folders,
    several in each on average."""
    folders = _folders(corpus)
    if folders and all(parts and part_of(parts[0]) for parts in folders):
        folders = [parts[1:] for parts in folders]
    if not folders or not all(folders):
        return []
    names = [parts[0] for parts in folders]
    return names if 1 < len(set(names)) <= len(names) / 2 else []


def _by_prefixes(corpus: Corpus) -> list[str]:
    """What stands before the first '-' or '_'; empty unless all names have one and several share it."""
    prefixes = [re.match(r"([^-_]+)[-_].", one.name) for one in corpus.utterances]
    if not all(prefixes):
        return []
    names = [match[1] for match in prefixes]
    return names if 1 < len(set(names)) <= len(names) / 2 else []


_RULES = {  # of telling speakers: a part of a sentence, what finds one for each utterance
    "source": ("of the source", _of_source),
    "folder": ("by folders", _by_folders),
    "prefix": ("by the names of files up to '-' or '_'", _by_prefixes),
    "one": ("one for all", lambda corpus: ["speaker"] * len(corpus.utterances)),
    "each": ("unknown, each recording is taken for one", lambda corpus: [_file(corpus, one) for one in corpus.utterances]),
}


def find_parts(corpus: Corpus) -> None:
    """Where the source names no part, folders called train, dev or test do, if all files are in such."""
    folders = _folders(corpus)
    parts = [part_of(path[0]) if path else "" for path in folders]
    if parts and all(parts) and "train" in parts and len(set(parts)) > 1 and not any(one.part for one in corpus.utterances):
        corpus.utterances = [replace(one, part=part) for one, part in zip(corpus.utterances, parts)]


def _plain_names(speakers: list[str]) -> list[str]:
    """Words for tables, without '-', which sorts before all other characters of names. Raises UserError where two become one."""
    words = {speaker: re.sub(r"[^\w.]+", "_", speaker).strip("_") or "_" for speaker in dict.fromkeys(speakers)}
    are_long = all(len(word) > _MOST_NAME for word in words.values())
    if are_long and len({word[:_CUT_NAME] for word in words.values()}) == len(words):
        words = {speaker: word[:_CUT_NAME] for speaker, word in words.items()}
    owners: dict[str, str] = {}
    for speaker, word in words.items():
        if (other := owners.setdefault(word, speaker)) != speaker:
            raise UserError(f"speakers '{other}' and '{speaker}' would both be called {word}; rename one of them")
    return [words[speaker] for speaker in speakers]


def name_utterances(corpus: Corpus) -> None:
    """Give utterances names of their own, SPEAKER-NAME, and recordings theirs. Utterances that are there twice are left out."""
    _leave_out_repeated(corpus)
    names = _distinct_names(corpus)
    files = _distinct([_stem(recording.entry) for recording in corpus.recordings.values()])
    recordings = dict(zip(corpus.recordings, files))
    pairs = zip(corpus.utterances, names)
    corpus.utterances = [replace(one, name=name, recording=recordings[one.recording]) for one, name in pairs]
    corpus.recordings = {recordings[key]: recording for key, recording in corpus.recordings.items()}


def _leave_out_repeated(corpus: Corpus) -> None:
    seen, kept, repeated = set(), [], []
    for one in corpus.utterances:
        place = (one.recording, one.begin_s, one.end_s, one.text)
        (repeated if place in seen else kept).append(one)
        seen.add(place)
    if repeated:
        corpus.notes.append(f"left out: further rows for the same audio and text: {named([one.name for one in repeated])}")
        corpus.utterances = kept


def _distinct_names(corpus: Corpus) -> list[str]:
    """SPEAKER-NAME of all utterances, with times where names do not suffice, with folders where these do not. Raises UserError where two
    cannot be told apart."""
    folders = _folders(corpus) or [()] * len(corpus.utterances)
    names: list[str] = []
    for times, paths in ((False, False), (True, False), (True, True)):
        names = [_key(one, times, path if paths else ()) for one, path in zip(corpus.utterances, folders)]
        if len(set(names)) == len(names):
            return names
    twice = Counter(names).most_common(1)[0][0]
    raise UserError(f"two utterances would be called {twice}; give each a file, a speaker or times of its own")


def _key(one: Utterance, times: bool, folders: tuple[str, ...]) -> str:
    name = _word("_".join((*folders, one.name)))
    if times and one.begin_s is not None:
        name += f"-{round(100 * one.begin_s):07d}-{round(100 * one.end_s):07d}"
    return name if name.startswith(f"{one.speaker}-") else f"{one.speaker}-{name}"


def _word(name: str) -> str:
    return "_".join(name.replace("/", " ").split())


def _distinct(names: list[str]) -> list[str]:
    """Words for tables: the names, numbered where one occurs several times."""
    counts, seen, found = Counter(map(_word, names)), Counter(), []
    for name in map(_word, names):
        seen[name] += 1
        found.append(name if counts[name] == 1 else f"{name}.{seen[name]}")
    return found


