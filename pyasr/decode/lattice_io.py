"""Kaldi lattice archives (`lat.1.gz`): binary and text, read and written; compact lattices are read too.

    with LatticeWriter("lat.1.gz") as writer:
        writer.write("utt1", lattice)
    for utt, lattice in read_lattices("lat.1.gz"):
        ...

A binary entry is `KEY `, then an OpenFst vector transducer of arc type lattice4, whose weights are two floats (graph, acoustic cost);
Kaldi's compact lattices (arc type compactlattice44: words on the arcs, transition-ids in the weights) become the same `Lattice`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numba import njit

from pyasr.base.errors import UserError
from pyasr.base.output import atomic_write, disk_error
from pyasr.decode.lattice import Lattice, from_arcs

_MAGIC = struct.pack("<i", 2125659606)
_TYPES = {b"lattice4": False, b"compactlattice44": True}
_EXPANDED_MUTABLE = 3
_CHUNK = 1 << 20
_GZIP_LEVEL = 2


class LatticeWriter:
    """Writes an archive, gzipped where the name ends in .gz; the file appears when the `with` block ends without an exception."""

    def __init__(self, path: Path, binary: bool = True):
        self.path, self.binary = Path(path), binary

    def __enter__(self) -> LatticeWriter:
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(atomic_write(self.path, "wb"))
        if self.path.suffix == ".gz":
            self._file = self._stack.enter_context(gzip.GzipFile("", "wb", _GZIP_LEVEL, self._file, mtime=0))
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def write(self, key: str, lattice: Lattice) -> None:
        """Add one entry."""
        body = binary_lattice(lattice) if self.binary else b"\n" + text_lattice(lattice).encode() + b"\n"
        self._file.write(key.encode() + b" ")
        self._file.write(body)


def write_lattices(path: Path, lattices: Iterable[tuple[str, Lattice]], binary: bool = True) -> None:
    """Write an archive of (key, lattice)."""
    with LatticeWriter(path, binary) as writer:
        for key, lattice in lattices:
            writer.write(key, lattice)


def binary_lattice(lattice: Lattice) -> bytes:
    """The OpenFst vector transducer of a lattice: header, then per state final weight, number of arcs, arcs."""
    header = struct.pack("<i6si8siiQqqq", 6, b"vector", 8, b"lattice4", 2, 0, _EXPANDED_MUTABLE, -1 if lattice.empty else 0,
                         lattice.num_states, lattice.num_arcs)
    offsets = lattice.arc_offsets
    words = np.empty(4 * lattice.num_states + 5 * lattice.num_arcs, np.int32)
    heads = 4 * np.arange(lattice.num_states) + 5 * offsets[:-1]
    counts = np.diff(offsets)
    words[heads], words[heads + 1] = lattice.final_graph.view(np.int32), lattice.final_acoustic.view(np.int32)
    words[heads + 2], words[heads + 3] = counts, 0
    firsts = np.repeat(heads + 4 - 5 * offsets[:-1], counts) + 5 * np.arange(lattice.num_arcs)
    columns = (lattice.ilabels, lattice.olabels, lattice.graph_costs.view(np.int32), lattice.acoustic_costs.view(np.int32), lattice.targets)
    for place, column in enumerate(columns):
        words[firsts + place] = column
    return _MAGIC + header + words.astype("<i4", copy=False).tobytes()


def text_lattice(lattice: Lattice) -> str:
    """Kaldi's text form: `from to tid word graph,acoustic` and `state graph,acoustic`, the start state's lines first."""
    lines, offsets = [], lattice.arc_offsets
    for state in range(lattice.num_states):
        for a in range(offsets[state], offsets[state + 1]):
            weight = f"{_number(lattice.graph_costs[a])},{_number(lattice.acoustic_costs[a])}"
            lines.append(f"{state}\t{lattice.targets[a]}\t{lattice.ilabels[a]}\t{lattice.olabels[a]}\t{weight}\n")
        if np.isfinite(lattice.final_graph[state]):
            lines.append(f"{state}\t{_number(lattice.final_graph[state])},{_number(lattice.final_acoustic[state])}\n")
    return "".join(lines)


def _number(value: np.float32) -> str:
    """The shortest text that gives back the same float32."""
    return np.format_float_positional(value, trim="-")


class _Buffer:
    """Bytes of a file, plain or gzipped, read on demand; knows its place for error messages."""

    def __init__(self, file: io.BufferedIOBase, path: Path):
        self.file, self.path = file, path
        self.data, self.at, self.base, self.ended = b"", 0, 0, False

    def error(self, what: str) -> UserError:
        return UserError(f"{self.path}: {what} at byte {self.base + self.at} of the uncompressed archive; decode again")

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        if self.ended:
            return False
        try:
            chunk = self.file.read(max(_CHUNK, len(self.data) - self.at))
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise self.error(f"truncated or damaged gzip file ({problem})") from None
        self.data, self.base, self.at = self.data[self.at:] + chunk, self.base + self.at, 0
        self.ended = not chunk
        return bool(chunk)

    def need(self, size: int, what: str) -> None:
        while len(self.data) - self.at < size:
            if not self.more():
                raise self.error(f"truncated archive: {what} breaks off")

    def take(self, size: int, what: str) -> bytes:
        self.need(size, what)
        self.at += size
        return self.data[self.at - size : self.at]

    def until(self, stop: bytes, what: str, most: int = 1 << 30) -> bytes:
        """The bytes before `stop`, which is skipped."""
        while (end := self.data.find(stop, self.at)) < 0:
            if len(self.data) - self.at > most or not self.more():
                raise self.error(f"truncated or damaged archive: no end of {what}")
        found, self.at = self.data[self.at : end], end + len(stop)
        return found

    def finished(self) -> bool:
        return self.at == len(self.data) and not self.more()


def read_lattices(path: Path) -> Iterator[tuple[str, Lattice]]:
    """(key, lattice) of every entry of an archive, binary or text, gzipped or not.

    Raises UserError naming file and offset for anything else: truncated, damaged, another arc type, a cycle.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"
            buffer = _Buffer(gzip.GzipFile(fileobj=raw) if zipped else raw, path)
            while not buffer.finished():
                yield _entry(buffer)
    except OSError as error:
        told = disk_error(error, path)
        raise (told if isinstance(told, UserError) else UserError(f"{path}: {error.strerror or error}")) from None


