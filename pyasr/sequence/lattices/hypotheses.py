"""The hypotheses that compete with an utterance's transcript: a lattice, expanded in time once, in compact
arrays for all epochs.

The arcs of a decoder's lattice have strings of transition-ids, one per frame
(`pyasr.decode.lattices.compact_lattice`). Since all paths to a state have the same number of frames, each arc
has a position in time. Together with its string, this determines the log-likelihoods that it needs. The
acoustic scores of the search are dropped. Memory: 4 bytes per frame of each arc, and 20 per arc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.lattices.compact_lattice import CompactLattice, state_times, to_compact, with_one_end
from pyasr.decode.lattices.lattice import Lattice, has_end, trim


@dataclass(frozen=True)
class Hypotheses:
    """Arcs sorted by source; states in topological order; state 0 is the start, the last state the only end;
    every state is on a path.

    sources, targets  int32 (num_arcs)
    begins, lengths   int32 (num_arcs): arc a covers the frames begins[a] .. begins[a] + lengths[a] - 1
    graph_costs       float32 (num_arcs)
    tids              int32 (lengths.sum()): the transition-ids of all arcs, concatenated
    """

    sources: np.ndarray
    targets: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    graph_costs: np.ndarray
    tids: np.ndarray

    @property
    def num_arcs(self) -> int:
        return len(self.sources)

    @property
    def num_states(self) -> int:
        return int(self.targets[-1]) + 1

    @property
    def num_frames(self) -> int:
        """Number of frames of every path."""
        return int(self.begins[-1] + self.lengths[-1])

    @property
    def frames(self) -> np.ndarray:
        """The frame of each transition-id, int64 (len(tids),)."""
        ends = np.cumsum(self.lengths)
        return np.repeat(self.begins - (ends - self.lengths), self.lengths) + np.arange(len(self.tids))

    def a_path(self) -> np.ndarray:
        """The transition-ids of the path along each state's first arc, int32 (num_frames,)."""
        firsts, ends = np.searchsorted(self.sources, np.arange(self.num_states)), np.cumsum(self.lengths)
        arcs = [0]
        while self.targets[arcs[-1]] != self.num_states - 1:
            arcs.append(firsts[self.targets[arcs[-1]]])
        return np.concatenate([self.tids[ends[arc] - self.lengths[arc] : ends[arc]] for arc in arcs])


def hypotheses_of(
    lattice: Lattice | CompactLattice, num_tids: int, name: str = "lattice"
) -> Hypotheses | None:
    """The paths of a lattice; None if no path leads to an end.

    Raises UserError with `name` for transition-ids that the model does not have, and for paths with different
    numbers of frames.
    """
    compact = trim(to_compact(lattice) if isinstance(lattice, Lattice) else lattice)
    if not has_end(compact):
        return None
    closed = with_one_end(compact)
    if not 0 < closed.tids.min(initial=1) <= closed.tids.max(initial=1) <= num_tids:
        raise UserError(
            f"{name}: transition-ids above the model's {num_tids}; give lattices decoded with this model"
        )
    times, lengths = state_times(closed), closed.lengths
    if (times[closed.sources] + lengths != times[closed.targets]).any():
        raise UserError(f"{name}: the paths have different numbers of frames; decode again")
    begins, lengths = times[closed.sources].astype(np.int32), lengths.astype(np.int32)
    return Hypotheses(closed.sources, closed.targets, begins, lengths, closed.graph_costs, closed.tids)
