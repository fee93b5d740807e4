#!/usr/bin/env python3
"""Compute the oracle word error rate, the minimum over all paths of the lattices: a lower bound for any
scales or language model.

Reads   DATA/{text,utt2spk}, DECODE_DIR/{lat.*.gz,words.txt}, LANG/words.txt if DECODE_DIR has none
Writes  DECODE_DIR/oracle/{oracle_wer,hyp.txt,per_utt}

    steps/oracle_wer.py data/test data/lang_test exp/tri1/decode_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.outputs.output import atomic_write
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.lattice_dir import archives, words_file
from pyasr.decode.lattice_jobs.oracle_dir import OracleSpec, read_oracle, write_references
from pyasr.io.text_tables import write_table
from pyasr.lang.symbols import SymbolTable
from pyasr.score.filters import TextFilter
from pyasr.score.score_tables import per_utterance, wer_line
from pyasr.score.wer import score_texts


@dataclass(frozen=True)
class OracleWer:
    data: Path = argument("data directory that was decoded")
    lang: Path = argument("lang directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    filters: TextFilter = group(TextFilter)
    jobs: JobOptions = group(JobOptions)


def main(options: OracleWer) -> None:
    lattices = archives(options.decode_dir)
    words = words_file(options.decode_dir, options.lang)
    data = DataDir(options.data)
    inputs = [options.data / "text", options.data / "utt2spk", words, *lattices]
    with output_of(options, options.decode_dir / "oracle", inputs) as out:
        num_jobs = min(options.jobs.nj, len(lattices))
        write_references(out, SymbolTable.read(words), data.text, options.filters.words)
        spec = OracleSpec(options.decode_dir, options.data, words, out, num_jobs)
        run_jobs(
            options.jobs,
            out / "log" / "oracle.JOB.log",
            "pyasr.decode.lattice_jobs.oracle_dir:oracle_shard",
            spec,
            num_jobs=num_jobs,
        )
        hypotheses = read_oracle(out, num_jobs)
        score = score_texts(data.text, hypotheses, options.filters, f"{data.path}/text")
        write_table(out / "hyp.txt", hypotheses)
        line = f"{wer_line(score.total)} (oracle) {score.signature}"
        for name, content in (
            ("oracle_wer", f"{line}\n"),
            ("per_utt", per_utterance(data.text, hypotheses, options.filters)),
        ):
            with atomic_write(out / name) as f:
                f.write(content)
        log.info(line)


if __name__ == "__main__":
    run_step(OracleWer, main, __doc__)
