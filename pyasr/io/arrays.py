"""Files of named numpy arrays (.npz), and of numbers that stay on disk."""

from __future__ import annotations

import io
import math
import struct
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.zip_files import check_stored
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import disk_error, is_absence

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
        with _reading, zipfile.ZipFile(path) as archive:
            check_stored(archive)
            arrays = {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}
    except OSError as error:
        told = disk_error(error, path)
        raise (UserError(f"{path}: no file of arrays ({error}); {remedy}") if is_absence(error) else told) from None
    except (ValueError, EOFError, AttributeError, TypeError, RuntimeError, struct.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no file of arrays ({error}); {remedy}") from None
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise UserError(f"{path}: it has no {', '.join(missing)}; {remedy}")
    return arrays


def _array(content: bytes) -> np.ndarray:
    """The array in a member; numpy's own reader makes room for whatever the head announces. Raises ValueError for anything else."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read_head = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read_head is None:
        raise ValueError(f"arrays of version {version}")
    shape, in_columns, dtype = read_head(file)
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("an array is not whole")
    values = np.frombuffer(content, dtype, math.prod(shape), file.tell()) if math.prod(shape) else np.empty(0, dtype)
    return values.reshape(shape, order="F" if in_columns else "C").copy()


def map_numbers(path: Path, dtype: np.dtype, mode: str = "r") -> np.ndarray:
    """The numbers of which a file consists, which stay on disk; for torch in mode "r+", since it wants arrays that can be written."""
    return np.memmap(path, dtype, mode=mode).view(np.ndarray) if path.stat().st_size else np.zeros(0, dtype)  # none cannot be mapped
