#!/usr/bin/env python3
"""Interpolate n-gram models: the mixture has the n-grams of all models, each with the weighted mean of its
probabilities.

Reads   MODELS: ARPA files, plain or compressed, of any orders, or directories of utils/train_lm.py; --heldout
Writes  OUT/{lm.arpa.gz,weights}, with --heldout also OUT/perplexity.txt

    utils/mix_lms.py --heldout data/dev/text data/local/lm/mixed data/local/lm/fourgram data/local/lm/fisher
    utils/mix_lms.py --weights 0.7,0.3 data/local/lm/mixed data/local/lm/fourgram their.arpa.gz
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.ngrams.mix_lms import MixOptions, given_weights, mix_lms
from pyasr.lang.ngrams.train_lm import arpa_file, check_lm_dir


@dataclass(frozen=True)
class MixLms:
    out: Path = argument("directory of the mixture to write")
    models: tuple[Path, ...] = argument("models: ARPA files, or directories with lm.arpa.gz", many=True)
    mix: MixOptions = group(MixOptions)


def main(options: MixLms) -> None:
    check_lm_dir(options.out)
    weights = given_weights(options.mix, len(options.models))
    sources = [arpa_file(model) for model in options.models]
    with output_of(
        options, options.out, [*sources, *([options.mix.heldout] if options.mix.heldout else [])]
    ) as out:
        mix_lms(sources, weights, options.mix, out)


if __name__ == "__main__":
    run_step(MixLms, main, __doc__)
