"""Units of a CTC network in the place of phones, so that its lattices are aligned with words as those of HMMs are.

A unit takes a run of equal transition-ids; blanks stand between units as they like, and between words as silence does. Equal units have a
blank between, so runs are units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyasr.decode.align.align_lexicon import AlignLexicon


@dataclass(frozen=True)
class UnitRuns:
    """What alignment asks of a transition model (`pyasr.hmm.model.transitions`): a phone, the label in phones.txt, is over where another
    transition-id comes."""

    num_tids: int
    tid2phone: np.ndarray
    tid2state: np.ndarray
    is_self_loop: np.ndarray
    is_final: np.ndarray

    @staticmethod
    def of(num_units: int) -> UnitRuns:
        """Of units 0 .. num_units - 1, whose transition-ids and labels are one more."""
        labels, always = np.arange(num_units + 1, dtype=np.int32), np.ones(num_units + 1, bool)
        return UnitRuns(num_units, labels, labels, always, always)


def with_blanks(lexicon: AlignLexicon, blank: int) -> AlignLexicon:
    """The lexicon with the label `blank` allowed once between any two units of a word: each node within a word has a twin behind it."""
    num_nodes = len(lexicon.nodes) + 1
    twin, inner = num_nodes << 32, lexicon.steps >> 32 > 0
    goes_on = np.unique(lexicon.steps[inner] >> 32)
    steps = np.concatenate([lexicon.steps, lexicon.steps[inner] + twin, goes_on << 32 | blank])
    nodes = np.concatenate([lexicon.nodes, lexicon.nodes[inner], goes_on + num_nodes])
    order = np.argsort(steps)
    prefixes = np.concatenate([lexicon.prefixes, lexicon.prefixes[lexicon.prefixes >> 32 > 0] + twin])
    return AlignLexicon(steps[order], nodes[order], lexicon.ends, np.sort(prefixes))
