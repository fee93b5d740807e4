#!/usr/bin/env python3
"""Add probabilities of pronunciations, and of silence around words, to a dictionary, from counts in
alignments.

Reads   DICT_DIR; PRONS_DIR/{pron,sil,pron_bigram}_counts_nowb.txt of steps/get_prons.py or Kaldi's
        get_prons.sh
Writes  OUT: the dictionary with lexiconp.txt, lexiconp_silprob.txt, silprob.txt, for utils/prepare_lang.py

  utils/dict_dir_add_pronprobs.py data/local/dict exp/tri1_prons data/local/dict_prons
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.lexicons.dict_dir import read_dict_dir
from pyasr.lang.lexicons.pron_counts import BIGRAM_COUNTS, PRON_COUNTS, SILENCE_COUNTS, read_pron_counts
from pyasr.lang.lexicons.pron_probs import PronProbOptions, add_probabilities, summary


@dataclass(frozen=True)
class AddPronProbs:
    dict_dir: Path = argument("dictionary directory of the alignments")
    prons_dir: Path = argument("directory of the counts")
    out: Path = argument("dictionary directory to write")
    probs: PronProbOptions = group(PronProbOptions)


def main(options: AddPronProbs) -> None:
    inputs = [
        *sorted(options.dict_dir.glob("*.txt")),
        *(options.prons_dir / name for name in (PRON_COUNTS, SILENCE_COUNTS, BIGRAM_COUNTS)),
    ]
    with output_of(options, options.out, inputs) as out:
        content = read_dict_dir(options.dict_dir)
        probable = add_probabilities(content, read_pron_counts(options.prons_dir), options.probs)
        probable.write(out)
    for sentence in summary(content.lexicon, probable):
        log.info(sentence)


if __name__ == "__main__":
    run_step(AddPronProbs, main, __doc__)
