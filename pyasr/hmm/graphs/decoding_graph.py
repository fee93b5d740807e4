"""HCLG, the graph that the decoder searches, built from a language directory with a grammar and from a model.

    LG    = min det (L_disambig o G), costs pushed
    CLG   = C o LG
    HCLG  = self-loops (min rmeps rmdisambig det (Ha o CLG))

as in Kaldi's mkgraph.sh. docs/lang/graph.md describes each operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.hmm.graphs.h_transducer import add_self_loops, h_transducer, merge_equal_contexts
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.model_file import read_transitions, read_tree
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.grammars.grammar import copy_symbols
from pyasr.lang.grammars.lg import make_lg
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.symbols import write_lines


@dataclass(frozen=True)
class GraphOptions:
    """Scales of the log-probabilities of transitions inside HMMs."""

    heading = "graph"

    transition_scale: float = option(
        1.0, "scale of the log-probabilities of transitions that leave a state", minimum=0.0
    )
    self_loop_scale: float = option(0.1, "scale of self-loop log-probabilities", minimum=0.0)


def expand_to_hclg(
    clg: Fst, ilabel_info: list[list[int]], trans: TransitionModel, tree: ContextTree, options: GraphOptions
) -> tuple[Fst, list[int]]:
    """(HCLG, the disambiguation transition-ids that were used during construction and removed)."""
    clg, ilabel_info = merge_equal_contexts(clg, ilabel_info, trans, tree)
    h, disambig_tids = h_transducer(ilabel_info, trans, tree, options.transition_scale)
    graph = ops.determinize_star(ops.compose_natively(h, clg.arcsort("ilabel")), use_log=True)
    graph = ops.remove_epsilons_local(ops.remove_symbols(graph, disambig_tids))
    graph = ops.minimize_encoded(graph)
    _report("HCLG without self-loops", graph)
    return add_self_loops(graph, trans, options.self_loop_scale), disambig_tids


def lg_to_hclg(
    lg: Fst, disambig_phones: list[int], trans: TransitionModel, tree: ContextTree, options: GraphOptions
) -> tuple[Fst, list[int]]:
    """As `expand_to_hclg`, starting from LG."""
    clg, ilabel_info = ops.compose_context(lg, disambig_phones, tree.context_width, tree.central_position)
    _report("CLG", clg)
    return expand_to_hclg(clg, ilabel_info, trans, tree, options)


def make_hclg(lang: Path, model_dir: Path, out: Path, options: GraphOptions = GraphOptions()) -> Fst:
    """Write HCLG.fst, words.txt, phones.txt, phones/, num_pdfs, disambig_tid.int to `out`. Returns the graph.

    Raises UserError if model, tree and language directory do not match.
    """
    trans = read_transitions(model_dir / "final.mdl")
    tree = read_tree(model_dir / "tree", trans)
    tables = LangDir(lang)
    _check_phones(model_dir, tables, trans)
    lg = make_lg(lang)
    _report("LG", lg)
    graph, disambig_tids = lg_to_hclg(lg, tables.disambig_phones, trans, tree, options)
    log.info(f"HCLG: {graph.num_states} states, {graph.num_arcs} arcs")
    write_fst(out / "HCLG.fst", graph, kind="const")
    copy_symbols(lang, out)
    write_lines(out / "num_pdfs", [trans.num_pdfs])
    write_lines(out / "disambig_tid.int", disambig_tids)
    return graph


def _report(name: str, fst: Fst) -> None:
    smallest, largest = ops.stochasticity(fst)
    log.info(
        f"{name}: {fst.num_states} states, {fst.num_arcs} arcs, -log of the sum of a state {smallest:.3f} "
        f"to {largest:.3f}"
    )


def _check_phones(model_dir: Path, lang: LangDir, trans: TransitionModel) -> None:
    """Raise UserError unless model and language directory have the same phones."""
    check_phones(model_dir, lang)
    ours, theirs = set(lang.real_phones), set(np.unique(trans.tid2phone[1:]).tolist())
    if ours != theirs:
        raise UserError(
            f"{model_dir}/final.mdl has {len(theirs)} phones, {lang.path}/phones.txt has {len(ours)} (only "
            f"one of them has phone {min(ours ^ theirs)}); use the language directory that the model was "
            "trained with"
        )
