#!/usr/bin/env python3
"""Replace the language model in lattices by an interpolation of an LSTM and an n-gram model; OLD_LANG's G.fst
is the old one.

Reads   OLD_LANG/{G.fst,words.txt}, LSTM_LM/lm.nnet, DATA/utt2spk,
        DECODE_DIR/{lat.*.gz,words.txt,language_model}; --ngram: see NEW_LM of steps/lm_rescore.py
Writes  OUT/{lat.JOB.gz,words.txt,language_model,num_jobs}, which steps/score.py and other steps read like a
        decode directory

The new probability of a word is (1 - weight) p_ngram + weight p_lstm. The n-gram model is that of OLD_LANG
unless --ngram is given.

    steps/lm_rescore_lstm.py data/lang_test data/local/lm/lstm data/test exp/tri1/decode_test \\
        exp/tri1/decode_test_lstm
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
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
    LstmRescoreOptions,
    LstmRescoreSpec,
    check_models,
    word_tables,
)
from pyasr.lang.grammars.backoff_lm import model_file
from pyasr.nn.files import LM_FILE


@dataclass(frozen=True)
class LmRescoreLstm:
    old_lang: Path = argument("lang directory of the decoding graph")
    lstm_lm: Path = argument("directory of an LSTM language model, from utils/train_lstm_lm.py")
    data: Path = argument("data directory that was decoded")
    decode_dir: Path = argument("directory of the lattices")
    out: Path = argument("output directory of the new lattices")
    rescore: LstmRescoreOptions = group(LstmRescoreOptions)
    ngram: Path | None = option(
        None,
        "n-gram model (see NEW_LM of steps/lm_rescore.py) to interpolate with; none: that of OLD_LANG",
        heading="language model",
        common=True,
    )
    jobs: JobOptions = group(JobOptions)


def main(options: LmRescoreLstm) -> None:
    check_as_decoded(options.decode_dir)
    ngram, lstm = options.ngram or options.old_lang, options.lstm_lm / LM_FILE
    tables, lattices = word_tables(options.decode_dir, options.old_lang, ngram), archives(options.decode_dir)
    old, new = model_file(options.old_lang), model_file(ngram)
    with output_of(
        options, options.out, [*tables, old, new, lstm, options.data / "utt2spk", *lattices]
    ) as out:
        num_jobs = min(options.jobs.nj, len(lattices))
        spec = LstmRescoreSpec(
            options.decode_dir, options.data, tables[0], old, new, out, num_jobs, options.rescore, lstm
        )
        from pyasr.decode.lattice_jobs.lstm_rescore_dir import check_lstm  # imports torch

        check_models(spec)
        check_lstm(spec)
        run_jobs(
            options.jobs,
            out / "log" / "rescore.JOB.log",
            "pyasr.decode.lattice_jobs.lstm_rescore_dir:rescore_shard",
            spec,
            num_jobs=num_jobs,
        )
        spec.end()
        keep_words(tables[0], out)
        write_language_model(out, [lstm, new])
        write_num_jobs(out, num_jobs)


if __name__ == "__main__":
    run_step(LmRescoreLstm, main, __doc__)
