#!/usr/bin/env python3
"""Make the dictionary directory of Fisher English: the CMU dictionary for the words of a text, acronyms, noises.

Reads   TEXT (Kaldi's `text`), the CMU dictionary or --dictionary
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt extra_questions.txt;
        missing_words.txt, the words without a pronunciation and their counts

    local/prepare_fisher_dict.py data/all/text data/local/dict
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.step import output_of, run_step
from pyasr.corpora.fisher.dictionary import in_lower_case, write_dict
from pyasr.io.text import read_table
from pyasr.lang.lexicon import cmudict_path, read_cmudict


@dataclass(frozen=True)
class PrepareFisherDict:
    text: Path = argument("text whose words are the vocabulary")
    dict_dir: Path = argument("dictionary directory to make")
    dictionary: Path | None = option(None, "a file in the form of the CMU dictionary, which it is unless given")


def main(options: PrepareFisherDict) -> None:
    dictionary = options.dictionary or cmudict_path()
    with output_of(options, options.dict_dir, [options.text, dictionary]) as out:
        counts = Counter(word for words in read_table(options.text).values() for word in words.split())
        lexicon = write_dict(counts, in_lower_case(read_cmudict(dictionary)), out)
    log.info(f"{options.dict_dir}: {len(lexicon)} words, {len(lexicon.rows())} pronunciations")


if __name__ == "__main__":
    run_step(PrepareFisherDict, main, __doc__)
