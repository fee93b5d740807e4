"""OpenFst binary files as numpy arrays: `vector` and `const` transducers with tropical weights (arc type
`standard`).

An `Fst` is a struct of arrays, so numpy and numba process whole graphs without an object per arc. OpenFst is
not required.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.io.content import read_content

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
_CONST_STATE = np.dtype(
    [
        ("final", "<f4"),
        ("pos", "<u4"),
        ("num_arcs", "<u4"),
        ("num_iepsilons", "<u4"),
        ("num_oepsilons", "<u4"),
    ]
)
_MAGIC, _SYMBOLS_MAGIC = 2125659606, 2125658996
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED, _MUTABLE = 1, 2
_ALIGNMENT = 16


@dataclass
class Fst:
    """A weighted transducer over the tropical semiring; the arcs of state s are
    `arc_offsets[s]:arc_offsets[s + 1]`.

    start        state number, -1 for an empty transducer
    arc_offsets  int64 (num_states + 1)
    ilabels, olabels, nextstates  int32 (num_arcs); label 0 is epsilon
    weights      float32 (num_arcs), costs: negated natural logarithms
    finals       float32 (num_states), final costs; inf for states that are not final
    """

    start: int
    arc_offsets: np.ndarray
    ilabels: np.ndarray
    olabels: np.ndarray
    weights: np.ndarray
    nextstates: np.ndarray
    finals: np.ndarray

    @classmethod
    def from_arcs(
        cls, num_states: int, start: int, sources, ilabels, olabels, weights, nextstates, finals=None
    ) -> Fst:
        """A transducer from arcs in any order; arcs of one state keep their order. `finals`: array or {state:
        cost}."""
        sources = np.asarray(sources, np.int64)
        arrays = [np.asarray(labels, np.int32) for labels in (ilabels, olabels)]
        arrays += [np.asarray(weights, np.float32), np.asarray(nextstates, np.int32)]
        if len(sources) > 1 and (np.diff(sources) < 0).any():
            order = np.argsort(sources, kind="stable")
            arrays = [array[order] for array in arrays]
        offsets = np.zeros(num_states + 1, np.int64)
        np.cumsum(np.bincount(sources, minlength=num_states), out=offsets[1:])
        return cls(
            start, offsets, arrays[0], arrays[1], arrays[2], arrays[3], _final_costs(num_states, finals)
        )

    @property
    def num_states(self) -> int:
        return len(self.finals)

    @property
    def num_arcs(self) -> int:
        return len(self.ilabels)

    @property
    def num_arcs_out(self) -> np.ndarray:
        """The number of arcs that leave each state, int64 (num_states)."""
        return np.diff(self.arc_offsets)

    @property
    def sources(self) -> np.ndarray:
        """The state that each arc leaves, int32 (num_arcs)."""
        return np.repeat(np.arange(self.num_states, dtype=np.int32), self.num_arcs_out)

    def replaced(self, **arrays) -> Fst:
        """A copy with some of its fields replaced; the others are shared."""
        return Fst(**{**vars(self), **arrays})

    def keep_arcs(self, mask: np.ndarray) -> Fst:
        """The transducer with all states, and only the arcs for which `mask`, bool (num_arcs), is true."""
        return Fst.from_arcs(
            self.num_states,
            self.start,
            self.sources[mask],
            self.ilabels[mask],
            self.olabels[mask],
            self.weights[mask],
            self.nextstates[mask],
            self.finals,
        )

    def add_arcs(self, sources, ilabels, olabels, weights, nextstates, finals=None) -> Fst:
        """The transducer with these arcs after the existing ones; a longer `finals` than before adds
        states."""
        finals = self.finals if finals is None else finals
        return Fst.from_arcs(
            len(finals),
            self.start,
            np.r_[self.sources, sources],
            np.r_[self.ilabels, ilabels],
            np.r_[self.olabels, olabels],
            np.r_[self.weights, weights],
            np.r_[self.nextstates, nextstates],
            finals,
        )

    def arcsort(self, side: str = "ilabel") -> Fst:
        """The transducer with each state's arcs sorted by `ilabel` or `olabel`; ties keep their order."""
        order = np.lexsort((self.ilabels if side == "ilabel" else self.olabels, self.sources))
        return self.replaced(
            ilabels=self.ilabels[order],
            olabels=self.olabels[order],
            weights=self.weights[order],
            nextstates=self.nextstates[order],
        )

    def text(self, exact: bool = False) -> str:
        """The AT&T text form, start state first, as printed by `fstprint`; `exact`: with all digits of the
        costs instead of six."""
        digits = 9 if exact else 6
        lines = []
        for state in ([self.start] if self.start >= 0 else []) + [
            s for s in range(self.num_states) if s != self.start
        ]:
            for a in range(self.arc_offsets[state], self.arc_offsets[state + 1]):
                lines.append(
                    f"{state}\t{self.nextstates[a]}\t{self.ilabels[a]}\t{self.olabels[a]}\t"
                    f"{self.weights[a]:.{digits}g}"
                )
            if np.isfinite(self.finals[state]):
                lines.append(f"{state}\t{self.finals[state]:.{digits}g}")
        return "\n".join(lines) + "\n"


