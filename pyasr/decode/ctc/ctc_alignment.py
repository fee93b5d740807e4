"""Units of a CTC network in place of phones, so that lattices of CTC and HMM systems are aligned with words
by the same code.

A unit is a run of equal transition-ids. Blanks are optional between units, and are the silence between words.
Two equal units have a blank between them, so each run is one unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.decode.align.align_lexicon import AlignLexicon


@dataclass(frozen=True)
class UnitRuns:
    """The part of a transition model's interface (`pyasr.hmm.model.transitions`) that alignment uses. A
    phone, which is the unit's label in phones.txt, ends when the transition-id changes."""

    num_tids: int
    tid2phone: np.ndarray
    tid2state: np.ndarray
    is_self_loop: np.ndarray
    is_final: np.ndarray

    @staticmethod
    def of(num_units: int) -> UnitRuns:
        """Build it for the units 0 ... num_units - 1, whose transition-ids and labels are 1 ... num_units."""
        labels, always = np.arange(num_units + 1, dtype=np.int32), np.ones(num_units + 1, bool)
        return UnitRuns(num_units, labels, labels, always, always)


def with_blanks(lexicon: AlignLexicon, blank: int) -> AlignLexicon:
    """The lexicon with an optional label `blank` between any two units of a word: each node inside a word
    gets a twin after a blank."""
    num_nodes = len(lexicon.nodes) + 1
    twin, inner = num_nodes << 32, lexicon.steps >> 32 > 0
    continues = np.unique(lexicon.steps[inner] >> 32)
    steps = np.concatenate([lexicon.steps, lexicon.steps[inner] + twin, continues << 32 | blank])
    nodes = np.concatenate([lexicon.nodes, lexicon.nodes[inner], continues + num_nodes])
    order = np.argsort(steps)
    prefixes = np.concatenate([lexicon.prefixes, lexicon.prefixes[lexicon.prefixes >> 32 > 0] + twin])
    return AlignLexicon(steps[order], nodes[order], lexicon.ends, np.sort(prefixes))
