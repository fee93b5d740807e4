"""Files of named numpy arrays (.npz), and memory-mapped files of numbers."""

from __future__ import annotations

import io
import math
import struct
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from pyasr.base.errors import UserError
from pyasr.base.files.zip_files import check_stored
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import disk_error, is_absence

# numpy parses the headers of arrays with ast.literal_eval. In Python 3.11 (observed in 3.11.7), concurrent
# calls can fail with a SystemError, if a garbage collection within one call switches to another thread that
# calls it.
_reading = threading.Lock()


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays, atomically."""
    with atomic_write(path, "wb") as f:
        np.savez(f, **arrays)  # type: ignore[arg-type]


def load_arrays(
    path: Path, needed: Iterable[str] = (), remedy: str = "create it again"
) -> dict[str, np.ndarray]:
    """All arrays of a file, in memory. Threads may call it concurrently.

    Raises UserError, ending with `remedy`, if the file is missing, damaged, something else, or lacks an array
    of `needed`.
    """
    try:
        with _reading, zipfile.ZipFile(path) as archive:
            check_stored(archive)
            arrays = {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}
    except OSError as error:
        refusal = disk_error(error, path)
        raise (
            UserError(f"{path}: not a file of arrays ({error}); {remedy}") if is_absence(error) else refusal
        ) from None
    except (
        ValueError,
        EOFError,
        AttributeError,
        TypeError,
        RuntimeError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        raise UserError(f"{path}: not a file of arrays ({error}); {remedy}") from None
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise UserError(f"{path}: missing arrays {', '.join(missing)}; {remedy}")
    return arrays


def _array(content: bytes) -> np.ndarray:
    """The array in a member. Raises ValueError for anything else; numpy's reader would allocate any size that
    a header gives."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read_head = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_head is None:
        raise ValueError(f"arrays of version {version}")
    shape, in_columns, dtype = read_head(file)
    if (
        dtype.hasobject
        or min(shape, default=0) < 0
        or math.prod(shape) * dtype.itemsize != len(content) - file.tell()
    ):
        raise ValueError("an array is incomplete")
    values = (
        np.frombuffer(content, dtype, math.prod(shape), file.tell())
        if math.prod(shape)
        else np.empty(0, dtype)
    )
    return values.reshape(shape, order="F" if in_columns else "C").copy()


def map_numbers(path: Path, dtype: np.dtype | type[np.generic], mode: Literal["r", "r+"] = "r") -> np.ndarray:
    """The numbers of a file, memory-mapped; for torch use mode "r+", since it requires writable arrays."""
    # mmap refuses 0 bytes
    return np.memmap(path, dtype, mode=mode).view(np.ndarray) if path.stat().st_size else np.zeros(0, dtype)
