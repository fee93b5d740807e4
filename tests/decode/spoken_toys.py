"""Lattices of a small language with a real lexicon, topology and graph, from random likelihoods, for tests of
times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from toy_language import random_ngrams, write_arpa_text, write_toy_lang

from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.hmm.graphs.decoding_graph import make_hclg
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.openfst import Fst
from pyasr.lang.grammars.grammar import make_grammar
from pyasr.lang.lang_dirs.lang_dir import LangDir

SCALE = 0.2


@dataclass
class System:
    """A language directory, the HMMs of its phones, and the decoding graph."""

    lang: LangDir
    trans: TransitionModel
    graph: Fst

    def lattice(self, seed: int, num_frames: int = 40, lattice_beam: float = 5.0) -> Lattice:
        rng = np.random.default_rng(seed)
        options = DecodeOptions(
            beam=1000.0, max_active=10**6, lattice_beam=lattice_beam, acoustic_scale=SCALE
        )
        return Decoder(self.graph, self.trans.tid2pdf, options).decode(
            -15 * rng.random((num_frames, self.trans.num_pdfs))
        )


def make_system(root: Path, **options) -> System:
    """A monophone system of 12 words. options: of the language directory."""
    write_toy_lang(root / "lang", num_words=12, num_phones=4, **options)
    write_arpa_text(root / "lm.arpa", random_ngrams(0, [*(f"w{i}" for i in range(12)), "<unk>"], (0, 60)))
    for name in ("lang_test", "model", "graph"):
        (root / name).mkdir()
    make_grammar(root / "lang", root / "lm.arpa", root / "lang_test")
    lang, topology = LangDir(root / "lang"), Topology.read(root / "lang/topo")
    tree = monophone_tree(lang.sets, {phone: topology.num_pdf_classes(phone) for phone in topology.phones})
    trans = TransitionModel.from_tree(topology, tree)
    tree.write(root / "model/tree")
    trans.write(root / "model/final.mdl")
    return System(lang, trans, make_hclg(root / "lang_test", root / "model", root / "graph"))
