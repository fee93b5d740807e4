"""The lexicon for lattice alignment: phone sequences of words, or silences without a word."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

import numpy as np

from pyasr.base.compiled.kernels import njit

AlignLexicon = namedtuple("AlignLexicon", "steps nodes ends prefixes")
AlignLexicon.__doc__ = """Pronunciations as a trie of phones with root 0. All keys are int64 and ascending.

steps, nodes  node << 32 | phone, and the node that the phone leads to
ends          node << 32 | word if a pronunciation of the word ends at the node. Word 0 is silence; a node
              where a word ends also has ANY_WORD.
prefixes      node << 32 | word if a pronunciation of the word continues after the node
"""
ANY_WORD = 0xFFFFFFFF


def align_lexicon(rows: Iterable[tuple[int, tuple[int, ...]]]) -> AlignLexicon:
    """Build the lexicon from (word, phones) rows (`pyasr.lang.lang_dirs.lang_dir.LangDir.align_lexicon`);
    word 0 is silence."""
    steps: dict[int, int] = {}
    ends, prefixes = set(), set()
    for word, phones in rows:
        node = 0
        for phone in phones:
            prefixes.add(node << 32 | word)
            node = steps.setdefault(node << 32 | phone, len(steps) + 1)
        ends |= {node << 32 | word, node << 32 | ANY_WORD} if word else {node << 32}
    keys = sorted(steps)
    nodes = np.array([steps[key] for key in keys], np.int64)
    return AlignLexicon(
        np.array(keys, np.int64), nodes, *(np.array(sorted(pairs), np.int64) for pairs in (ends, prefixes))
    )


@njit(nogil=True, cache=True)
def has_pair(pairs, node, word):
    """Whether the ascending `pairs` contain node << 32 | word."""
    key = (np.int64(node) << 32) | np.int64(word)
    i = np.searchsorted(pairs, key)
    return i < len(pairs) and pairs[i] == key


@njit(nogil=True, cache=True)
def continues(lexicon, node):
    """Whether any pronunciation continues after a node."""
    i = np.searchsorted(lexicon.steps, np.int64(node) << 32)
    return i < len(lexicon.steps) and lexicon.steps[i] >> 32 == node


@njit(nogil=True, cache=True)
def step(lexicon, node, phone):
    """The node that a phone leads to; -1 if there is none."""
    key = (np.int64(node) << 32) | np.int64(phone)
    i = np.searchsorted(lexicon.steps, key)
    return lexicon.nodes[i] if i < len(lexicon.steps) and lexicon.steps[i] == key else -1
