#!/usr/bin/env python3
"""Estimate an n-gram model (interpolated modified Kneser-Ney) of a text.

Reads   TEXT, Kaldi's `text` (or plain sentences with --text-ids false); LEXICON, whose first column is the vocabulary
Writes  ARPA, a model in ARPA format, gzipped if its name ends in .gz

  utils/train_lm.py data/train/text data/local/dict/lexicon.txt data/local/lm/trigram.arpa.gz
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.options import argument, group, option
from pyasr.base.step import run_step
from pyasr.lang.arpa import perplexity, write_arpa
from pyasr.lang.train_lm import NgramOptions, read_vocabulary, train
from pyasr.lang.vocabulary import read_sentences


@dataclass(frozen=True)
class TrainLm:
    text: Path = argument("training text")
    lexicon: Path = argument("lexicon.txt, words.txt or a list of words: the vocabulary")
    arpa: Path = argument("model to make")
    ngram: NgramOptions = group(NgramOptions)
    eval_text: Path | None = option(None, "a text in the same form whose perplexity is to be told")


def main(options: TrainLm) -> None:
    model = train(options.text, read_vocabulary(options.lexicon), options.ngram)
    options.arpa.parent.mkdir(parents=True, exist_ok=True)
    write_arpa(options.arpa, model)
    log.info(f"{options.arpa}: " + ", ".join(f"{len(table)} {n}-grams" for n, table in enumerate(model.tables, 1)))
    if options.eval_text:
        log.info(
            f"{options.eval_text}: {perplexity(model, read_sentences(options.eval_text, options.ngram.text_ids), options.ngram.oov_word)}"
        )


if __name__ == "__main__":
    run_step(TrainLm, main, __doc__)
