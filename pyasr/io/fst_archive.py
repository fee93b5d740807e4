"""Archives of transducers, one per utterance: Kaldi's `fsts.*.gz` (training graphs), binary or text, plain or
compressed.

An entry is `KEY␣`, followed in binary by an OpenFst file of type `vector`. In text, a line break, arcs `FROM
TO INPUT OUTPUT [COST]`, final states `STATE [COST]`, and an empty line follow; the first state of the first
line is the start state.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.outputs.output import atomic_write
from pyasr.io.archive import damaged, read_key, write_content
from pyasr.io.content import read_content
from pyasr.io.object_kinds import FST, PEEK_BYTES, TEXT, refuse_other
from pyasr.io.openfst import Fst, FstCursor, fst_parts, read_fst_at

_KIND = "transducers"
_LARGEST = (1 << 31) - 1


def read_fsts(path: Path) -> dict[str, Fst]:
    """{key: transducer} in the order of the file. Raises UserError with file and byte if it is missing,
    truncated or something else."""
    data = read_content(Path(path))
    cursor = FstCursor(data, Path(path))
    found: dict[str, Fst] = {}
    while cursor.offset < len(data):
        key = read_key(data, cursor.offset, path, _KIND, found)
        cursor.offset += len(key.encode()) + 1
        found_there = data[cursor.offset : cursor.offset + PEEK_BYTES]
        refuse_other(
            f"{path}: {key} at byte {cursor.offset}",
            found_there,
            FST,
            "give an archive of training graphs",
            (TEXT,),
        )
        is_text = data[cursor.offset : cursor.offset + 1].isspace()
        found[key] = _read_text(cursor) if is_text else read_fst_at(cursor)
    return found


def write_fsts(path: Path, fsts: dict[str, Fst], binary: bool = True) -> None:
    """Write {key: transducer} atomically; gzipped if the name ends in `.gz`."""
    entry = _binary_entry if binary else _text_entry
    with atomic_write(path, "wb") as f:
        write_content(f, path, b"".join(key.encode() + b" " + entry(fst) for key, fst in fsts.items()))


def _binary_entry(fst: Fst) -> bytes:
    return b"".join(fst_parts(fst))


def _text_entry(fst: Fst) -> bytes:
    return b"\n" + (fst.text(exact=True).encode() if fst.num_states else b"") + b"\n"


def _read_text(cursor: FstCursor) -> Fst:
    data, begin, path = cursor.data, cursor.offset, cursor.path
    first = data.find(b"\n", begin) + 1
    if not first or data[begin:first].strip():
        raise damaged(path, begin, _KIND, "expected a line break")
    end = data.find(b"\n\n", first - 1)
    if end < 0:
        raise damaged(path, len(data), _KIND, "the empty line after the transducer is missing")
    rows, position = [], first
    for line in data[first : end + 1].splitlines(keepends=True):
        rows.append(_row(line, position, path))
        position += len(line)
    cursor.offset = end + 2
    return _fst(rows, begin, path) if rows else Fst.from_arcs(0, -1, [], [], [], [], [])


def _row(line: bytes, position: int, path: Path) -> tuple[int, int, int, int, float]:
    """(from, to, input, output, cost) of an arc; (state, -1, 0, 0, cost) of a final state."""
    fields = line.split()
    try:
        if len(fields) in (1, 2):
            row = int(fields[0]), -1, 0, 0, float(fields[1]) if len(fields) == 2 else 0.0
        elif len(fields) in (4, 5):
            source, target, ilabel, olabel = map(int, fields[:4])
            row = source, target, ilabel, olabel, float(fields[4]) if len(fields) == 5 else 0.0
        else:
            raise ValueError
        if (
            min(row[0], *row[2:4]) < 0
            or max(row[:4]) > _LARGEST
            or len(fields) > 2
            and row[1] < 0
            or np.isnan(row[4])
        ):
            raise ValueError
        return row
    except ValueError:
        raise damaged(path, position, _KIND, "expected 'FROM TO INPUT OUTPUT COST' or 'STATE COST'") from None


def _fst(rows: list[tuple], position: int, path: Path) -> Fst:
    table = np.array(rows, np.float64)
    is_final = table[:, 1] < 0
    sources, targets, ilabels, olabels = table[~is_final, :4].T.astype(np.int64)
    num_states = int(table[:, :2].max()) + 1
    if num_states > 2 * len(rows):
        raise damaged(
            path, position, _KIND, f"invalid state {num_states - 1} in a transducer of {len(rows)} lines"
        )
    finals = {int(state): cost for state, cost in table[is_final][:, [0, 4]].tolist()}
    return Fst.from_arcs(
        num_states, rows[0][0], sources, ilabels, olabels, table[~is_final, 4], targets, finals
    )
