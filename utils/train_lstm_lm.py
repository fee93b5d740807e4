#!/usr/bin/env python3
"""Train an LSTM word language model on a text.

Reads   TEXT and HELDOUT_TEXT, Kaldi's `text` (or plain sentences with --text-ids false); LEXICON, whose first
        column is the vocabulary
Writes  LM_DIR/lm.nnet, perplexity.txt: perplexities on HELDOUT_TEXT

HELDOUT_TEXT controls the learning rate and when training stops. With --ngram, an n-gram model of the same
vocabulary, the program also estimates the best interpolation weight of the two on HELDOUT_TEXT. An
interrupted training resumes from its last complete epoch.

    utils/train_lstm_lm.py --ngram data/local/lm/trigram data/train/text data/dev/text \\
        data/local/dict/lexicon.txt data/local/lm/lstm
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.train.job.checkpoint_index import DIRECTORY, INDEX, remove_checkpoints
from pyasr.train.steps.lstm_lm_step import LstmLmOptions


@dataclass(frozen=True)
class TrainLstmLm:
    text: Path = argument("training text")
    heldout_text: Path = argument("held-out text in the same format")
    lexicon: Path = argument("lexicon.txt, words.txt or a list of words: the vocabulary")
    lm_dir: Path = argument("directory of the model to write")
    lstm: LstmLmOptions = group(LstmLmOptions)
    ngram: Path | None = option(
        None,
        "n-gram model to interpolate with: a directory of utils/train_lm.py, or an ARPA file",
        heading="data",
    )


def main(options: TrainLstmLm) -> None:
    ngrams = [options.ngram] if options.ngram else []
    with output_of(
        options,
        options.lm_dir,
        [options.text, options.heldout_text, options.lexicon, *ngrams],
        resume=True,
        precious=f"{DIRECTORY}/{INDEX}",
    ) as out:
        from pyasr.train.objectives.lstm_lm_training import make_lstm_lm  # imports torch

        make_lstm_lm(options.text, options.heldout_text, options.lexicon, options.ngram, options.lstm, out)
        remove_checkpoints(out / DIRECTORY)


if __name__ == "__main__":
    run_step(TrainLstmLm, main, __doc__)
