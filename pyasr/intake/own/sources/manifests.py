"""Manifests of lhotse: recordings and supervisions, or cuts. Names of files tell train, dev and test."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.base.files.pipes import is_command
from pyasr.intake.lhotse import Manifests, read_cuts, read_manifests
from pyasr.intake.own.reading.audio_files import recording_of
from pyasr.intake.own.reading.own_corpus import Corpus, Faults, OwnUtterance, ReadingOptions, named, part_of
from pyasr.intake.own.sources.kinds import Kind, Places, register

_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_LISTED = "utils/import_lhotse.py lists all of them"


def manifest_files(places: Places) -> list[Path]:
    """The manifests among the given files and in the given folders, by their names."""
    files = [path for path in places.top_files if path.name.lower().endswith(_SUFFIXES)]
    return [path for path in files if path in places.files or _role(path)]


def _role(path: Path) -> str:
    """`recordings`, `supervisions` or `cuts` if the name of a manifest contains it, else ''."""
    return next((role for role in ("recordings", "supervisions", "cuts") if role in path.name.lower()), "")


def groups(files: list[Path]) -> list[tuple[Path, ...]]:
    """The manifests that belong together, (recordings, supervisions) or (cuts,): their names differ only in
    these words.

    Of files without these words in their names, two are recordings and supervisions, and one is cuts. Raises
    UserError if recordings or supervisions are missing.
    """
    if len(files) <= 2 and not any(map(_role, files)):
        return [tuple(files)]
    pairs: dict[str, dict[str, Path]] = {}
    for path in files:
        pairs.setdefault(path.name.lower().replace(_role(path) or "\0", ""), {})[_role(path)] = path
    cuts: list[tuple[Path, ...]] = [(found["cuts"],) for found in pairs.values() if "cuts" in found]
    for found in pairs.values():
        alone = [role for role in ("recordings", "supervisions") if role in found]
        if "" in found or len(alone) == 1 and not cuts:
            path = found.get("") or found[alone[0]]
            missing = "supervisions" if alone == ["recordings"] else "recordings"
            raise UserError(
                f"{path}: the manifest of {missing} that belongs to it is missing; give RECORDINGS and "
                "SUPERVISIONS, or cuts"
            )
    return cuts or [(found["recordings"], found["supervisions"]) for found in pairs.values()]


def read(places: Places, options: ReadingOptions) -> Corpus:
    """The utterances of all manifests."""
    files, faults = manifest_files(places), Faults(options.skip_bad)
    corpus = Corpus(f"lhotse's manifests ({named([path.name for path in files])})")
    found = groups(files)
    for group in found:
        manifests = (
            read_cuts(group[0], prefix_speakers=False)
            if len(group) == 1
            else read_manifests(group[0], group[1], prefix_speakers=False)
        )
        if manifests.problems:
            raise UserError(
                f"{len(manifests.problems)} problem(s) in the manifests; the first: "
                f"{manifests.problems[0]}; {_LISTED}"
            )
        _add(manifests, group[0], corpus, faults, part_of(group[0].name) if len(found) > 1 else "")
    corpus.notes += faults.settle(places)
    return corpus


def _add(manifests: Manifests, path: Path, corpus: Corpus, faults: Faults, part: str) -> None:
    corpus.notes += manifests.notes
    entries = {name: _placed(entry, path) for name, entry in manifests.audio.items()}
    for one in manifests.utterances:
        key = f"{one.recording}#{entries[one.recording]}"
        if key not in corpus.recordings:
            recording = recording_of(
                entries[one.recording], one.recording, faults, manifests.seconds[one.recording]
            )
            if recording is None:
                continue
            corpus.recordings[key] = replace(recording, side=_side(manifests, one.recording))
        if one.text is not None:
            speaker = None if one.speaker == one.recording else one.speaker
            corpus.utterances.append(
                OwnUtterance(one.name, key, one.text, speaker, one.begin, one.end, part, one.gender)
            )
    if silent := [one.name for one in manifests.utterances if one.text is None]:
        corpus.notes.append(f"left out: supervisions without a text: {named(silent)}")


def _side(manifests: Manifests, name: str) -> str:
    """The value of reco2file_and_channel for one of several channels of a file; '' for other recordings."""
    file, channel = manifests.channels[name]
    return f"{file} {channel}" if channel else ""


def _placed(entry: str, manifest: Path) -> str:
    """An entry with an absolute path. A relative path begins in the current directory or, if there is no such
    file, in the manifest's folder or a folder above it."""
    if is_command(entry) or os.path.isabs(entry):
        return entry
    roots = (Path.cwd(), *manifest.resolve().parents)
    return str(next((root / entry for root in roots if (root / entry).exists()), roots[0] / entry))


register(Kind("lhotse's manifests", 20, lambda places: bool(manifest_files(places)), read))
