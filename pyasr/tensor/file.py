"""Files of tensors and plain values. They are read with `weights_only`, so files from other sources cannot
contain code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from pyasr.base.errors import UserError
from pyasr.base.files.zip_files import check_stored
from pyasr.base.outputs.output import atomic_write
from pyasr.base.system_errors import naming

Object = TypeVar("Object")


def save_tensors(path: Path, content: dict) -> None:
    """Write tensors and plain values, atomically.

    The bytes are first written to memory, because torch's own writer reports a full disk as an error about
    its file format.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with atomic_write(path, "wb") as f:
        f.write(buffer.getbuffer())


def load_tensors(path: Path) -> dict:
    """Read what `save_tensors` wrote, on the CPU. A damaged file raises one of many exceptions, an unreadable
    file UserError.

    The file is a zip archive, whose checksums torch writes but does not verify.
    """
    with naming(path):
        with zipfile.ZipFile(path) as archive:
            check_stored(archive)
            damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"{damaged} does not match its checksum")
        return torch.load(path, map_location="cpu", weights_only=True)


def load_object(path: Path, make: Callable[[dict], Object], kind: str, remedy: str, step: str) -> Object:
    """The object that `make` constructs from the content of a file of this `kind`.

    Raises UserError if the file does not exist or is damaged; `remedy` and `step` say how to create it.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file; {remedy} first ({step})")
    try:
        return make(load_tensors(path))
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    except Exception as error:  # a damaged file fails in many ways, with the same meaning to the user
        raise UserError(
            f"{path}: not a whole {kind} file ({type(error).__name__}); {remedy} again"
        ) from error
