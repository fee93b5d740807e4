#!/usr/bin/env python3
"""Align a data directory to its transcripts with a GMM system.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, MODEL_DIR/{final.mdl,tree,input.json}
Writes ALI_DIR/{ali.JOB.gz,num_jobs,failed_utterances} and copies of the model's files

Example:
    steps/align_si.py --nj 4 data/train data/lang exp/mono exp/mono_ali
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.job_options import JobOptions
from pyasr.base.options import argument, group, option
from pyasr.base.step import output_of, run_step
from pyasr.cluster.jobs import run_jobs
from pyasr.feats.inputs import InputOptions
from pyasr.hmm.align import AlignSpec, merge_reports
from pyasr.hmm.gmm_dir import copy_model, input_files, write_static_files
from pyasr.hmm.viterbi import AlignOptions
from pyasr.lang.lang_dir import LangDir


@dataclass(frozen=True)
class AlignSi:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory of the training")
    model_dir: Path = argument("directory of the GMM system")
    ali_dir: Path = argument("directory of the alignments")
    align: AlignOptions = group(AlignOptions)
    boost_silence: float = option(1.0, "factor on the likelihoods of silence", minimum=0.0)
    jobs: JobOptions = group(JobOptions)


def main(options: AlignSi) -> None:
    num_jobs = options.jobs.nj
    with output_of(options, options.ali_dir, input_files(options.data, options.lang, options.model_dir)) as out:
        spec = AlignSpec(options.data, options.lang, options.model_dir, out, num_jobs, options.align, options.boost_silence)
        run_jobs(options.jobs, out / "log" / "align.JOB.log", "pyasr.hmm.align:align_shard", spec)
        merge_reports(out, num_jobs)
        write_static_files(out, LangDir(options.lang), InputOptions.load(options.model_dir), num_jobs)
        copy_model(options.model_dir, out)


if __name__ == "__main__":
    run_step(AlignSi, main, __doc__)
