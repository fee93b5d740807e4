"""Random trees and transition probabilities for a language directory, and the decoding graph by Kaldi's
programs."""

from __future__ import annotations

from pathlib import Path

import kaldi_binaries
import numpy as np

from pyasr.hmm.graphs.h_transducer import add_self_loops, h_transducer
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree, Leaf, Split, TreeTable
from pyasr.io.openfst import Fst, read_fst, write_fst
from pyasr.lang.fst import fst_ops as ops
from pyasr.lang.lang_dirs.lang_dir import LangDir


def random_tree(lang: LangDir, topology: Topology, seed: int) -> ContextTree:
    """A triphone tree with random questions about either neighbour; silences have no context."""
    rng, phones = np.random.default_rng(seed), lang.real_phones
    numbers = iter(range(1 << 20))

    def grown(depth):
        if depth == 0:
            return Leaf(next(numbers))
        asked = frozenset(int(phone) for phone in rng.choice([0, *phones], len(phones) // 2, replace=False))
        return Split(int(rng.choice([0, 2])), asked, grown(depth - 1), grown(int(rng.integers(0, depth))))

    def root(phone):
        return TreeTable(
            -1,
            tuple(
                grown(0 if phone in lang.silence_phones else 2)
                for _ in range(topology.num_pdf_classes(phone))
            ),
        )

    roots = {phone: root(members[0]) for members in lang.sets for phone in members}
    return ContextTree(3, 1, TreeTable(1, tuple(roots.get(phone) for phone in range(max(phones) + 1))))


def random_probabilities(trans: TransitionModel, seed: int) -> TransitionModel:
    rng = np.random.default_rng(seed)
    trans.update(rng.uniform(10, 1000, trans.num_tids + 1))
    return trans


def contexts(lg: Fst, lang: LangDir, tree: ContextTree):
    """(CLG, contexts of its input labels)."""
    return ops.compose_context(lg, lang.disambig_phones, tree.context_width, tree.central_position)


def kaldi_hclg(lg: Fst, lang: LangDir, trans: TransitionModel, tree: ContextTree, scratch: Path) -> Fst:
    """HCLG by Kaldi's composition, determinisation, epsilon removal and minimisation, from pyasr's H and C,
    with pyasr's self-loops."""
    clg, info = contexts(lg, lang, tree)
    h, disambig = h_transducer(info, trans, tree)
    write_fst(scratch / "h.fst", h)
    write_fst(scratch / "clg.fst", clg.arcsort("ilabel"))
    kaldi_binaries.run("fsttablecompose", scratch / "h.fst", scratch / "clg.fst", scratch / "composed.fst")
    kaldi_binaries.run("fstdeterminizestar", "--use-log=true", scratch / "composed.fst", scratch / "det.fst")
    marked = ops.remove_symbols(read_fst(scratch / "det.fst"), disambig)
    small = kaldi_binaries.apply(
        "fstminimizeencoded", kaldi_binaries.apply("fstrmepslocal", marked, scratch), scratch
    )
    return add_self_loops(small, trans)
