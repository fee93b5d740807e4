#!/usr/bin/env python3
"""Write the n best distinct word sequences of each lattice, with their costs and alignments.

Reads   DATA/utt2spk, DECODE_DIR/{lat.*.gz,words.txt}, LANG/words.txt if DECODE_DIR has none,
        and without --lmwt DECODE_DIR/scoring/summary.json
Writes  OUT/{text,lm_cost,ac_cost}, a line for each path: the n-th best of UTTERANCE is UTTERANCE-n;
        OUT/{ali.JOB.gz,num_jobs}

lm_cost includes all costs but the acoustic one (language model, pronunciations, transitions); ac_cost is the
unscaled acoustic cost. Paths are sorted by lm_cost + ac_cost / LM weight + penalty * words.

    steps/get_nbest.py --num-best 50 data/test data/lang_test exp/tri1/decode_test exp/tri1/nbest_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.lattice_jobs.lattice_dir import archives, words_file
from pyasr.decode.lattice_jobs.nbest_dir import NbestSpec, join_tables, warn_of_single_paths
from pyasr.score.score_dir import PointOptions


@dataclass(frozen=True)
class GetNbest:
    data: Path = argument("data directory that was decoded")
    lang: Path = argument("lang directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    out: Path = argument("output directory of the lists")
    num_best: int = option(10, "maximum number of paths of an utterance", minimum=1, heading="output")
    point: PointOptions = group(PointOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: GetNbest) -> None:
    lm_weight, penalty = options.point.of(options.decode_dir)
    lattices, words = archives(options.decode_dir), words_file(options.decode_dir, options.lang)
    with output_of(
        options,
        options.out,
        [options.data / "utt2spk", words, *lattices, *options.point.inputs(options.decode_dir)],
    ) as out:
        num_jobs = min(options.jobs.nj, len(lattices))
        spec = NbestSpec(
            options.decode_dir, options.data, words, out, num_jobs, options.num_best, lm_weight, penalty
        )
        run_jobs(
            options.jobs,
            out / "log" / "nbest.JOB.log",
            "pyasr.decode.lattice_jobs.nbest_dir:nbest_shard",
            spec,
            num_jobs=num_jobs,
        )
        names = join_tables(out, num_jobs)
        warn_of_single_paths(names, spec)
        log.info(f"{len(names)} paths at LM weight {lm_weight}, word insertion penalty {penalty}")


if __name__ == "__main__":
    run_step(GetNbest, main, __doc__)
