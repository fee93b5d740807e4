"""The hypotheses of a training set, expanded once and stored on disk, memory-mapped so that all ranks of a
host share one copy.

    with HypothesesWriter(path) as writer:
        writer.write("utt1", hypotheses)
    store = HypothesesStore(path)
    store["utt1"]

PATH is written last. The data are in PATH.arcs, int32 (num_arcs, 4): source, target, begin, length;
PATH.costs, float32 (num_arcs,); PATH.tids, int32; PATH.keys, the utterances; PATH.borders, int64
(num_utterances + 1, 2): the indices of each utterance's first arc and transition-id, and the totals.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from pyasr.base.cli.skipped_utterances import SkippedOptions, check_skipped
from pyasr.base.files import durable
from pyasr.base.outputs.output import atomic_write
from pyasr.base.outputs.written_digests import note_digest, open_hashed
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.trees.phone_segments import check_decoded
from pyasr.io.keys import Keys
from pyasr.io.mapped_files.arrays import load_arrays, map_numbers, save_arrays
from pyasr.io.mapped_files.packed_rows import GrowingRows, StoredRows, save_rows
from pyasr.sequence.lattices.hypotheses import Hypotheses, hypotheses_of

NO_LATTICE, NO_PATH = "there is no lattice", "no path of the lattice leads to its end"
OTHER_LENGTH = "the lattice has another number of frames than the alignment"
_FAULTS = "", NO_LATTICE, NO_PATH, OTHER_LENGTH
_NUM_CHECKED = 100
_KEYS, _BORDERS = "keys", "borders"
_PARTS = {"arcs": np.dtype(np.int32), "costs": np.dtype(np.float32), "tids": np.dtype(np.int32)}


class HypothesesWriter:
    """Writes a store, utterance by utterance; PATH is created if the `with` block ends without exception."""

    def __init__(self, path: Path):
        # arcs and transition-ids of each
        self.path, self.keys, self._sizes = path, GrowingRows(), array("q", (0, 0))

    def __enter__(self) -> HypothesesWriter:
        self._stack = contextlib.ExitStack()
        self._files = {
            part: self._stack.enter_context(open_hashed(_part(self.path, part))) for part in _PARTS
        }
        return self

    def write(self, key: str, of: Hypotheses) -> None:
        """Add an utterance."""
        arrays = {
            "arcs": np.stack([of.sources, of.targets, of.begins, of.lengths], 1),
            "costs": of.graph_costs,
            "tids": of.tids,
        }
        for part, numbers in arrays.items():
            self._files[part].write(np.ascontiguousarray(numbers, _PARTS[part]).data)
        self.keys.append(key)
        self._sizes.extend((of.num_arcs, len(of.tids)))

    def __exit__(self, kind, error, trace) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            for part in _PARTS:
                durable.sync(_part(self.path, part))
                note_digest(_part(self.path, part), self._files[part])
            save_rows(_part(self.path, _KEYS), self.keys)
            with atomic_write(_part(self.path, _BORDERS), "wb") as file:
                file.write(np.cumsum(np.reshape(self._sizes, (-1, 2)), 0, dtype=np.int64))
            save_arrays(self.path, number=np.array(len(self.keys)))


class HypothesesStore:
    """Reads what a writer wrote: `store[key]` are the hypotheses of an utterance.

    wanted  utterances that will be read; None: all
    """

    def __init__(self, path: Path, wanted: Container[str] | None = None):
        load_arrays(path, ("number",))
        keys = enumerate(StoredRows(_part(path, _KEYS)))
        self._index = {key: i for i, key in keys if wanted is None or key in wanted}
        self._borders = map_numbers(_part(path, _BORDERS), np.dtype(np.int64)).reshape(-1, 2)
        self._parts = {part: map_numbers(_part(path, part), dtype) for part, dtype in _PARTS.items()}

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, key: str) -> Hypotheses:
        place = self._index[key]
        (arc, tid), (arc_end, tid_end) = self._borders[place : place + 2]
        sources, targets, begins, lengths = (
            np.array(self._parts["arcs"][4 * arc : 4 * arc_end]).reshape(-1, 4).T.copy()
        )
        return Hypotheses(
            sources,
            targets,
            begins,
            lengths,
            np.array(self._parts["costs"][arc:arc_end]),
            np.array(self._parts["tids"][tid:tid_end]),
        )


def _part(path: Path, part: str) -> Path:
    return path.with_name(f"{path.name}.{part}")


def store_lattices(
    archives: list[Path],
    path: Path,
    keys: Keys,
    num_frames: Callable[[str], int],
    transitions: TransitionModel,
    max_missing: float,
) -> Keys:
    """Write the hypotheses of the utterances `keys` from archives of lattices; returns the utterances that
    have some.

    Utterances without a lattice, with an empty one, or with one of another number of frames are skipped,
    counted and named in the log. Raises UserError if their proportion exceeds `max_missing`, and for lattices
    of another model.
    """
    faults = _Faults(keys)
    checked: dict[str, np.ndarray] = {}
    with HypothesesWriter(path) as writer:
        for archive in archives:
            for key, lattice in read_either(archive):
                if faults.of(key) != NO_LATTICE:
                    continue
                of = hypotheses_of(lattice, transitions.num_tids, f"{archive}: {key}")
                fault = NO_PATH if of is None else OTHER_LENGTH if of.num_frames != num_frames(key) else ""
                faults.set(key, fault)
                if of is not None and not fault:
                    writer.write(key, of)
                    if len(checked) < _NUM_CHECKED:
                        checked[f"{archive}: {key}"] = of.a_path()
        check_decoded(checked, transitions)
    check_skipped(
        faults.skipped,
        len(keys),
        SkippedOptions(max_missing),
        str(archives[0].parent),
        "decode the training data again",
    )
    return faults.without


class _Faults:
    """Why utterances have no hypotheses, a byte for each: one of _FAULTS, at first that of no lattice."""

    def __init__(self, keys: Keys):
        self._keys, self._numbers = keys, np.zeros(len(keys.table), np.int8)
        self._numbers[keys.line_numbers()] = _FAULTS.index(NO_LATTICE)

    def of(self, key: str) -> str:
        """That of an utterance; '' for others."""
        line = self._keys.table.line_of(key)
        return "" if line is None else _FAULTS[self._numbers[line]]

    def set(self, key: str, fault: str) -> None:
        """Replace that of an utterance."""
        self._numbers[self._keys.table.line_of(key)] = _FAULTS.index(fault)

    @property
    def skipped(self) -> dict[str, str]:
        """{utterance: reason} of those without hypotheses."""
        return {
            key: self.of(key)
            for key in self._keys.take(np.flatnonzero(self._numbers[self._keys.line_numbers()]))
        }

    @property
    def without(self) -> Keys:
        """The utterances without a fault."""
        return self._keys.take(np.flatnonzero(self._numbers[self._keys.line_numbers()] == 0))