def _final_costs(num_states: int, finals) -> np.ndarray:
    if finals is not None and not isinstance(finals, dict):
        return np.asarray(finals, np.float32)
    costs = np.full(num_states, np.inf, np.float32)
    for state, cost in (finals or {}).items():
        costs[state] = cost
    return costs


class FstCursor:
    """Reads typed values from the bytes of a file at `offset`; every failure names file and offset."""

    def __init__(self, data: bytes, path: Path):
        self.data, self.path, self.offset = data, path, 0

    def rest(self) -> np.ndarray:
        """All bytes that are left, uint8."""
        return np.frombuffer(self.data, np.uint8)[self.offset :]

    def error(self, what: str) -> UserError:
        return UserError(
            f"{self.path}: {what} at byte {self.offset} of {len(self.data)}; create the file again"
        )

    def take(self, size: int, what: str) -> memoryview:
        if size < 0 or self.offset + size > len(self.data):
            raise self.error(f"truncated or damaged FST: {what} needs {size} bytes")
        self.offset += size
        return memoryview(self.data)[self.offset - size : self.offset]

    def value(self, code: str, what: str):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def string(self, what: str) -> str:
        return bytes(self.take(self.value("i", what), what)).decode("utf-8", "replace")


def read_fst(path: Path) -> Fst:
    """The transducer in an OpenFst binary file (`vector` or `const`, arc type `standard`), plain or
    compressed; symbol tables are skipped.

    Raises UserError with file and offset for anything else: not an FST, another arc type, truncated, invalid
    sizes or states.
    """
    return _read_object(FstCursor(read_content(path), Path(path)))


def read_fst_at(cursor: FstCursor) -> Fst:
    """The transducer at the position of a cursor in an archive; the cursor is moved to its end."""
    return _read_object(cursor, alone=False)


def is_binary_fst(content: bytes) -> bool:
    """Whether `content` begins like a binary file of OpenFst."""
    return content.startswith(struct.pack("<i", _MAGIC))


def parse_fst(content: bytes, path: Path) -> tuple[Fst, list[dict[int, str]]]:
    """(transducer, [{label: symbol} of its input, of its output]) in the content of an OpenFst file; {}
    without a symbol table.

    Raises UserError as `read_fst` does.
    """
    cursor = FstCursor(content, Path(path))
    tables = _read_header(cursor)[-1]
    return _read_object(FstCursor(content, Path(path))), tables


def _read_header(cursor: FstCursor) -> tuple[str, int, int, int, int, int, list[dict[int, str]]]:
    """(FST type, version, flags, start, number of states, number of arcs, symbol tables)."""
    begin, path = cursor.offset, cursor.path
    if len(cursor.data) < begin + 4 or cursor.value("i", "magic number") != _MAGIC:
        raise UserError(
            f"{path}: not an OpenFst binary file (no magic number at byte {begin}); write it with "
            "fstcompile or pyasr"
        )
    kind, arc_type = cursor.string("FST type"), cursor.string("arc type")
    if kind not in ("vector", "const") or arc_type != "standard":
        found = f"at byte {begin} an FST of type '{kind}' with '{arc_type}' arcs"
        raise UserError(f"{path}: {found}; only vector and const with standard arcs can be read")
    version, flags = cursor.value("i", "version"), cursor.value("i", "flags")
    cursor.value("Q", "properties")
    start, num_states, num_arcs = (
        cursor.value("q", what) for what in ("start state", "number of states", "number of arcs")
    )
    tables = [_read_symbols(cursor) if flags & flag else {} for flag in (_HAS_ISYMBOLS, _HAS_OSYMBOLS)]
    return kind, version, flags, start, num_states, num_arcs, tables


