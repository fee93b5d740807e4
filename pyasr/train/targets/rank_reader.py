"""What a rank of a training knows of the data directory: packed tables of its own utterances, which the step has made for all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.packed_tables import PackedTables, are_valid
from pyasr.train.targets.pdf_targets import Targets

FEATURES_FILE, TEACHERS_FILE = "features.npz", "teachers_features.npz"


def rank_reader(directory: Path | None, data: Path, options: InputOptions, targets: Targets, keys: Iterable[str],
                matrix: np.ndarray | None = None, name: str = FEATURES_FILE) -> FeatureReader:  # fmt: skip
    """A reader of the utterances `keys` of `targets`, by the tables DIRECTORY/NAME; by those of `data`, as a whole, where there are none.

    matrix  as of `FeatureReader`
    """
    if directory is None or not (directory / name).exists():
        return FeatureReader(data, options, matrix)
    rows = np.unique(np.fromiter(map(targets.row, keys), np.int64))
    return FeatureReader(data, options, matrix, tables=PackedTables(directory / name, targets.keys, rows, targets.row))


def are_prepared(targets: Path, *tables: Path) -> bool:
    """Whether an interrupted run has left targets, which are written last, and tables that ranks can read."""
    return targets.exists() and all(map(are_valid, tables))
