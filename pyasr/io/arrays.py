"""Files of named numpy arrays (.npz), and of one array (.npy)."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write

# numpy reads the heads of arrays with ast.literal_eval. In Python 3.11 (3.11.7 was seen to) that fails with a SystemError when a garbage
# collection within it lets another thread into it.
_reading = threading.Lock()


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays by their names, atomically."""
    with atomic_write(path, "wb") as f:
        np.savez(f, **arrays)


def load_arrays(path: Path, needed: Iterable[str] = (), remedy: str = "make it again") -> dict[str, np.ndarray]:
    """All arrays of a file, in memory; threads may read at once.

    Raises UserError, which ends with `remedy`, for a file that is missing, damaged, something else, or without an array that is `needed`.
    """
    try:
        with _reading, np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no file of arrays ({error}); {remedy}") from None
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise UserError(f"{path}: it has no {', '.join(missing)}; {remedy}")
    return arrays


def save_array(path: Path, array: np.ndarray) -> None:
    """Write one array, atomically."""
    with atomic_write(path, "wb") as f:
        np.save(f, array)


def map_array(path: Path) -> np.ndarray:
    """An array of `save_array`, which stays on disk; read only."""
    with _reading:
        return np.load(path, mmap_mode="r").view(np.ndarray)
