#!/usr/bin/env python3
"""Build the decoding graph HCLG.fst of a model and a lang directory with a grammar.

Reads  LANG (L_disambig.fst, G.fst, phones/), MODEL_DIR/{final.mdl,tree}
Writes OUT/{HCLG.fst,words.txt,phones.txt,phones/,num_pdfs,disambig_tid.int}

Example:
    utils/make_graph.py data/lang_test exp/tri1 exp/tri1/graph
    utils/make_graph.py --self-loop-scale 1.0 data/lang_test exp/chain/tree exp/chain/tree/graph  # LF-MMI
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.hmm.graphs.decoding_graph import GraphOptions, make_hclg
from pyasr.hmm.model.model_file import read_transitions
from pyasr.sequence.lfmmi.chain import chain_topology


@dataclass(frozen=True)
class MakeGraph:
    lang: Path = argument("lang directory with G.fst")
    model_dir: Path = argument("directory with final.mdl and tree")
    out: Path = argument("graph directory to write")
    graph: GraphOptions = group(GraphOptions)


def main(options: MakeGraph) -> None:
    inputs = [
        options.lang / name for name in ("L_disambig.fst", "G.fst", "phones.txt", "words.txt", "phones")
    ]
    inputs += [options.model_dir / "final.mdl", options.model_dir / "tree"]
    with output_of(options, options.out, inputs) as out:
        _check_scale(options)
        make_hclg(options.lang, options.model_dir, out, options.graph)


def _check_scale(options: MakeGraph) -> None:
    """Warn if the scale of self-loops differs from the one in LF-MMI training."""
    topology = read_transitions(options.model_dir / "final.mdl").topology
    scale = options.graph.self_loop_scale
    if scale != 1.0 and topology == chain_topology(topology.phones):
        log.warning(
            f"{options.model_dir} has the HMMs of LF-MMI, whose self-loops have scale 1: give "
            f"--self-loop-scale 1.0, not {scale:g}"
        )


if __name__ == "__main__":
    run_step(MakeGraph, main, __doc__)
