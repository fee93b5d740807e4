#!/usr/bin/env python3
"""Make a recipe directory for a corpus of your own, with models of a size that fits it (docs/own_corpus.md).

Reads   SOURCE...: a folder of audio with a table (TSV, CSV: file, text, speaker), or the table and the folder; a folder of pairs of
        audio and .txt, .lab or TextGrid files; Kaldi's data directories; lhotse's manifests
Writes  DIR/{run.sh,cmd.sh,path.sh,conf/*.conf} and links to steps and utils; nothing else, nowhere else

It says what it found and what it chose. DIR/run.sh then goes from the audio to word error rates.

    utils/new_recipe.py my_recipe my_corpus
    utils/new_recipe.py --lexicon lexicon.txt my_recipe train.tsv dev.tsv clips
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import argument, group
from pyasr.base.step import run_step
from pyasr.cluster.local import num_cores
from pyasr.intake.own.findings import choices, findings
from pyasr.intake.own.preparing import CorpusOptions, prepare
from pyasr.intake.own.recipe import check_folder, recipe_files, write_recipe


@dataclass(frozen=True)
class NewRecipe:
    paths: tuple[Path, ...] = argument("recipe directory to make, then what the corpus is in", many=True)
    corpus: CorpusOptions = group(CorpusOptions)


def main(options: NewRecipe) -> None:
    folder, *sources = options.paths
    if not sources:
        raise UserError(f"{folder} is given alone; give DIR, which is made, and what the corpus is in")
    check_folder(folder, ())
    prepared = prepare(sources, options.corpus)
    for sentence in findings(prepared):
        log.info(sentence)
    for sentence in choices(prepared):
        log.info(sentence)
    write_recipe(folder, recipe_files(prepared, sources, options.corpus, num_cores()))
    log.info(f"{folder} is made; run {folder}/run.sh")


if __name__ == "__main__":
    run_step(NewRecipe, main, __doc__, force="replace files of DIR that you have changed")
