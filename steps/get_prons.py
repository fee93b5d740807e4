#!/usr/bin/env python3
"""Count pronunciations, and silences between words, in alignments.

Reads  DATA/text, LANG, ALI_DIR/{ali.*.gz,num_jobs,final.mdl}
Writes OUT/{prons.N.gz,pron_counts.txt,pron_counts_nowb.txt,sil_counts_nowb.txt,pron_bigram_counts_nowb.txt},
       as Kaldi's get_prons.sh does

Example:
    steps/get_prons.py data/train data/lang exp/tri1_ali exp/tri1_prons
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.hmm.align.prons import PronsSpec, count_all
from pyasr.io.int_vectors import job_archive_files, num_archives
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class GetProns:
    data: Path = argument("data directory of the alignments")
    lang: Path = argument("language directory of the alignments")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("output directory of the counts")
    jobs: JobOptions = group(JobOptions)


def main(options: GetProns) -> None:
    ali, num_files = options.ali_dir, num_archives(options.ali_dir)
    inputs = [
        options.data / "text",
        *LangDir(options.lang).pronunciation_files,
        ali / "final.mdl",
        *job_archive_files(ali),
    ]
    with output_of(options, options.out, inputs) as out:
        spec = PronsSpec(options.data, options.lang, ali, out, min(options.jobs.nj, num_files))
        run_jobs(
            options.jobs,
            out / "log" / "prons.JOB.log",
            "pyasr.hmm.align.prons:write_prons",
            spec,
            num_jobs=spec.num_jobs,
        )
        counts = count_all(spec)
        counts.write(out)
        shutil.copyfile(ali / "num_jobs", out / "num_jobs")
    log.info(
        f"{sum(counts.bigrams.values())} neighbours, {len(counts.prons)} pronunciations, "
        f"{sum(found.before for found in counts.silences.values())} silences"
    )


if __name__ == "__main__":
    run_step(GetProns, main, __doc__)
