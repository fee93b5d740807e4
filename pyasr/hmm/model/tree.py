"""Phonetic decision trees in Kaldi's `tree` format: (phone window, pdf-class) -> pdf.

A tree has three kinds of node. Leaf (Kaldi's CE) is an answer, a pdf. Split (SE) asks whether the value of a
key belongs to a set. Table (TE) has one child per value of a key. A key is a position 0 .. N-1 in the window
of N phones, or PDF_CLASS. Phone 0 represents the positions before the first and after the last phone of an
utterance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from pyasr.base.compiled.kernels import njit
from pyasr.base.errors import UserError
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter

PDF_CLASS = -1
NO_ANSWER = -1
_LEAF, _SPLIT, _TABLE = 0, 1, 2


@dataclass(frozen=True)
class Leaf:
    """The end of a branch, with its pdf, 0-based."""

    pdf: int


@dataclass(frozen=True)
class Split:
    """`yes` if the value of `key` is in `values`, otherwise `no`."""

    key: int
    values: frozenset[int]
    yes: Node
    no: Node


@dataclass(frozen=True)
class TreeTable:
    """`children[value of key]`; None if there is no answer."""

    key: int
    children: tuple[Node | None, ...]


Node = Leaf | Split | TreeTable


def subnodes(node: Node | None) -> tuple:
    """The nodes below `node`, one level, in the order of Kaldi's files."""
    if isinstance(node, Split):
        return node.yes, node.no
    return node.children if isinstance(node, TreeTable) else ()


def leaves(root: Node) -> list[Leaf]:
    """All leaves, in the order of Kaldi's files."""
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Leaf):
            found.append(node)
        stack += reversed(subnodes(node))
    return found


class ContextTree:
    """Kaldi's ContextDependency: a window of `context_width` phones around `central_position`, and the tree
    over it.

    num_pdfs  one more than the largest pdf in the tree
    """

    def __init__(self, context_width: int, central_position: int, root: Node):
        self.context_width, self.central_position, self.root = context_width, central_position, root
        self.num_pdfs = 1 + max(leaf.pdf for leaf in leaves(root))
        self._flat = _flatten(root)

    def pdf(self, window: tuple[int, ...], pdf_class: int) -> int:
        """Pdf of the central phone of `window` in `pdf_class`. Raises UserError if the tree has no answer."""
        return int(self.pdfs(np.array([window]), np.array([pdf_class]))[0])

    def pdfs(self, windows: np.ndarray, pdf_classes: np.ndarray) -> np.ndarray:
        """`pdf` of many windows: windows (n, N), pdf_classes (n,) -> int32 (n,). Raises UserError naming the
        first without an answer."""
        answers = self.lookup(windows, pdf_classes)
        if (answers < 0).any():
            where = int(np.argmax(answers < 0))
            window = " ".join(map(str, np.asarray(windows)[where]))
            raise UserError(
                f"the tree has no pdf for phones {window}, pdf-class {pdf_classes[where]}; it was built for "
                "other phones"
            )
        return answers

    def lookup(self, windows: np.ndarray, pdf_classes: np.ndarray) -> np.ndarray:
        """As `pdfs`, with NO_ANSWER if the tree has none. A negative phone is unknown: the answer to every
        question about it is no."""
        windows = np.ascontiguousarray(windows, np.int32)
        if windows.ndim != 2 or windows.shape[1] != self.context_width:
            raise ValueError(
                f"windows of {self.context_width} phones were expected, got an array of shape {windows.shape}"
            )
        return _evaluate(windows, np.ascontiguousarray(pdf_classes, np.int32), *self._flat)

    def table(self, phones, num_pdf_classes: int) -> np.ndarray:
        """`lookup` of all windows over `phones`: int32 (len(phones), ... N times, num_pdf_classes)."""
        axes = [np.asarray(phones)] * self.context_width + [np.arange(num_pdf_classes)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        return self.lookup(grid[..., :-1].reshape(-1, self.context_width), grid[..., -1].ravel()).reshape(
            grid.shape[:-1]
        )

    def reachable(self, phone: int, pdf_class: int) -> list[int]:
        """Pdfs of the central `phone` in state `pdf_class` over all contexts, sorted (Kaldi's GetPdfInfo)."""
        known = {self.central_position: phone, PDF_CLASS: pdf_class}
        found = set()
        stack: list[Node | None] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf):
                found.add(node.pdf)
            elif node is not None and node.key in known:
                stack.append(_child(node, known[node.key]))
            else:
                stack += subnodes(node)
        return sorted(found)

    @classmethod
    def read(cls, path: Path | KaldiReader) -> ContextTree:
        """Read Kaldi's `tree`, binary or text. Raises UserError with file and byte offset."""
        reader = path if isinstance(path, KaldiReader) else KaldiReader(path)
        reader.expect("ContextDependency")
        before = reader.offset
        width, centre = reader.int32(), reader.int32()
        if not 0 <= centre < width <= 32:
            raise reader.error(
                f"a window of {width} phones with the central one at {centre} is not valid", before
            )
        reader.expect("ToPdf")
        root = _read_node(reader, width)
        reader.expect("EndContextDependency")
        if reader is not path:
            reader.expect_end()
        return cls(width, centre, root)

    def write(self, path: Path | KaldiWriter, binary: bool = True) -> None:
        """Write Kaldi's `tree` file, or append it to an open writer, which determines binary or text."""
        if not isinstance(path, KaldiWriter):
            with KaldiWriter(path, binary) as writer:
                return self.write(writer)
        path.token("ContextDependency")
        path.int32(self.context_width)
        path.int32(self.central_position)
        path.token("ToPdf")
        _write_node(path, self.root)
        path.token("EndContextDependency")
        path.newline()


