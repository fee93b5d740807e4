#!/usr/bin/env python3
"""Align a data directory to its transcripts with a GMM system.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG,
       MODEL_DIR/{final.mdl,tree,input.json,feature_origin.json,phones.txt},
       optional MODEL_DIR/{final.mat,final.alimdl}
Writes ALI_DIR/{ali.JOB.gz,num_jobs,failed_utterances,phones.txt,input.json,feature_origin.json,cmvn_opts,
       delta_opts,splice_opts} and copies of final.mdl, tree and, if present, final.mat, final.alimdl and
       final.occs

Example:
    steps/align_si.py --nj 4 data/train data/lang exp/mono exp/mono_ali
"""

from dataclasses import dataclass

from pyasr.base.cli.options import group
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.hmm.model.gmm_dir import input_files
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.hmm.training.align_gmm import AlignSpec, AlignStep, complete_ali_dir, merge_reports, parts_to_align


@dataclass(frozen=True)
class AlignSi(AlignStep):
    store: MemoryOptions = group(MemoryOptions)


def main(options: AlignSi) -> None:
    num_jobs = options.jobs.nj
    inputs = input_files(options.data, options.lang, options.model_dir)
    with output_of(options, options.ali_dir, inputs, check=options.check_inputs) as out:
        spec = AlignSpec(
            options.data,
            options.lang,
            options.model_dir,
            out,
            num_jobs,
            options.align,
            options.boost_silence,
            options.store,
        )
        with parts_to_align(spec):
            run_jobs(
                options.jobs, out / "log" / "align.JOB.log", "pyasr.hmm.training.align_gmm:align_shard", spec
            )
        merge_reports(out, num_jobs).check_missing(options.data, options.missing)
        complete_ali_dir(options, out)


if __name__ == "__main__":
    run_step(AlignSi, main, __doc__)
