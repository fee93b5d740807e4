#!/usr/bin/env python3
"""Create the dictionary directory of Switchboard: Mississippi State's dictionary; for words that it lacks,
the CMU dictionary and letters.

Reads   TEXT (Kaldi's `text`), --transcripts or --swbd, as for local/prepare_swbd.py
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt
        extra_questions.txt; missing_words.txt (words that the dictionary of the transcripts lacks, with
        count, source, pronunciation); acronyms.txt (words of the transcripts as acronyms, 'IBM i._b._m.'),
        acronyms_spelled.txt (and as scored, 'i._b._m. i b m')

    local/prepare_dict.py --transcripts /corpora/swb_ms98_transcriptions data/train/text data/local/dict
"""

from pyasr.base.cli.step import run_step
from pyasr.corpora.dictionaries import make_dict_dir
from pyasr.corpora.switchboard.swbd_dictionary import SwitchboardDictOptions, read_dictionary, write_dict
from pyasr.corpora.switchboard.swbd_transcripts import read_transcripts
from pyasr.lang.lexicons.lexicon import cmudict_path


def main(options: SwitchboardDictOptions) -> None:
    sources = options.sources()
    make_dict_dir(
        options,
        [cmudict_path(), *sources],
        lambda out, counts: write_dict(out, counts, read_dictionary(read_transcripts(sources))),
    )


if __name__ == "__main__":
    run_step(SwitchboardDictOptions, main, __doc__)
