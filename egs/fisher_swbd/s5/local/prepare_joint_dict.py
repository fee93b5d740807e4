#!/usr/bin/env python3
"""Make the dictionary directory of Fisher and Switchboard: the CMU dictionary, acronyms of Switchboard's dictionary, noises.

Reads   TEXT (Kaldi's `text`) of both corpora, the CMU dictionary; --transcripts or --swbd, as ../../swbd/s5/local/prepare_swbd.py
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt extra_questions.txt;
        missing_words.txt, the words without a pronunciation and their counts

    local/prepare_joint_dict.py --transcripts /corpora/swb_ms98_transcriptions data/train_all/text data/local/dict
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.step import output_of, run_step
from pyasr.corpora.discs import places_in
from pyasr.corpora.fisher.dictionary import in_lower_case, write_dict
from pyasr.corpora.fisher.with_switchboard import NOISES_OF_BOTH, acronyms_of
from pyasr.corpora.switchboard.dictionary import read_dictionary
from pyasr.corpora.switchboard.transcripts import find_transcripts, read_transcripts
from pyasr.io.text import read_table
from pyasr.lang.lexicon import Lexicon, cmudict_path, read_cmudict


@dataclass(frozen=True)
class PrepareJointDict:
    text: Path = argument("text whose words are the vocabulary")
    dict_dir: Path = argument("dictionary directory to make")
    swbd: str = option("", "directories of LDC97S62, separated by colons")
    transcripts: str = option("", "directory or archive of Switchboard's transcripts; those of the discs unless given")


def main(options: PrepareJointDict) -> None:
    sources = find_transcripts(places_in(options.transcripts) or places_in(options.swbd))
    with output_of(options, options.dict_dir, [options.text, cmudict_path(), *sources]) as out:
        acronyms = acronyms_of(read_dictionary(read_transcripts(sources)))
        lexicon = write_dict(words_of(options.text, acronyms), dictionary_with(acronyms), out, NOISES_OF_BOTH)
    log.info(f"{options.dict_dir}: {len(lexicon)} words, {len(lexicon.rows())} pronunciations")


def words_of(text: Path, acronyms: Lexicon) -> Counter[str]:
    """{word: count} of the text; acronyms that it does not have count 0."""
    counts = Counter(dict.fromkeys(acronyms.entries, 0))
    counts.update(word for words in read_table(text).values() for word in words.split())
    return counts


def dictionary_with(acronyms: Lexicon) -> Lexicon:
    """The CMU dictionary in lower case; acronyms of Switchboard have the pronunciations that they have there, too."""
    dictionary = in_lower_case(read_cmudict())
    for word, _, phones in acronyms.rows():
        dictionary.add(word, phones)
    return dictionary


if __name__ == "__main__":
    run_step(PrepareJointDict, main, __doc__)
