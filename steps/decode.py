#!/usr/bin/env python3
"""Decode a data directory: lattices and best hypotheses.

Reads  GRAPH_DIR/{HCLG.fst,words.txt}, DATA/{feats.scp,cmvn.scp,utt2spk}, MODEL_DIR/{final.mdl,input.json}, MODEL_DIR/final.nnet if there
Writes DECODE_DIR/{lat.JOB.gz,hyp.JOB.txt,shard.JOB.json,num_jobs,totals.json}

A SAT system is decoded with its final model where --transform-dir is given, else with its alignment model; see steps/decode_fmllr.py.
Lattices are determinised: each word sequence within the lattice beam has one path, its best one (docs/lattices.md).
A network's log-likelihoods are at another scale than a GMM's; both are decoded with --acoustic-scale and scored over many LM weights.

Example:
    steps/decode.py --nj 4 exp/tri1/graph data/test exp/tri1/decode_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.decode.decode_dir import DecodeSpec, input_files, join_totals, start_output
from pyasr.decode.determinize import DeterminizeOptions
from pyasr.decode.search import DecodeOptions


@dataclass(frozen=True)
class Decode:
    graph_dir: Path = argument("directory of the decoding graph")
    data: Path = argument("data directory with features")
    decode_dir: Path = argument("directory of the lattices")
    model_dir: Path | None = option(None, "directory of the acoustic model; the parent of GRAPH_DIR unless given")
    transform_dir: Path | None = option(None, "directory of the speakers' fMLLR transforms for features and a SAT system's final model")
    decode: DecodeOptions = group(DecodeOptions)
    lattices: DeterminizeOptions = group(DeterminizeOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: Decode) -> None:
    model_dir, num_jobs = options.model_dir or options.graph_dir.parent, options.jobs.nj
    inputs = input_files(options.graph_dir, model_dir, options.data, options.transform_dir)
    with output_of(options, options.decode_dir, inputs, resume=True) as out:
        start_output(out, num_jobs)
        spec = DecodeSpec(options.graph_dir, model_dir, options.data, out, num_jobs, options.jobs.num_threads, options.decode,
                          options.transform_dir, options.lattices)
        run_jobs(options.jobs, out / "log" / "decode.JOB.log", "pyasr.decode.decode_dir:decode_shard", spec)
        for line in join_totals(out, num_jobs).report():
            log.info(line)


if __name__ == "__main__":
    run_step(Decode, main, __doc__)
