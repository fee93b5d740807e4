"""The aligned phones of many utterances, on disk, memory-mapped so that all ranks of a host share one copy.

PATH is written last. The data are in PATH.keys (`pyasr.io.mapped_files.packed_rows`), PATH.phones, int32,
PATH.starts, int64, PATH.begins, int64: the index of each utterance's first phone, and the total; and
PATH.lengths, int64: the number of frames of each utterance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pyasr.base.outputs.output import atomic_write
from pyasr.io.mapped_files.arrays import load_arrays, map_numbers, save_arrays
from pyasr.io.mapped_files.packed_rows import StoredRows, num_rows, save_rows
from pyasr.sequence.lfmmi.chain import AlignedPhones

_PARTS: dict[str, np.dtype] = {
    "phones": np.dtype(np.int32),
    "starts": np.dtype(np.int64),
    "begins": np.dtype(np.int64),
    "lengths": np.dtype(np.int64),
}


class PackedPhones:
    """The aligned phones of utterances, by number.

    names    utterance names
    lengths  number of frames of each, int64
    """

    def __init__(
        self,
        names: Sequence[str],
        phones: np.ndarray,
        starts: np.ndarray,
        begins: np.ndarray,
        lengths: np.ndarray,
    ):
        self.names = names
        self.lengths = lengths
        self._phones = phones
        self._starts = starts
        self._begins = begins

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> tuple[str, AlignedPhones]:
        """An utterance and its phones."""
        begin, end = self._begins[number : number + 2]
        starts = self._starts[begin + number : end + number + 1]  # one more per utterance than phones
        return self.names[number], AlignedPhones(self._phones[begin:end], starts)

    def __iter__(self) -> Iterator[tuple[str, AlignedPhones]]:
        return map(self.__getitem__, range(len(self)))

    @staticmethod
    def of(aligned: Mapping[str, AlignedPhones]) -> PackedPhones:
        """The phones of utterances in memory."""
        numbers = np.array([len(one.phones) for one in aligned.values()], np.int64)
        phones, starts = ([getattr(one, name) for one in aligned.values()] for name in ("phones", "starts"))
        lengths = np.array([one.num_frames for one in aligned.values()], np.int64)
        return PackedPhones(
            list(aligned),
            _joined(phones, np.int32),
            _joined(starts, np.int64),
            np.append(0, np.cumsum(numbers)),
            lengths,
        )


def save_aligned_phones(path: Path, aligned: Iterable[tuple[str, AlignedPhones]]) -> None:
    """Write the aligned phones of utterances, of which one is in memory at a time."""
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_write(_part(path, name), "wb")) for name in _PARTS}
        save_rows(_part(path, "keys"), _written(aligned, files))
    save_arrays(path, number=np.array(num_rows(_part(path, "keys"))))


def _written(aligned: Iterable[tuple[str, AlignedPhones]], files: dict[str, BinaryIO]) -> Iterator[str]:
    """The names of utterances whose phones are written."""
    num_phones = 0
    files["begins"].write(_PARTS["begins"].type(num_phones))
    for name, one in aligned:
        num_phones += len(one.phones)
        written = {
            "phones": one.phones,
            "starts": one.starts,
            "begins": num_phones,
            "lengths": one.num_frames,
        }
        for part, numbers in written.items():
            files[part].write(np.ascontiguousarray(numbers, _PARTS[part]).data)
        yield name


def load_aligned_phones(path: Path) -> PackedPhones:
    """Map what `save_aligned_phones` wrote, in the same order. Raises UserError if there is no file."""
    load_arrays(path, ("number",))
    return PackedPhones(
        StoredRows(_part(path, "keys")),
        *(map_numbers(_part(path, name), kind) for name, kind in _PARTS.items()),
    )


def _joined(arrays: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, kind), *arrays]).astype(kind)


def _part(path: Path, name: str) -> Path:
    return path.with_name(f"{path.name}.{name}")
