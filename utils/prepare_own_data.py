#!/usr/bin/env python3
"""Create the data directories of your own corpus: the first stage of the recipes of utils/new_recipe.py.

Reads   SOURCE..., as utils/new_recipe.py
Writes  DATA/{train,dev,test} (wav.scp text utt2spk spk2utt utt2dur; segments and reco2dur if utterances are
        parts of recordings), DATA/local/corpus.tsv (all utterances with their parts and recordings)

    utils/prepare_own_data.py --held-out 0.05 my_corpus data
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import make_part, run_step
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.intake.own.findings import findings
from pyasr.intake.own.preparing import CorpusOptions, prepare, tables_of, write_listing
from pyasr.intake.own.reading.own_corpus import PARTS


@dataclass(frozen=True)
class PrepareOwnData:
    paths: tuple[Path, ...] = argument(
        "sources of the corpus, then the parent directory of the data directories",
        many=True,
        name="SOURCE... DATA",
    )
    corpus: CorpusOptions = group(CorpusOptions)


def main(options: PrepareOwnData) -> None:
    *sources, data = options.paths
    if not sources:
        raise UserError(
            f"only {data} is given; give the sources of the corpus, and the parent directory of the data "
            "directories"
        )
    prepared = prepare(sources, options.corpus)
    for sentence in findings(prepared):
        log.info(sentence)
    listing = data / "local" / "corpus.tsv"
    write_listing(prepared, listing)
    for part in PARTS:
        tables = tables_of(prepared.corpus, prepared.split.parts[part])
        make_part(options, data / part, [listing], lambda out: write_data_dir(out, tables))
        speakers = set(tables["utt2spk"].values())
        log.info(
            f"{data / part}: {len(tables['utt2spk'])} utterances, {prepared.hours(part):.2f} h, "
            f"{len(speakers)} speaker(s)"
        )


if __name__ == "__main__":
    run_step(PrepareOwnData, main, __doc__)
