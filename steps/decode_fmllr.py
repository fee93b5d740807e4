#!/usr/bin/env python3
"""Decode a data directory with a GMM system in several passes, adapting the features to each speaker by
fMLLR.

The first pass, without adaptation, writes its lattices to DECODE_DIR.si. --si-dir replaces it by existing
lattices of a system with the same tree. A SAT system uses its alignment model in the first pass and its final
model in the later passes.

Reads  GRAPH_DIR/{HCLG.fst,words.txt,phones/silence.int}, DATA/{feats.scp,cmvn.scp,utt2spk},
       --si-dir SI_DIR/{lat.*.gz,totals.json},
       MODEL_DIR/{final.mdl,final.alimdl,final.mat,input.json,feature_origin.json,frame_subsampling_factor}
Writes DECODE_DIR/{lat.JOB.gz,hyp.JOB.txt,words.txt,trans.JOB,shard.JOB.json,num_jobs,totals.json},
       and DECODE_DIR.si as steps/decode.py does

Example:
    steps/decode_fmllr.py --nj 4 exp/tri3/graph data/test exp/tri3/decode_test
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.options import group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UpToDate
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.decoding.decode_dir import DecodeStep, decoding, input_files, join_totals
from pyasr.decode.decoding.decode_fmllr import (
    AdaptOptions,
    FmllrDecodeSpec,
    adaptation_files,
    check_system,
    remove_intermediate,
)
from pyasr.decode.decoding.outcome import check_hypotheses
from pyasr.decode.lattice_jobs.lattice_dir import keep_words
from pyasr.hmm.model.input_checks import check_gmm_input
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.hmm.transforms.unadapted import warn_of_unadapted


@dataclass(frozen=True)
class DecodeFmllr(DecodeStep):
    si_dir: Path | None = option(
        None,
        "directory of first-pass lattices; none: decode without adaptation to DECODE_DIR.si",
        heading="input",
    )
    adapt: AdaptOptions = group(AdaptOptions)
    fmllr: FmllrOptions = group(FmllrOptions)


def run_passes(options: DecodeFmllr, out: Path, spec, what: str, *functions: str) -> None:
    """Run each function in all jobs, one function after the other, and log the totals of the last one under
    the name `what`."""
    with decoding(out, options.data, options.jobs.nj):
        for function in functions:
            run_jobs(
                options.jobs,
                out / "log" / f"{function.partition(':')[2]}.JOB.log",
                f"pyasr.decode.decoding.{function}",
                spec,
            )
    keep_words(options.graph_dir / "words.txt", out)
    join_totals(out, options.jobs.nj).log(what)
    check_hypotheses(out, options.data, options.jobs.nj)


def decode_without(options: DecodeFmllr, inputs: list[Path], check: Callable[[], None]) -> Path:
    """Run the decoding without adaptation unless it is up to date. Returns its directory."""
    si_dir = options.decode_dir.with_name(options.decode_dir.name + ".si")
    options = dataclasses.replace(options, decode=options.adapt.first(options.decode))
    try:
        with output_of(options, si_dir, inputs, resume=True, check=check) as out:
            run_passes(options, out, options.spec(out), "without fMLLR", "decode_dir:decode_shard")
    except UpToDate as note:
        log.info(str(note))
    return si_dir


def check_inputs(options: DecodeFmllr) -> None:
    """Raise UserError if model and features do not match."""
    check_gmm_input(options.data, options.model)
    check_system(options.model)


def main(options: DecodeFmllr) -> None:
    options.adapt.check(options.decode)
    inputs = input_files(options.graph_dir, options.model, options.data)
    check = functools.cache(lambda: check_inputs(options))
    si_dir = options.si_dir or decode_without(options, inputs, check)
    inputs += adaptation_files(options.graph_dir, si_dir)
    with output_of(options, options.decode_dir, inputs, resume=True, check=check) as out:
        spec = FmllrDecodeSpec(options.spec(out), si_dir, options.adapt.silence_weight, options.fmllr)
        run_passes(
            options,
            out,
            spec,
            "with fMLLR",
            "decode_fmllr:first_stats",
            "decode_fmllr:decode_again",
            "decode_fmllr:rescore_last",
        )
        remove_intermediate(spec)
        warn_of_unadapted(options.data, out, options.fmllr)


if __name__ == "__main__":
    run_step(DecodeFmllr, main, __doc__)