def _entry(buffer: _Buffer) -> tuple[str, Lattice]:
    word = buffer.until(b" ", "the utterance's name", 1 << 12)
    try:
        key = word.decode()
    except UnicodeDecodeError:
        key = ""
    if not key or "\n" in key:
        raise buffer.error("no utterance name where an entry should begin: not a lattice archive, or damaged")
    what = f"the lattice of {key}"
    buffer.need(1, what)
    if buffer.data[buffer.at : buffer.at + 1] in (b"\n", b"\r"):
        return key, _read_text(buffer, key)
    if buffer.take(4, what) != _MAGIC:
        buffer.at -= 4
        raise buffer.error(f"{what} has neither OpenFst's magic number nor text lines: not a lattice archive, or damaged")
    return key, _read_binary(buffer, key)


def _string(buffer: _Buffer, what: str) -> bytes:
    size = struct.unpack("<i", buffer.take(4, what))[0]
    if not 0 <= size < 256:
        raise buffer.error(f"damaged header of {what}")
    return buffer.take(size, what)


def _read_binary(buffer: _Buffer, key: str) -> Lattice:
    what = f"the lattice of {key}"
    kind, arc_type = _string(buffer, what), _string(buffer, what)
    if kind != b"vector" or arc_type not in _TYPES:
        names = f"'{kind.decode(errors='replace')}' with '{arc_type.decode(errors='replace')}' arcs"
        raise buffer.error(f"{what} is a transducer of type {names}, not a lattice (lattice4 or compactlattice44)")
    _, flags, _, start, num_states, _ = struct.unpack("<iiQqqq", buffer.take(40, what))
    if flags & 3 or num_states < 0 or not -1 <= start < max(num_states, 0):
        raise buffer.error(f"damaged header of {what}")
    compact = _TYPES[arc_type]
    while True:
        words = np.frombuffer(buffer.data[buffer.at : len(buffer.data) - (len(buffer.data) - buffer.at) % 4], "<i4")
        end, num_arcs, num_extra, bad = _measure(words, num_states, compact)
        if bad:
            raise buffer.error(f"damaged archive: {what} has an impossible number of arcs or labels")
        if end >= 0:
            break
        if not buffer.more():
            raise buffer.error(f"truncated archive: {what} breaks off")
    columns, finals = _fill(words, num_states, num_arcs, num_extra, compact)
    sources, targets = columns[0], columns[1]
    if num_arcs and (targets.min() < 0 or targets.max() >= num_states + num_extra):
        raise buffer.error(f"damaged archive: {what} has an arc to a state beyond its {num_states}")
    buffer.at += 4 * end
    graph, acoustic, *ends = (a.view(np.float32) for a in (columns[4], columns[5], finals[0], finals[1]))
    return from_arcs(start, sources, targets, columns[2], columns[3], graph, acoustic, *ends, name=f"{buffer.path}: {key}")


@njit(nogil=True, cache=True)
def _measure(words, num_states, compact):
    """(length in words, -1 if `words` end before; arcs; states added for transition-id strings; whether it is damaged)."""
    at, num_arcs, num_extra = 0, 0, 0
    for _ in range(num_states):
        if compact:
            if at + 3 > len(words):
                return -1, 0, 0, False
            size = words[at + 2]
            if size < 0:
                return -1, 0, 0, True
            num_extra += size
            num_arcs += size
            at += 1 + size
        if at + 4 > len(words):
            return -1, 0, 0, False
        count = np.int64(words[at + 2])
        if count < 0 or words[at + 3] != 0:
            return -1, 0, 0, True
        at += 4
        if not compact:
            at += 5 * count
            num_arcs += count
            continue
        for _ in range(count):
            if at + 6 > len(words):
                return -1, 0, 0, False
            size = words[at + 4]
            if size < 0:
                return -1, 0, 0, True
            num_arcs += max(size, 1)
            num_extra += max(size - 1, 0)
            at += 6 + size
    return (at if at <= len(words) else -1), num_arcs, num_extra, False


