#!/usr/bin/env python3
"""Compile a grammar, an n-gram model in ARPA format or an FST, into G.fst in a copy of the lang directory.

Reads  LANG, GRAMMAR: ARPA, OpenFst text format with words or their ids, or a binary FST (vector, const);
       plain or compressed (gz, xz, bz2)
Writes OUT: the files of LANG and G.fst

Words of an ARPA file that are not in LANG/words.txt are skipped and counted. In an FST they are an error.

Example:
    utils/make_grammar.py data/lang data/local/lm/trigram/lm.arpa.gz data/lang_test
    utils/make_grammar.py data/lang commands.fst.txt data/lang_commands
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.grammars.grammar import make_grammar


@dataclass(frozen=True)
class MakeGrammar:
    lang: Path = argument("lang directory")
    arpa: Path = argument("n-gram model in ARPA format, or an FST, text or binary", name="GRAMMAR")
    out: Path = argument("lang directory to write")
    acceptor: bool | None = option(
        None,
        "lines of a text FST have one label (true) or two (false); give it only if the file is ambiguous",
    )


def main(options: MakeGrammar) -> None:
    with output_of(options, options.out, [options.lang, options.arpa]) as out:
        make_grammar(options.lang, options.arpa, out, options.acceptor)


if __name__ == "__main__":
    run_step(MakeGrammar, main, __doc__)
