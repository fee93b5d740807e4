#!/usr/bin/env python3
"""Align a data directory to its transcripts with a SAT system and estimate the speakers' fMLLR transforms, in
one MPI job of --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG,
       MODEL_DIR/{final.mdl,final.alimdl,final.mat,tree,input.json,feature_origin.json,phones.txt}
Writes ALI_DIR/{ali.JOB.gz,trans.JOB,num_jobs,failed_utterances,phones.txt,input.json,feature_origin.json},
       ALI_DIR/{cmvn_opts,delta_opts,splice_opts} and copies of final.mdl, final.alimdl, final.mat, tree and
       final.occs

Example:
    steps/align_fmllr.py --nj 4 data/train data/lang exp/tri3 exp/tri3_ali
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_ranks
from pyasr.data.tables.datadir import check_split
from pyasr.hmm.align.align_report import check_failed
from pyasr.hmm.model.gmm_dir import input_files
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.hmm.training.align_fmllr import AlignFmllrSpec
from pyasr.hmm.training.align_gmm import AlignStep, complete_ali_dir
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.hmm.transforms.unadapted import warn_of_unadapted


@dataclass(frozen=True)
class AlignFmllr(AlignStep):
    fmllr: FmllrOptions = group(FmllrOptions)
    store: MemoryOptions = group(MemoryOptions)


def main(options: AlignFmllr) -> None:
    check_split(options.data, options.jobs.nj)
    inputs = [
        *input_files(options.data, options.lang, options.model_dir),
        options.lang / "phones/silence.int",
    ]
    with output_of(options, options.ali_dir, inputs, check=options.check_inputs) as out:
        spec = AlignFmllrSpec(
            options.data,
            options.lang,
            options.model_dir,
            out,
            options.align,
            options.boost_silence,
            options.fmllr,
            options.store,
        )
        run_ranks(
            options.jobs,
            out / "log" / "align.log",
            "pyasr.hmm.training.align_fmllr:align_rank",
            spec,
            num_ranks=options.jobs.nj,
        )
        check_failed(out, options.data, options.missing)
        complete_ali_dir(options, out)
        warn_of_unadapted(options.data, out, options.fmllr)


if __name__ == "__main__":
    run_step(AlignFmllr, main, __doc__)