@njit(nogil=True, cache=True)
def _fill(words, num_states, num_arcs, num_extra, compact):
    """(source, target, tid, word, graph, acoustic) rows and the final costs' rows, floats as their bits.

    A compact arc with n transition-ids becomes n arcs in a row, the first with word and costs; a final string leads to a new final state.
    """
    infinity = 0x7F800000
    arcs = np.zeros((6, num_arcs), np.int32)
    finals = np.full((2, num_states + num_extra), infinity, np.int32)
    at, a, extra = 0, 0, num_states
    for state in range(num_states):
        graph, acoustic, string, size = words[at], words[at + 1], at + 3, 0
        if compact:
            size = words[at + 2]
            at += 1 + size
        count = words[at + 2]
        at += 4
        last = state
        for i in range(size):
            arcs[0, a], arcs[1, a], arcs[2, a] = last, extra, words[string + i]
            last = extra
            extra += 1
            a += 1
        finals[0, last], finals[1, last] = graph, acoustic
        for _ in range(count):
            size = words[at + 4] if compact else 1
            target = words[at + 5 + size] if compact else words[at + 4]
            last = state
            for i in range(max(size, 1)):
                goal = extra if i + 1 < size else target
                tid = 0 if size == 0 else words[at + 5 + i] if compact else words[at]
                arcs[0, a], arcs[1, a], arcs[2, a] = last, goal, tid
                if i == 0:
                    arcs[3, a], arcs[4, a], arcs[5, a] = words[at + 1], words[at + 2], words[at + 3]
                last = goal
                extra += i + 1 < size
                a += 1
            at += 6 + size if compact else 5
    return arcs, finals


def _read_text(buffer: _Buffer, key: str) -> Lattice:
    """Lines up to an empty one; `from to tid word weight`, `from to word weight` (compact) and `state weight`."""
    begin = buffer.base + buffer.at
    buffer.until(b"\n", "line")
    table = _TextLattice()
    while line := buffer.until(b"\n", f"the lattice of {key}").strip():
        try:
            table.add(line.decode().split())
        except (ValueError, UnicodeDecodeError):
            raise UserError(f"{buffer.path}: '{line.decode(errors='replace')}' in the lattice of {key} (from byte {begin}) "
                            "is no line of a lattice; decode again") from None
    return table.lattice(f"{buffer.path}: {key}")


class _TextLattice:
    """Collects the lines of one text lattice."""

    def __init__(self):
        self.arcs: list[tuple] = []
        self.finals: dict[int, tuple[float, float]] = {}
        self.start, self.num_states = -1, 0
        self.chains: list[tuple] = []

    def add(self, fields: list[str]) -> None:
        state = int(fields[0])
        if state < 0 or len(fields) > 5:
            raise ValueError
        self.start = state if self.start < 0 else self.start
        self.num_states = max(self.num_states, state + 1)
        if len(fields) <= 2:
            graph, acoustic, string = _weight(fields[1] if len(fields) == 2 else "0,0")
            self.chains.append((state, -1, 0, graph, acoustic, string))
            return
        target = int(fields[1])
        if target < 0:
            raise ValueError
        self.num_states = max(self.num_states, target + 1)
        compact = len(fields) < 4 or "," in fields[3]
        graph, acoustic, string = _weight(fields[3 + (not compact)] if len(fields) > 3 + (not compact) else "0,0")
        string = string if compact else [int(fields[2])]
        self.chains.append((state, target, int(fields[2 + (not compact)]), graph, acoustic, string))

    def lattice(self, name: str) -> Lattice:
        """Transition-id strings become chains of arcs."""
        finals = {}
        for state, target, word, graph, acoustic, string in self.chains:
            if target < 0:
                for tid in string:
                    self.arcs.append((state, self.num_states, tid, 0, 0.0, 0.0))
                    state, self.num_states = self.num_states, self.num_states + 1
                finals[state] = (graph, acoustic)
                continue
            for i, tid in enumerate(string or [0]):
                last = i + 1 >= len(string)
                goal = target if last else self.num_states
                self.num_states += not last
                self.arcs.append((state, goal, tid, word, graph, acoustic))
                state, word, graph, acoustic = goal, 0, 0.0, 0.0
        ends = np.full((2, self.num_states), np.inf)
        for state, costs in finals.items():
            ends[:, state] = costs
        columns = [np.array(column) for column in zip(*self.arcs)] or [np.empty(0)] * 6
        return from_arcs(self.start, *columns, *ends, name=name)


def _weight(text: str) -> tuple[float, float, list[int]]:
    """`graph,acoustic` or `graph,acoustic,tid_tid_tid`; "Infinity" is a number to Python too."""
    graph, acoustic, *string = text.split(",")
    return float(graph), float(acoustic), [int(tid) for tid in string[0].split("_") if tid] if string else []
