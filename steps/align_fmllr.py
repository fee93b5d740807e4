#!/usr/bin/env python3
"""Align a data directory to its transcripts with a SAT system, estimating the speakers' fMLLR transforms, as one MPI job with --nj ranks.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, MODEL_DIR/{final.mdl,final.alimdl,final.mat,tree,input.json}
Writes ALI_DIR/{ali.JOB.gz,trans.JOB,num_jobs,failed_utterances} and copies of the model's files

Example:
    steps/align_fmllr.py --nj 4 data/train data/lang exp/tri3 exp/tri3_ali
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_ranks
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align_fmllr import AlignFmllrSpec
from pyasr.hmm.fmllr import FmllrOptions
from pyasr.hmm.gmm_dir import copy_model, input_files, write_static_files
from pyasr.hmm.viterbi import AlignOptions
from pyasr.lang.lang_dir import LangDir


@dataclass(frozen=True)
class AlignFmllr:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory of the training")
    model_dir: Path = argument("directory of the GMM system")
    ali_dir: Path = argument("directory of the alignments")
    align: AlignOptions = group(AlignOptions)
    fmllr: FmllrOptions = group(FmllrOptions)
    boost_silence: float = option(1.0, "factor on the likelihoods of silence", minimum=0.0)
    jobs: JobOptions = group(JobOptions)


def main(options: AlignFmllr) -> None:
    with output_of(options, options.ali_dir, input_files(options.data, options.lang, options.model_dir)) as out:
        spec = AlignFmllrSpec(options.data, options.lang, options.model_dir, out, options.align, options.boost_silence, options.fmllr)
        run_ranks(options.jobs, out / "log" / "align.log", "pyasr.hmm.align_fmllr:align_rank", spec, num_ranks=options.jobs.nj)
        write_static_files(out, LangDir(options.lang), InputOptions.load(options.model_dir), options.jobs.nj)
        copy_model(options.model_dir, out)


if __name__ == "__main__":
    run_step(AlignFmllr, main, __doc__)
