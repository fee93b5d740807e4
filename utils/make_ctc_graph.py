#!/usr/bin/env python3
"""Build the decoding graph TLG.fst of a CTC network from a language directory of its units with a grammar.

Reads   LANG (L_disambig.fst, G.fst, phones.txt, phones/disambig.int) of utils/prepare_ctc_lang.py and
        utils/make_grammar.py
Writes  OUT/{TLG.fst,words.txt,phones.txt,phones/}

Example:
    utils/make_ctc_graph.py data/lang_ctc_test exp/ctc/graph
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.grammars.ctc_graph import make_tlg


@dataclass(frozen=True)
class MakeCtcGraph:
    lang: Path = argument("lang directory of units with G.fst")
    out: Path = argument("graph directory to write")


def main(options: MakeCtcGraph) -> None:
    names = ("L_disambig.fst", "G.fst", "phones.txt", "words.txt", "phones")
    with output_of(options, options.out, [options.lang / name for name in names]) as out:
        make_tlg(options.lang, out)


if __name__ == "__main__":
    run_step(MakeCtcGraph, main, __doc__)