def _read_object(cursor: FstCursor, alone: bool = True) -> Fst:
    path = cursor.path
    kind, version, flags, start, num_states, num_arcs, _ = _read_header(cursor)
    if kind == "vector":
        if num_states < 0 and not alone:
            raise cursor.error("an FST without its number of states, which an archive does not allow,")
        fst = _read_vector(cursor, start, num_states)
    else:
        fst = _read_const(
            cursor, start, num_states, num_arcs, aligned=bool(flags & _IS_ALIGNED) or version == 1
        )
    _check_states(fst, path)
    return fst


def _read_symbols(cursor: FstCursor) -> dict[int, str]:
    if cursor.value("i", "symbol table") != _SYMBOLS_MAGIC:
        raise cursor.error("damaged FST: the symbol table announced by the header is missing")
    cursor.string("symbol table")
    cursor.value("q", "symbol table")
    symbols = [
        (cursor.string("symbol"), cursor.value("q", "symbol"))
        for _ in range(cursor.value("q", "symbol table"))
    ]
    return {label: symbol for symbol, label in symbols}


def _read_vector(cursor: FstCursor, start: int, num_states: int) -> Fst:
    """Read state after state: final cost, number of arcs (int64), arcs. A negative `num_states` means until
    the end of the file."""
    rest = len(cursor.data) - cursor.offset
    if num_states > rest // 12:
        raise cursor.error(f"truncated or damaged FST: {num_states} states announced")
    content = cursor.rest()
    offsets, bad = _vector_offsets(content, num_states)
    if bad >= 0 or (num_states < 0 and rest % 4):
        cursor.offset += max(bad, 0)
        raise cursor.error(
            f"truncated or damaged FST: the arcs of state {len(offsets) - 1} extend beyond the end of the "
            "file"
        )
    finals = np.empty(len(offsets) - 1, np.float32)
    columns = [np.empty(offsets[-1], np.int32) for _ in range(4)]
    _vector_fill(content, offsets, finals.view(np.int32), *columns)
    cursor.offset += 12 * len(finals) + 16 * len(columns[0])
    ilabels, olabels, weights, nextstates = columns
    return Fst(start, offsets, ilabels, olabels, weights.view(np.float32), nextstates, finals)


@njit(cache=True, nogil=True)
def _int32(content, at):
    """The little-endian int32 at any address."""
    low = np.uint32(content[at]) | np.uint32(content[at + 1]) << np.uint32(8)
    high = np.uint32(content[at + 2]) | np.uint32(content[at + 3]) << np.uint32(8)
    return np.int32(low | high << np.uint32(16))


@njit(cache=True, nogil=True)
def _vector_offsets(content, num_states):
    """(arc offsets of the body of a vector FST, byte at which the body is truncated or -1)"""
    capacity = num_states if num_states >= 0 else len(content) // 12
    offsets = np.zeros(capacity + 1, np.int64)
    at, size = 0, len(content) // 4 * 4
    state = 0
    while state < capacity and (num_states >= 0 or at < size):
        if at + 12 > size:
            return offsets[: state + 1], at
        low = np.int64(_int32(content, at + 4)) & np.int64(0xFFFFFFFF)
        num_arcs = low + (np.int64(_int32(content, at + 8)) << 32)
        if num_arcs < 0 or num_arcs > (size - at - 12) // 16:
            return offsets[: state + 1], at
        offsets[state + 1] = offsets[state] + num_arcs
        at += 12 + 16 * num_arcs
        state += 1
    return offsets[: state + 1], -1


@njit(cache=True, nogil=True)
def _vector_fill(content, offsets, finals, ilabels, olabels, weights, nextstates):
    """Fill the last five arrays; costs are copied as int32."""
    at = 0
    for state in range(len(offsets) - 1):
        finals[state] = _int32(content, at)
        at += 12
        for a in range(offsets[state], offsets[state + 1]):
            ilabels[a], olabels[a] = _int32(content, at), _int32(content, at + 4)
            weights[a], nextstates[a] = _int32(content, at + 8), _int32(content, at + 12)
            at += 16


