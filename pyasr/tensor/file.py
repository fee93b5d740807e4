"""Files of tensors and plain values. They are read with `weights_only`, so a file from elsewhere can hold no code."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from pyasr.base.output import atomic_write


def save_tensors(path: Path, content: dict) -> None:
    """Write tensors and plain values, atomically.

    The bytes are made in memory first: torch's own writer turns a full disk into an error about its file format.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with atomic_write(path, "wb") as f:
        f.write(buffer.getbuffer())


def load_tensors(path: Path) -> dict:
    """What `save_tensors` wrote, on the CPU. A damaged file raises one of many exceptions, as it comes."""
    return torch.load(path, map_location="cpu", weights_only=True)
