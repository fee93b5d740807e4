#!/usr/bin/env python3
"""Estimate an n-gram model (interpolated modified Kneser-Ney) from one or several texts.

Reads   TEXT and --more-texts, Kaldi's `text` (or plain sentences with --text-ids false); LEXICON, whose first
        column is the vocabulary
Writes  LM_DIR/lm.arpa.gz, with --eval-text also LM_DIR/perplexity.txt

  utils/train_lm.py data/train/text data/local/dict/lexicon.txt data/local/lm/trigram
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.ngrams.train_lm import NgramOptions, make_lm


@dataclass(frozen=True)
class TrainLm:
    text: Path = argument("training text")
    lexicon: Path = argument("lexicon.txt, words.txt or a list of words: the vocabulary")
    lm_dir: Path = argument("directory of the model to write")
    ngram: NgramOptions = group(NgramOptions)
    more_texts: str = option("", "further training texts in the same format, comma-separated", heading="data")
    eval_text: Path | None = option(
        None, "text in the same format on which the perplexity is computed", heading="data"
    )


def main(options: TrainLm) -> None:
    texts = [options.text, *map(Path, filter(None, options.more_texts.split(",")))]
    eval_texts = [options.eval_text] if options.eval_text else []
    with output_of(options, options.lm_dir, [*texts, options.lexicon, *eval_texts]) as out:
        make_lm(texts, options.lexicon, options.ngram, out, *eval_texts)


if __name__ == "__main__":
    run_step(TrainLm, main, __doc__)