def stub_tree(
    sets: list[list[int]], shared: list[bool], num_pdf_classes: dict[int, int], position: int
) -> Node:
    """The tree without context: a leaf per set of phones and pdf-class, or one for all pdf-classes of a set
    that is `shared`.

    Nodes and the order of pdfs are those of Kaldi's GetStubMap: a table over single phones, binary splits
    over sets of phones.
    """
    counter = iter(range(1 << 30))

    def one(members: list[int], is_shared: bool) -> Node:
        """The leaf, or the table of leaves, of one set."""
        if is_shared:
            return Leaf(next(counter))
        return TreeTable(
            PDF_CLASS, tuple(Leaf(next(counter)) for _ in range(max(num_pdf_classes[p] for p in members)))
        )

    def build(first: int, last: int) -> Node:
        """The part of the tree for sets first .. last - 1."""
        if last - first == 1:
            return one(sets[first], shared[first])
        highest = max(max(members) for members in sets[first:last])
        if all(len(members) == 1 for members in sets[first:last]) and last - first <= 2 * highest:
            children = {sets[i][0]: one(sets[i], shared[i]) for i in range(first, last)}
            return TreeTable(position, tuple(children.get(phone) for phone in range(highest + 1)))
        middle = first + (last - first) // 2
        values = frozenset(phone for members in sets[first:middle] for phone in members)
        return Split(position, values, build(first, middle), build(middle, last))

    return build(0, len(sets))


def monophone_tree(sets: list[list[int]], num_pdf_classes: dict[int, int]) -> ContextTree:
    """A tree without context: the phones of a set share one pdf per pdf-class (Kaldi's gmm-init-mono
    --shared-phones=phones/sets.int)."""
    return ContextTree(1, 0, stub_tree(sets, [False] * len(sets), num_pdf_classes, 0))


def _child(node: Split | TreeTable, value: int) -> Node | None:
    if isinstance(node, Split):
        return node.yes if value in node.values else node.no
    return node.children[value] if 0 <= value < len(node.children) else None


def _read_node(reader: KaldiReader, width: int) -> Node:
    """Read a tree without recursion, because it may be deeper than Python's stack. `open_`: the nodes whose
    children are being read."""
    open_: list[_OpenNode] = []
    while True:
        node = _read_opening(reader, width, open_)
        while node is not _PENDING:
            if not open_:
                if node is None:
                    raise reader.error("the tree is empty")
                return node
            open_[-1].children.append(node)
            if len(open_[-1].children) < open_[-1].size:
                break
            node = open_.pop().close(reader)


@dataclass
class _OpenNode:
    key: int
    values: frozenset[int] | None
    size: int
    children: list

    def close(self, reader: KaldiReader) -> Node:
        if self.values is None:
            reader.expect(")")
            return TreeTable(self.key, tuple(self.children))
        reader.expect("}")
        if None in self.children:
            raise reader.error("a split lacks one of its branches")
        return Split(self.key, self.values, *self.children)


