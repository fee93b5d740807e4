"""A rank's view of the data directory: packed tables, written by the step for all ranks, of which a rank
reads its own utterances."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.packed_tables import PackedTables, are_valid
from pyasr.train.targets.pdf_targets import Targets

FEATURES_FILE, TEACHERS_FILE = "features.npz", "teachers_features.npz"


def rank_reader(
    directory: Path | None,
    data: Path,
    options: InputOptions,
    targets: Targets,
    keys: Iterable[str],
    matrix: np.ndarray | None = None,
    name: str = FEATURES_FILE,
) -> FeatureReader:
    """A reader of the utterances `keys` of `targets`, through the tables DIRECTORY/NAME. Without such a file,
    a reader of all of `data`.

    matrix  see `FeatureReader`
    """
    if directory is None or not (directory / name).exists():
        return FeatureReader(data, options, matrix)
    rows = np.unique(np.fromiter(map(targets.row, keys), np.int64))
    return FeatureReader(
        data, options, matrix, tables=PackedTables(directory / name, targets.keys, rows, targets.row)
    )


def are_prepared(targets: Path, *tables: Path) -> bool:
    """Whether an interrupted run left targets, which are written last, and valid tables."""
    return targets.exists() and all(map(are_valid, tables))
