#!/usr/bin/env python3
"""Align a data directory to its transcripts with a neural network.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG,
       MODEL_DIR/{final.nnet,final.mdl,tree,input.json,feature_origin.json,phones.txt}
Writes ALI_DIR/{ali.JOB.gz,num_jobs,failed_utterances,phones.txt,input.json,feature_origin.json,cmvn_opts,
       delta_opts,splice_opts} and copies of final.mdl and tree

Example:
    steps/align_dnn.py --nj 4 data/train_hires data/lang exp/dnn exp/dnn_ali
"""

from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.hmm.model.gmm_dir import input_files
from pyasr.hmm.training.align_gmm import AlignSpec, AlignStep, complete_ali_dir, merge_reports, parts_to_align


def main(options: AlignStep) -> None:
    num_jobs = options.jobs.nj
    inputs = [*input_files(options.data, options.lang, options.model_dir), options.model_dir / "final.nnet"]
    with output_of(
        options, options.ali_dir, inputs, check=lambda: options.check_inputs(of_network=True)
    ) as out:
        spec = AlignSpec(
            options.data, options.lang, options.model_dir, out, num_jobs, options.align, options.boost_silence
        )
        with parts_to_align(spec):
            run_jobs(
                options.jobs,
                out / "log" / "align.JOB.log",
                "pyasr.decode.decoding.align_dnn:align_shard",
                spec,
            )
        merge_reports(out, num_jobs).check_missing(options.data, options.missing)
        complete_ali_dir(options, out)


if __name__ == "__main__":
    run_step(AlignStep, main, __doc__)
