"""LG: all sentences of the grammar of a lang dir as phone sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyasr.base.errors import UserError
from pyasr.io.openfst import Fst, read_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.symbols import SymbolTable


def make_lg(lang: Path) -> Fst:
    """LG of a lang dir: composed, determinised in the log semiring, minimised, pushed.

    Raises UserError if the labels of L_disambig.fst or G.fst are not those of words.txt, an arc has an
    infinite cost, or no sentence is accepted by both.
    """
    lexicon, grammar = read_fst(lang / "L_disambig.fst"), read_fst(lang / "G.fst")
    _check_labels(lang / "G.fst", np.r_[grammar.ilabels, grammar.olabels], lang / "words.txt")
    _check_labels(lang / "L_disambig.fst", lexicon.olabels, lang / "words.txt")
    _check_labels(lang / "L_disambig.fst", lexicon.ilabels, lang / "phones.txt")
    for name, fst in (("G.fst", grammar), ("L_disambig.fst", lexicon)):
        if problem := ops.infinite_arcs(fst):
            raise UserError(f"{lang / name}: {problem}")
    lg = compose_lg(lexicon, grammar)
    if lg is None:
        raise UserError(
            f"{lang}: no sentence of G.fst has a pronunciation in L_disambig.fst; build G.fst again with "
            "utils/make_grammar.py"
        )
    return lg


def compose_lg(lexicon: Fst, grammar: Fst) -> Fst | None:
    """LG of L_disambig and G; None if no sentence is accepted by both."""
    native = ops.compose_natively(lexicon.arcsort("olabel"), grammar.arcsort("ilabel"))
    return (
        None
        if native.start < 0
        else ops.push_special(ops.minimize_encoded(ops.determinize_star(native, use_log=True)))
    )


def _check_labels(path: Path, labels: np.ndarray, table: Path) -> None:
    known = np.array([0, *SymbolTable.read(table).ids.values()])
    unknown = np.setdiff1d(labels, known)
    if len(unknown):
        raise UserError(
            f"{path}: {len(unknown)} labels (such as {unknown[0]}) are not in {table}; build both from the "
            "same lang dir"
        )
