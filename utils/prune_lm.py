#!/usr/bin/env python3
"""Prune an n-gram model by relative entropy, or remove n-grams that are less probable than their back-off
estimates.

Reads   LM and --history-lm: ARPA files, plain or compressed, or directories of utils/train_lm.py or
        utils/mix_lms.py
Writes  OUT/lm.arpa.gz

    utils/prune_lm.py --threshold 1e-7 data/local/lm/fourgram data/local/lm/fourgram_pruned
    utils/prune_lm.py --lowprobs data/local/lm/trigram data/local/lm/trigram_lowprobs
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.lang.ngrams.prune import PruneOptions, check_prune_options, prune_lm
from pyasr.lang.ngrams.train_lm import arpa_file, check_lm_dir


@dataclass(frozen=True)
class PruneLm:
    lm: Path = argument("model to prune: an ARPA file, or a directory with lm.arpa.gz")
    out: Path = argument("directory of the pruned model to write")
    prune: PruneOptions = group(PruneOptions)


def main(options: PruneLm) -> None:
    check_lm_dir(options.out)
    check_prune_options(options.prune)
    sources = [arpa_file(path) for path in (options.lm, options.prune.history_lm) if path]
    with output_of(options, options.out, sources) as out:
        prune_lm(sources[0], options.prune, out)


if __name__ == "__main__":
    run_step(PruneLm, main, __doc__)