_PENDING = object()


def _read_opening(reader: KaldiReader, width: int, open_: list[_OpenNode]):
    """A leaf, None, an empty table, or _PENDING after a node with children was added to `open_`."""
    before = reader.offset
    kind = reader.expect("CE", "SE", "TE", "NULL")
    if kind == "NULL":
        return None
    number = reader.int32()
    if kind == "CE":
        if not 0 <= number < reader.num_bytes:
            raise reader.error(f"{number} is not a pdf that is possible in a file of this size", before)
        return Leaf(number)
    if not PDF_CLASS <= number < width:
        raise reader.error(f"a question about position {number} in a window of {width} phones", before)
    if kind == "SE":
        values = frozenset(reader.int_vector().tolist())
        reader.expect("{")
        open_.append(_OpenNode(number, values, 2, []))
        return _PENDING
    return _open_table(reader, number, open_)


def _open_table(reader: KaldiReader, key: int, open_: list[_OpenNode]):
    before, size = reader.offset, reader.uint32()
    if not 0 <= size <= reader.num_left:
        raise reader.error(
            f"a table of {size} nodes does not fit into the remaining {reader.num_left} bytes; the file is "
            "damaged",
            before,
        )
    reader.expect("(")
    if size == 0:
        reader.expect(")")
        return TreeTable(key, ())
    open_.append(_OpenNode(key, None, size, []))
    return _PENDING


def _write_node(writer: KaldiWriter, root: Node) -> None:
    stack: list[Node | None | str] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            writer.token(node)
            writer.newline()
        else:
            _write_opening(writer, node)
            closing = {Split: "}", TreeTable: ")"}.get(type(node))
            stack += ([closing] if closing else []) + list(reversed(subnodes(node)))


def _write_opening(writer: KaldiWriter, node: Node | None) -> None:
    if node is None:
        return writer.token("NULL")
    if isinstance(node, Leaf):
        writer.token("CE")
        return writer.int32(node.pdf)
    writer.token("SE" if isinstance(node, Split) else "TE")
    writer.int32(node.key)
    if isinstance(node, Split):
        writer.int_vector(sorted(node.values))
        return writer.token("{")
    writer.uint32(len(node.children))
    writer.token("(")


def _flatten(root: Node) -> tuple[np.ndarray, ...]:
    """The tree as arrays for `_evaluate`: per node kind, key, a start in `slots` and a size; the slots.

    A leaf's start is its pdf. A split's slots are its yes node, its no node and its sorted values, a table's
    are its children (-1: none).
    """
    nodes, slots = [root], list[int]()
    kinds, keys, starts, sizes = [], [], [], []
    for node in nodes:
        kids = subnodes(node)
        before = accumulate((kid is not None for kid in kids), initial=len(nodes))
        numbers = [-1 if kid is None else number for kid, number in zip(kids, before)]
        nodes += [kid for kid in kids if kid is not None]
        kinds.append({Leaf: _LEAF, Split: _SPLIT, TreeTable: _TABLE}[type(node)])
        keys.append(getattr(node, "key", 0))
        starts.append(node.pdf if isinstance(node, Leaf) else len(slots))
        extra = sorted(node.values) if isinstance(node, Split) else []
        sizes.append(len(extra) if isinstance(node, Split) else len(kids))
        slots += numbers + extra
    return tuple(np.array(values, np.int32) for values in (kinds, keys, starts, sizes, slots))


@njit(nogil=True, cache=True)
def _evaluate(windows, pdf_classes, kinds, keys, starts, sizes, slots):
    answers = np.empty(len(windows), np.int32)
    for i in range(len(windows)):
        node = 0
        while node >= 0 and kinds[node] != _LEAF:
            value = pdf_classes[i] if keys[node] < 0 else windows[i, keys[node]]
            start, size = starts[node], sizes[node]
            if kinds[node] == _TABLE:
                node = slots[start + value] if 0 <= value < size else -1
            else:
                first = start + 2
                place = first + np.searchsorted(slots[first : first + size], value)
                node = slots[start] if place < first + size and slots[place] == value else slots[start + 1]
        answers[i] = starts[node] if node >= 0 else NO_ANSWER
    return answers
