"""Kaldi's text format of lattices: `from to tid word graph,acoustic`, or compact `from to word
graph,acoustic,tid_tid_tid`."""

from __future__ import annotations

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.lattices.compact_lattice import CompactLattice, compact_from_arcs
from pyasr.decode.lattices.lattice import Lattice, from_arcs

_Strings = list[list[int]]
_LARGEST = (1 << 31) - 1


def text_lattice(lattice: Lattice | CompactLattice) -> str:
    """Lines of a lattice, those of the start state first; `state graph,acoustic[,tids]` is a final state."""
    lines, offsets = [], lattice.arc_offsets
    for state in range(lattice.num_states):
        for a in range(offsets[state], offsets[state + 1]):
            if isinstance(lattice, CompactLattice):
                labels, string = f"{lattice.words[a]}", lattice.string(a)
            else:
                labels, string = f"{lattice.ilabels[a]}\t{lattice.olabels[a]}", None
            weight = _weight(lattice.graph_costs[a], lattice.acoustic_costs[a], string)
            lines.append(f"{state}\t{lattice.targets[a]}\t{labels}\t{weight}\n")
        if np.isfinite(lattice.final_graph[state]):
            string = lattice.final_string(state) if isinstance(lattice, CompactLattice) else None
            lines.append(
                f"{state}\t{_weight(lattice.final_graph[state], lattice.final_acoustic[state], string)}\n"
            )
    return "".join(lines)


def _weight(graph: np.float32, acoustic: np.float32, string: np.ndarray | None) -> str:
    costs = f"{_number(graph)},{_number(acoustic)}"
    return costs if string is None else f"{costs},{'_'.join(map(str, string.tolist()))}"


def _number(value: np.float32) -> str:
    """The shortest text that is read as the same float32."""
    return np.format_float_positional(value, trim="-")


class TextLattice:
    """Collects the lines of one lattice, of either kind."""

    def __init__(self):
        self.arcs: list[tuple[int, int, int, int, float, float]] = []
        self.strings: _Strings = []
        self.finals: dict[int, tuple[float, float, list[int]]] = {}
        self.start, self.num_states, self.num_lines = -1, 0, 0
        self.kinds: set[bool] = set()

    def add(self, fields: list[str]) -> None:
        """Add a line. Raises ValueError if it is not a line of a lattice, or not of the same kind as the
        lines before."""
        state = int(fields[0])
        target = int(fields[1]) if len(fields) > 2 else 0
        if not 0 <= min(state, target) <= max(state, target) <= _LARGEST or len(fields) > 5:
            raise ValueError
        self.num_lines += 1
        self.start = state if self.start < 0 else self.start
        self.num_states = max(self.num_states, state + 1, target + 1)
        if len(fields) <= 2:
            self.finals[state] = self._read_weight(fields[1:])
            return
        num_labels = 1 if len(fields) == 3 or "," in fields[3] else 2
        self._is(num_labels == 1)
        graph, acoustic, string = self._read_weight(fields[2 + num_labels :])
        labels = int(fields[2]), int(fields[1 + num_labels])
        if not 0 <= min(labels) <= max(labels) <= _LARGEST:
            raise ValueError
        self.arcs.append((state, target, *labels, graph, acoustic))
        self.strings.append(string)

    def _is(self, compact: bool) -> None:
        self.kinds.add(compact)
        if len(self.kinds) > 1:
            raise ValueError

    def _read_weight(self, fields: list[str]) -> tuple[float, float, list[int]]:
        """Parse `graph,acoustic` or `graph,acoustic,tid_tid_tid`; no field: costs of 0. Python's float
        accepts Kaldi's "Infinity"."""
        if not fields:
            return 0.0, 0.0, []
        graph, acoustic, *string = fields[0].split(",")
        self._is(bool(string))
        costs = (float(graph), float(acoustic))
        tids = [int(tid) for tid in string[0].split("_") if tid] if string else []
        if np.isnan(costs).any() or not 0 <= min(tids, default=0) <= max(tids, default=0) <= _LARGEST:
            raise ValueError
        return *costs, tids

    def lattice(self, name: str) -> Lattice | CompactLattice:
        """The lattice of the lines; `name` is for errors. Raises UserError for more states than the lines can
        have, and for a cycle."""
        if self.num_states > 2 * self.num_lines:
            raise UserError(
                f"{name}: a lattice of {self.num_lines} lines has no state {self.num_states - 1}; decode "
                "again"
            )
        source, target, tid, word, graph, acoustic = [np.array(column) for column in zip(*self.arcs)] or [
            np.empty(0, int)
        ] * 6
        ends = np.full((2, self.num_states), np.inf)
        strings: _Strings = [[] for _ in range(self.num_states)]
        for state, (*costs, string) in self.finals.items():
            ends[:, state], strings[state] = costs, string
        if True in self.kinds:
            return compact_from_arcs(
                self.start,
                source,
                target,
                word,
                graph,
                acoustic,
                _packed(self.strings),
                ends[0],
                ends[1],
                final_strings=_packed(strings),
                name=name,
            )
        return from_arcs(self.start, source, target, tid, word, graph, acoustic, *ends, name=name)


def _packed(strings: _Strings) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, labels)."""
    return np.cumsum([0, *map(len, strings)]), np.array(
        [tid for string in strings for tid in string], np.int32
    )
