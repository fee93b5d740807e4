#!/usr/bin/env python3
"""Create a dictionary directory (Kaldi's local/dict) for the words of a text.

Reads   TEXT (Kaldi's `text`), a pronunciation dictionary, by default the CMU dictionary
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt
        extra_questions.txt; missing_words.txt, which lists the words that the dictionary lacks, with their
        counts and the source of their pronunciations

  utils/prepare_dict.py data/train/text data/local/dict
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.pronouncing.prepare_dict import DictOptions, GuessingOptions, dictionary_path, write_dict


@dataclass(frozen=True)
class PrepareDict:
    text: Path = argument("text whose words are the vocabulary")
    dict_dir: Path = argument("dictionary directory to write")
    dictionary: DictOptions = group(DictOptions)
    jobs: GuessingOptions = group(GuessingOptions)


def main(options: PrepareDict) -> None:
    inputs = [
        options.text,
        *filter(None, (dictionary_path(options.dictionary.dictionary), options.dictionary.words)),
    ]
    with output_of(options, options.dict_dir, inputs) as out:
        vocabulary = write_dict(options.text, options.dictionary, out, options.jobs.num_threads)
    log.info(
        f"{options.dict_dir}: {len(vocabulary.lexicon)} words, {len(vocabulary.lexicon.rows())} "
        "pronunciations"
    )


if __name__ == "__main__":
    run_step(PrepareDict, main, __doc__)
