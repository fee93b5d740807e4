"""The hypotheses that an utterance's transcript competes with: a lattice, unfolded in time once, kept in compact arrays for all epochs.

A lattice of the decoder has arcs with strings of transition-ids, one for each frame (`pyasr.decode.compact`). Since all paths to a state
have as many frames, each arc has a place in time, and with it its string is all that a network's log-likelihoods are needed for. What
the search said of them is dropped. Memory is 4 bytes for each frame of each arc and 20 for the arc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.base.errors import UserError
from pyasr.decode.compact import CompactLattice, state_times, to_compact, with_one_end
from pyasr.decode.lattice import Lattice, has_end, trim


@dataclass(frozen=True)
class Hypotheses:
    """Arcs sorted by source; states in topological order, state 0 is the start, the last one the only end; every state is on a path.

    sources, targets  int32 (num_arcs)
    begins, lengths   int32 (num_arcs): an arc has the frames begins[a] .. begins[a] + lengths[a] - 1
    graph_costs       float32 (num_arcs)
    tids              int32 (lengths.sum()): the transition-ids of all arcs, one after the other
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
        """Of every path."""
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


def hypotheses_of(lattice: Lattice | CompactLattice, num_tids: int, name: str = "lattice") -> Hypotheses | None:
    """The paths of a lattice; None where none leads to the end.

    Raises UserError, naming `name`, for transition-ids that the model does not have, and for paths of different numbers of frames.
    """
    lattice = trim(to_compact(lattice) if isinstance(lattice, Lattice) else lattice)
    if not has_end(lattice):
        return None
    closed = with_one_end(lattice)
    if not 0 < closed.tids.min(initial=1) <= closed.tids.max(initial=1) <= num_tids:
        raise UserError(f"{name}: it has transition-ids beyond the model's {num_tids}; give lattices that were decoded with this model")
    times, lengths = state_times(closed), closed.lengths
    if (times[closed.sources] + lengths != times[closed.targets]).any():
        raise UserError(f"{name}: its paths have different numbers of frames; decode again")
    begins, lengths = times[closed.sources].astype(np.int32), lengths.astype(np.int32)
    return Hypotheses(closed.sources, closed.targets, begins, lengths, closed.graph_costs, closed.tids)
