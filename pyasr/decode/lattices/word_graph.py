"""A lattice as input of algorithms on words: arcs with a word and one cost, and the frames of states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.decode.lattices.compact_lattice import CompactLattice, state_times
from pyasr.decode.lattices.lattice import forward, scaled_costs, trace


@dataclass(frozen=True)
class WordGraph:
    """Arcs sorted by source; states in topological order (every arc goes to a higher number), state 0 is the
    start.

    sources, targets, words  int32 (num_arcs); word 0 is epsilon
    costs                    float64 (num_arcs): sum of scaled graph and acoustic costs and word insertion
                             penalties
    finals                   float64 (num_states), inf if a state is not final
    times                    int64 (num_states), frames from the start of the utterance; num_frames is its
                             length
    """

    sources: np.ndarray
    targets: np.ndarray
    words: np.ndarray
    costs: np.ndarray
    finals: np.ndarray
    times: np.ndarray
    num_frames: int

    @classmethod
    def of(cls, lattice: CompactLattice, acoustic_scale: float, penalty: float = 0.0) -> WordGraph:
        """A lattice with path costs graph + acoustic_scale * acoustic + penalty * words (Kaldi's
        lattice-scale, lattice-add-penalty)."""
        costs, finals = scaled_costs(lattice, acoustic_scale)
        costs += penalty * (lattice.words != 0)
        return cls(
            lattice.sources,
            lattice.targets,
            lattice.words,
            costs,
            finals,
            state_times(lattice),
            lattice.num_frames,
        )

    @property
    def num_states(self) -> int:
        return len(self.finals)

    @property
    def empty(self) -> bool:
        return not np.isfinite(self.finals).any()

    @property
    def arc_offsets(self) -> np.ndarray:
        """int64 (num_states + 1): arcs of state s are arc_offsets[s]:arc_offsets[s + 1]."""
        return np.searchsorted(self.sources, np.arange(self.num_states + 1))

    def best_path(self) -> np.ndarray:
        """Arcs, in order, of the path of lowest cost. The graph must not be empty."""
        costs, back = forward(self.sources, self.targets, self.costs, self.num_states)
        return trace(back[:, None], 0, self.sources, int(np.argmin(costs + self.finals)))
