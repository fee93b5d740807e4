#!/usr/bin/env python3
"""Decode a data directory: lattices and best hypotheses.

Reads  GRAPH_DIR/{HCLG.fst,words.txt,num_pdfs}, DATA/{feats.scp,cmvn.scp,utt2spk},
       MODEL_DIR/{final.mdl,input.json}; optional
       MODEL_DIR/{final.nnet,final.alimdl,final.mat,feature_origin.json,frame_subsampling_factor}; with
       --transform-dir DIR also DIR/trans.JOB
Writes DECODE_DIR/{lat.JOB.gz,hyp.JOB.txt,words.txt,shard.JOB.json,num_jobs,totals.json}

A SAT system is decoded with its final model if --transform-dir is given, else with its alignment model; see
steps/decode_fmllr.py. Lattices are determinised: each word sequence within the lattice beam has one path, its
best one (docs/decoding/lattices.md). The scales of a network's and a GMM's log-likelihoods differ; use
--acoustic-scale in decoding and a range of LM weights in scoring.

Example:
    steps/decode.py --nj 4 exp/tri1/graph data/test exp/tri1/decode_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.options import option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.decoding.decode_dir import DecodeStep, decoding, input_files, join_totals
from pyasr.decode.decoding.outcome import check_hypotheses
from pyasr.decode.lattice_jobs.lattice_dir import keep_words
from pyasr.hmm.model.input_checks import check_model_input


@dataclass(frozen=True)
class Decode(DecodeStep):
    transform_dir: Path | None = option(
        None,
        "directory of the speakers' fMLLR transforms; a SAT system then uses its final model",
        heading="input",
    )


def main(options: Decode) -> None:
    options.decode.check()
    inputs = input_files(options.graph_dir, options.model, options.data, options.transform_dir)
    with output_of(
        options,
        options.decode_dir,
        inputs,
        resume=True,
        check=lambda: check_model_input(options.data, options.model),
    ) as out:
        with decoding(out, options.data, options.jobs.nj):
            spec = options.spec(out, options.transform_dir)
            run_jobs(
                options.jobs,
                out / "log" / "decode.JOB.log",
                "pyasr.decode.decoding.decode_dir:decode_shard",
                spec,
            )
        keep_words(options.graph_dir / "words.txt", out)
        join_totals(out, options.jobs.nj).log()
        check_hypotheses(out, options.data, options.jobs.nj)


if __name__ == "__main__":
    run_step(Decode, main, __doc__)
