#!/usr/bin/env python3
"""Make the grammar G.fst of an n-gram model in ARPA form, in a copy of the lang directory.

Reads  LANG, ARPA (plain or .gz)
Writes LANG_TEST: the files of LANG and G.fst

Words of the ARPA file that LANG/words.txt does not have are left out and counted.

Example:
    utils/make_grammar.py data/lang data/local/lm/trigram/lm.arpa.gz data/lang_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.options import argument
from pyasr.base.step import output_of, run_step
from pyasr.lang.grammar import make_grammar


@dataclass(frozen=True)
class MakeGrammar:
    lang: Path = argument("lang directory")
    arpa: Path = argument("n-gram model in ARPA form, perhaps gzipped")
    out: Path = argument("lang directory to make")


def main(options: MakeGrammar) -> None:
    with output_of(options, options.out, [options.lang, options.arpa]) as out:
        make_grammar(options.lang, options.arpa, out)


if __name__ == "__main__":
    run_step(MakeGrammar, main, __doc__)
