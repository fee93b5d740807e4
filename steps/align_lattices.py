#!/usr/bin/env python3
"""Align lattices: afterwards each arc covers the frames of one word or silence, or of one phone.

Reads   DATA/utt2spk, LANG/{words.txt,phones/align_lexicon.int},
        DECODE_DIR/{lat.*.gz,words.txt,language_model}, MODEL_DIR/final.mdl
Writes  OUT/{lat.JOB.gz,words.txt,language_model,num_jobs}; with --phones true, arcs have phone labels and
        words.txt is not written

    steps/align_lattices.py data/test data/lang_test exp/tri1/decode_test exp/tri1/decode_test_aligned
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.lattice_jobs.align_dir import LatticeAlignSpec
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattice_jobs.lattice_dir import keep_language_model, keep_words, words_file, write_num_jobs


@dataclass(frozen=True)
class AlignLattices:
    data: Path = argument("decoded data directory")
    lang: Path = argument("language directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    out: Path = argument("output directory of the aligned lattices")
    model_dir: Path | None = option(
        None, "directory of the acoustic model; none: the parent directory of DECODE_DIR"
    )
    phones: bool = option(False, "align phones instead of words")
    jobs: JobOptions = group(JobOptions)


def main(options: AlignLattices) -> None:
    decoded = Decoded.of(options.data, options.lang, options.decode_dir, options.model_dir, options.jobs.nj)
    with output_of(options, options.out, decoded.files()) as out:
        spec = LatticeAlignSpec(decoded, out, options.phones)
        run_jobs(
            options.jobs,
            out / "log" / "align.JOB.log",
            "pyasr.decode.lattice_jobs.align_dir:align_shard",
            spec,
            num_jobs=decoded.num_jobs,
        )
        if not options.phones:
            keep_words(words_file(options.decode_dir, options.lang), out)
        keep_language_model(options.decode_dir, out)
        write_num_jobs(out, decoded.num_jobs)


if __name__ == "__main__":
    run_step(AlignLattices, main, __doc__)
