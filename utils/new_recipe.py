#!/usr/bin/env python3
"""Create a recipe directory for your own corpus, with models of a size that fits it (docs/own_corpus.md).

Reads   SOURCE...: a folder of audio with a table (TSV, CSV: file, text, speaker), or the table and the
        folder; a folder of pairs of audio and .txt, .lab or TextGrid files; Kaldi data directories; lhotse
        manifests
Writes  DIR/{run.sh,cmd.sh,path.sh,conf/*.conf} and links to steps and utils; nothing outside DIR

The program reports what it finds and what it chooses. DIR/run.sh then runs from the audio to word error
rates.

    utils/new_recipe.py my_recipe my_corpus
    utils/new_recipe.py --lexicon lexicon.txt my_recipe train.tsv dev.tsv clips
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import run_step
from pyasr.base.errors import UserError
from pyasr.cluster.runner.local_runner import num_cores
from pyasr.intake.own.findings import choices, findings
from pyasr.intake.own.preparing import CorpusOptions, prepare
from pyasr.intake.own.recipe import check_folder, recipe_files, write_recipe


@dataclass(frozen=True)
class NewRecipe:
    paths: tuple[Path, ...] = argument(
        "recipe directory to create, then the sources of the corpus", many=True, name="DIR SOURCE..."
    )
    corpus: CorpusOptions = group(CorpusOptions)


def main(options: NewRecipe) -> None:
    folder, *sources = options.paths
    if not sources:
        raise UserError(f"only {folder} is given; give DIR, which is created, and the sources of the corpus")
    check_folder(folder, ())
    prepared = prepare(sources, options.corpus)
    for sentence in findings(prepared):
        log.info(sentence)
    for sentence in choices(prepared):
        log.info(sentence)
    write_recipe(folder, recipe_files(prepared, sources, options.corpus, num_cores()))
    log.info(f"created {folder}; run {folder}/run.sh")


if __name__ == "__main__":
    run_step(NewRecipe, main, __doc__, force="replace files of DIR that you have changed")
