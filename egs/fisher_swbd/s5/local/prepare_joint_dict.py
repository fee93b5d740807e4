#!/usr/bin/env python3
"""Create the dictionary directory of Fisher and Switchboard: the CMU dictionary, acronyms of Switchboard's
dictionary, noises.

Reads   TEXT (Kaldi's `text`) of both corpora, the CMU dictionary; --transcripts or --swbd, as for
        local/prepare_swbd.py
Writes  DICT_DIR: lexicon.txt lexiconp.txt {silence,nonsilence}_phones.txt optional_silence.txt
        extra_questions.txt; missing_words.txt, the words without a pronunciation and their counts

    local/prepare_joint_dict.py --transcripts /corpora/swb_ms98_transcriptions data/train_all/text \\
        data/local/dict
"""

from pyasr.base.cli.step import run_step
from pyasr.corpora.dictionaries import make_dict_dir
from pyasr.corpora.fisher.with_switchboard import write_joint_dict
from pyasr.corpora.switchboard.swbd_dictionary import SwitchboardDictOptions, read_dictionary
from pyasr.corpora.switchboard.swbd_transcripts import read_transcripts
from pyasr.lang.lexicons.lexicon import cmudict_path


def main(options: SwitchboardDictOptions) -> None:
    sources = options.sources()
    make_dict_dir(
        options,
        [cmudict_path(), *sources],
        lambda out, counts: write_joint_dict(out, counts, read_dictionary(read_transcripts(sources))),
    )


if __name__ == "__main__":
    run_step(SwitchboardDictOptions, main, __doc__)
