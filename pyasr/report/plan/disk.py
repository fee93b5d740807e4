"""Data for a plan from the disk: durations of data directories, commands of done-files, sizes of language
models and networks."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

from pyasr.base.files.foreign_json import read_object
from pyasr.data.tables.datadir import DataDir
from pyasr.report.plan.derived_dirs import Speech
from pyasr.report.plan.networks import NetworkSize
from pyasr.report.plan.planned_calls import Call, from_command
from pyasr.report.plan.planned_data import Disk

_BYTES_PER_WORD = 5.5
_MAX_LINES = 100  # lines of an ARPA file that are read for its sizes


def disk_below(root: Path) -> Disk:
    """The disk of a recipe, whose paths are relative to `root`."""
    return Disk(
        lambda path: speech_of(root / path),
        lambda path: made_by(root / path, root),
        lambda path: num_ngrams(root / path / "lm.arpa.gz"),
        lambda path: num_words(root / path),
        lambda path, *shape: network_size(root / path, *shape),
    )


def speech_of(path: Path) -> Speech | None:
    """The speech of a data directory; None if it does not exist."""
    if not (path / "utt2spk").exists():
        return None
    seconds = DataDir(path).audio_durations
    return Speech(sum(seconds.values()) / 3600, len(seconds))


def made_by(path: Path, root: Path) -> Call | None:
    """The call in the done-file of an output; None without such a file or command."""
    try:
        return from_command(read_object(path / ".done.json")["command"], root)
    except (OSError, ValueError, KeyError):
        return None


def num_ngrams(path: Path) -> float | None:
    """Number of n-grams from the head of an ARPA file; None if there is none."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = [line for line, _ in zip(file, range(_MAX_LINES))]
    except OSError:
        return None
    counts = [int(found[1]) for found in map(re.compile(r"ngram +\d+ *= *(\d+)").match, head) if found]
    return float(sum(counts)) if counts else None


def num_words(path: Path) -> float | None:
    """Number of words of a text, estimated from its size; None if there is none."""
    return os.path.getsize(path) / _BYTES_PER_WORD if path.is_file() else None


def network_size(path: Path, columns: int, outputs: int, chunk: int) -> NetworkSize:
    """The size of a network from a file of layers. Raises UserError for an invalid file."""
    from pyasr.nn.networks.size import size_of_network  # imports torch

    return NetworkSize(*size_of_network(path, columns, outputs, chunk))
