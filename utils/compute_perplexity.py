#!/usr/bin/env python3
"""Print the perplexity of n-gram models on a text.

Reads   TEXT, Kaldi's `text` (or plain sentences with --text-ids false)
        MODELS: ARPA files, plain or compressed, or directories of utils/train_lm.py or utils/mix_lms.py
Writes  a line for each model to standard output

As in SRILM, `ppl` is per known word and sentence end, and `ppl1` is per known word. Both use the same
log-probability, that of the known words and sentence ends.

    utils/compute_perplexity.py data/dev/text data/local/lm/trigram data/local/lm/fourgram
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import run_step
from pyasr.lang.ngrams.train_lm import TextOptions, arpa_file, perplexity_lines


@dataclass(frozen=True)
class ComputePerplexity:
    text: Path = argument("text")
    models: tuple[Path, ...] = argument("models: ARPA files, or directories with lm.arpa.gz", many=True)
    reading: TextOptions = group(TextOptions)


def main(options: ComputePerplexity) -> None:
    for line in perplexity_lines(
        options.text, [arpa_file(model) for model in options.models], options.reading
    ):
        print(line, flush=True)


if __name__ == "__main__":
    run_step(ComputePerplexity, main, __doc__)
