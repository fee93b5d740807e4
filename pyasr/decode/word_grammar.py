"""Which sequences of phones are words: what lattices are aligned with words by.

A grammar is an automaton over phones. Node 0 is where a word or a silence begins; at other nodes a silence may end, or any word, or one of
certain words. It is made from word_boundary.int, where phones tell their position in the word, or from align_lexicon.int.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numba import njit

from pyasr.base.errors import UserError
from pyasr.io.text import read_lines

WordGrammar = namedtuple("WordGrammar", "steps nodes silence_ends any_word_ends word_ends prefixes is_free")
WordGrammar.__doc__ = """An automaton over phones.

steps, nodes   int64 (n), ascending: node << 32 | phone, and the node that it leads to
silence_ends   bool (num_nodes): a stretch that stands for no word may end here
any_word_ends  bool (num_nodes): any word may end here
word_ends      int64, ascending: node << 32 | word, where a certain word ends
prefixes       int64, ascending: node << 32 | word, where more phones may follow to the end of a certain word
is_free        whether phones alone tell where words end, so that nothing need be known of the words
"""
START, INSIDE, WORD, SILENCE = range(4)
_KINDS = {"nonword": (START, SILENCE), "singleton": (START, WORD), "begin": (START, INSIDE), "internal": (INSIDE, INSIDE), "end": (INSIDE, WORD)}


def from_word_boundary(kinds: Mapping[int, str]) -> WordGrammar:
    """The grammar of phones that are nonword, begin, end, internal or singleton."""
    table = {_pair(_KINDS[kind][0], phone): _KINDS[kind][1] for phone, kind in kinds.items()}
    silence, word = (np.arange(4) == node for node in (SILENCE, WORD))
    nothing = np.empty(0, np.int64)
    return _grammar(table, silence, word, nothing, nothing, True)


def from_lexicon(rows: Iterable[tuple[int, tuple[int, ...]]]) -> WordGrammar:
    """The grammar of (word, phones) rows; rows of word 0 stand for no word."""
    table: dict[int, int] = {}
    silence, ends, prefixes, num_nodes = set(), set(), set(), 1
    for word, phones in rows:
        node = START
        for phone in phones:
            prefixes.add(_pair(node, word))
            target = table.setdefault(_pair(node, phone), num_nodes)
            num_nodes, node = max(num_nodes, target + 1), target
        if word:
            ends.add(_pair(node, word))
        else:
            silence.add(node)
    may_end = np.isin(np.arange(num_nodes), list(silence))
    return _grammar(table, may_end, np.zeros(num_nodes, bool), *(np.array(sorted(keys), np.int64) for keys in (ends, prefixes)), False)


def read_grammar(lang: Path) -> WordGrammar:
    """The grammar of a language or graph directory. Raises UserError if it has neither file, or a line that cannot be read."""
    boundaries, lexicon = (Path(lang) / f"phones/{name}.int" for name in ("word_boundary", "align_lexicon"))
    if boundaries.exists():
        return from_word_boundary(read_word_boundary(boundaries))
    if lexicon.exists():
        return from_lexicon(read_align_lexicon(lexicon))
    raise UserError(f"{lang}/phones has neither word_boundary.int nor align_lexicon.int, by which words are found among phones; "
                    "make the directory with utils/prepare_lang.py")


def read_word_boundary(path: Path) -> dict[int, str]:
    """Phone -> kind of word_boundary.int. Raises UserError for lines that are not `PHONE KIND`."""
    kinds = {}
    for number, line in enumerate(read_lines(path), 1):
        phone, _, kind = line.partition(" ")
        if not phone.isdigit() or kind not in _KINDS:
            raise UserError(f"{path}:{number}: '{line}' is not 'PHONE KIND' with a kind out of {', '.join(_KINDS)}; "
                            "make the language directory anew")
        kinds[int(phone)] = kind
    return kinds


def read_align_lexicon(path: Path) -> list[tuple[int, tuple[int, ...]]]:
    """(word, phones) of align_lexicon.int, whose lines are `WORD WORD PHONE ...` in numbers. Raises UserError for other lines."""
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split()
        if len(fields) < 3 or not all(field.isdigit() for field in fields):
            raise UserError(f"{path}:{number}: '{line}' is not 'WORD WORD PHONE ...' in numbers; make the language directory anew")
        rows.append((int(fields[1]), tuple(map(int, fields[2:]))))
    return rows


def _pair(node: int, label: int) -> int:
    return node << 32 | label


def _grammar(table: dict[int, int], *rest) -> WordGrammar:
    keys = np.array(sorted(table), np.int64)
    return WordGrammar(keys, np.array([table[key] for key in keys.tolist()], np.int32), *rest)


@njit(nogil=True, cache=True)
def has_pair(pairs, node, label):
    """Whether node << 32 | label is among ascending `pairs`."""
    key = (np.int64(node) << 32) | label
    i = np.searchsorted(pairs, key)
    return i < len(pairs) and pairs[i] == key


@njit(nogil=True, cache=True)
def step(grammar, node, phone):
    """The node that a phone leads to, -1 if none."""
    key = (np.int64(node) << 32) | phone
    i = np.searchsorted(grammar.steps, key)
    return grammar.nodes[i] if i < len(grammar.steps) and grammar.steps[i] == key else np.int32(-1)


@njit(nogil=True, cache=True)
def may_end(grammar, node, word):
    """Whether `word` may end at a node."""
    return grammar.any_word_ends[node] or has_pair(grammar.word_ends, node, word)
