#!/usr/bin/env python3
"""Create a language directory whose lexicon spells words in the units of a CTC network.

Reads   UNITS_DIR/units.model; LEXICON, whose first column is the vocabulary
Writes  LANG_DIR: phones.txt (the units), words.txt lexicon.txt lexiconp.txt L.fst L_disambig.fst
        phones/*.{txt,int}

With --num-spellings N, a word has up to N segmentations, because the network may have learnt several (they
come from a unigram model). Words with letters that no unit has are skipped and counted. Then
utils/make_grammar.py adds G.fst, and utils/make_ctc_graph.py the graph.

Example:
    utils/prepare_ctc_lang.py data/units data/local/dict/lexicon.txt data/lang_ctc
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.lang_dirs.subword_lang import spell, write_subword_lang
from pyasr.lang.lang_dirs.subwords import MODEL, Subwords
from pyasr.lang.ngrams.vocabulary import read_vocabulary


@dataclass(frozen=True)
class PrepareCtcLang:
    units_dir: Path = argument("directory of the units, from utils/train_subwords.py")
    lexicon: Path = argument("lexicon.txt, words.txt or a list of words: the vocabulary")
    lang_dir: Path = argument("language directory to write")
    num_spellings: int = option(1, "maximum number of segmentations of a word", minimum=1)


def main(options: PrepareCtcLang) -> None:
    with output_of(options, options.lang_dir, [options.units_dir / MODEL, options.lexicon]) as out:
        subwords = Subwords.read(options.units_dir)
        lexicon, unspelled = spell(read_vocabulary(options.lexicon), subwords, options.num_spellings)
        write_subword_lang(lexicon, subwords.units, out)
    if unspelled:
        shown = " ".join(unspelled[:10]) + " ..." * (len(unspelled) > 10)
        log.warning(
            f"{len(unspelled)} word(s) of {options.lexicon} cannot be spelled in the units and are skipped: "
            f"{shown}"
        )
    log.info(f"{options.lang_dir}: {len(lexicon)} words, {len(lexicon.rows())} spellings")


if __name__ == "__main__":
    run_step(PrepareCtcLang, main, __doc__)
