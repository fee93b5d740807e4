#!/usr/bin/env python3
"""Replace the language model in lattices: subtract the costs of OLD_LANG's G.fst and add those of NEW_LM.

Reads   OLD_LANG/{G.fst,words.txt}, NEW_LM: a lang directory (G.fst), a directory of utils/train_lm.py, or an
        ARPA file; DATA/utt2spk, DECODE_DIR/{lat.*.gz,words.txt,language_model}
Writes  OUT/{lat.JOB.gz,words.txt,language_model,num_jobs}, which steps/score.py and other steps read like a
        decode directory

The new graph cost of a path is the old one, minus the cost of its best path through the old G, plus its cost
under the new model.

    steps/lm_rescore.py data/lang_test data/local/lm/fourgram data/test exp/tri1/decode_test \\
        exp/tri1/decode_test_fourgram
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.lattice_jobs.lattice_dir import (
    archives,
    check_as_decoded,
    keep_words,
    write_language_model,
    write_num_jobs,
)
from pyasr.decode.lattice_jobs.rescore_dir import (
    RescoreOptions,
    RescoreSpec,
    check_models,
    warn_of_same_model,
    word_tables,
)
from pyasr.lang.grammars.backoff_lm import model_file


@dataclass(frozen=True)
class LmRescore:
    old_lang: Path = argument("lang directory of the decoding graph")
    new_lm: Path = argument("lang directory, directory of a language model, or ARPA file")
    data: Path = argument("data directory that was decoded")
    decode_dir: Path = argument("directory of the lattices")
    out: Path = argument("output directory of the new lattices")
    rescore: RescoreOptions = group(RescoreOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: LmRescore) -> None:
    check_as_decoded(options.decode_dir)
    tables = word_tables(options.decode_dir, options.old_lang, options.new_lm)
    lattices = archives(options.decode_dir)
    old, new = model_file(options.old_lang), model_file(options.new_lm)
    with output_of(options, options.out, [*tables, old, new, options.data / "utt2spk", *lattices]) as out:
        num_jobs = min(options.jobs.nj, len(lattices))
        spec = RescoreSpec(
            options.decode_dir, options.data, tables[0], old, new, out, num_jobs, options.rescore
        )
        check_models(spec)
        warn_of_same_model(spec)
        run_jobs(
            options.jobs,
            out / "log" / "rescore.JOB.log",
            "pyasr.decode.lattice_jobs.rescore_dir:rescore_shard",
            spec,
            num_jobs=num_jobs,
        )
        spec.end()
        keep_words(tables[0], out)
        write_language_model(out, [new])
        write_num_jobs(out, num_jobs)


if __name__ == "__main__":
    run_step(LmRescore, main, __doc__)