def _read_const(cursor: FstCursor, start: int, num_states: int, num_arcs: int, aligned: bool) -> Fst:
    """Read a table of all states, then a table of all arcs."""

    def table(dtype, count, what):
        if aligned:
            cursor.take(-cursor.offset % _ALIGNMENT, "padding")
        return np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype)

    states = table(_CONST_STATE, num_states, f"{num_states} states")
    arcs = table(ARC, num_arcs, f"{num_arcs} arcs")
    offsets = np.zeros(num_states + 1, np.int64)
    np.cumsum(states["num_arcs"], out=offsets[1:])
    if (
        offsets[-1] != num_arcs
        or (states["pos"][states["num_arcs"] > 0] != offsets[:-1][states["num_arcs"] > 0]).any()
    ):
        raise cursor.error("damaged FST: the states' arc counts do not add up")
    return Fst(
        start,
        offsets,
        np.ascontiguousarray(arcs["ilabel"]),
        np.ascontiguousarray(arcs["olabel"]),
        np.ascontiguousarray(arcs["weight"]),
        np.ascontiguousarray(arcs["nextstate"]),
        np.ascontiguousarray(states["final"]),
    )


def _check_states(fst: Fst, path: Path) -> None:
    """Raise UserError for state numbers out of range, labels below 0, which compiled loops use as indices,
    and weights that are NaN."""
    wrong = fst.num_arcs and (fst.nextstates.min() < 0 or fst.nextstates.max() >= fst.num_states)
    if wrong or not -1 <= fst.start < fst.num_states:
        raise UserError(
            f"{path}: damaged FST: a state number beyond its {fst.num_states} states; create the file again"
        )
    if min(fst.ilabels.min(initial=0), fst.olabels.min(initial=0)) < 0:
        raise UserError(f"{path}: damaged FST: a label below 0; create the file again")
    if np.isnan(fst.weights).any() or np.isnan(fst.finals).any():
        raise UserError(f"{path}: damaged FST: a weight is not a number; create the file again")


def write_fst(path: Path, fst: Fst, kind: str = "vector") -> None:
    """Write an OpenFst binary file of type `vector` or `const`, atomically, without symbol tables."""
    with atomic_write(path, "wb") as f:
        for part in fst_parts(fst, kind):
            f.write(part)


def fst_parts(fst: Fst, kind: str = "vector") -> list:
    """The bytes of an OpenFst binary file, in pieces."""
    body = _vector_body(fst) if kind == "vector" else _const_body(fst)
    properties = _EXPANDED | _MUTABLE if kind == "vector" else _EXPANDED
    name = kind.encode()
    header = struct.pack(
        f"<ii{len(name)}si8siiQqqq",
        _MAGIC,
        len(name),
        name,
        8,
        b"standard",
        2,
        0,
        properties,
        fst.start,
        fst.num_states,
        fst.num_arcs,
    )
    return [header, *(array.data for array in body)]


def _arc_table(fst: Fst) -> np.ndarray:
    arcs = np.empty((fst.num_arcs, 4), np.int32)
    weights = np.ascontiguousarray(fst.weights, np.float32).view(np.int32)
    for column, array in enumerate((fst.ilabels, fst.olabels, weights, fst.nextstates)):
        arcs[:, column] = array
    return arcs


def _vector_body(fst: Fst) -> list[np.ndarray]:
    """The body: for each state 3 words (final cost, number of arcs as int64) and 4 words per arc, placed by
    index arithmetic."""
    counts = fst.num_arcs_out
    words = np.empty(3 * fst.num_states + 4 * fst.num_arcs, np.int32)
    heads = 3 * np.arange(fst.num_states) + 4 * fst.arc_offsets[:-1]
    words[heads] = fst.finals.view(np.int32)
    words[heads + 1], words[heads + 2] = counts, 0
    firsts = np.repeat(heads + 3 - 4 * fst.arc_offsets[:-1], counts) + 4 * np.arange(fst.num_arcs)
    arcs = _arc_table(fst)
    for column in range(4):
        words[firsts + column] = arcs[:, column]
    return [words]


def _const_body(fst: Fst) -> list[np.ndarray]:
    states = np.zeros(fst.num_states, _CONST_STATE)
    states["final"], states["pos"], states["num_arcs"] = fst.finals, fst.arc_offsets[:-1], fst.num_arcs_out
    for name, labels in (("num_iepsilons", fst.ilabels), ("num_oepsilons", fst.olabels)):
        states[name] = np.bincount(fst.sources[labels == 0], minlength=fst.num_states)
    return [states, _arc_table(fst)]
