#!/usr/bin/env python3
"""Estimate the warp factors of the speakers of a data directory from its alignments with a GMM system.

Reads  DATA/{wav.scp,reco2file_and_channel,utt2spk,segments,feats/options.json},
       DATA/{reco2speed,reco2volume,reco2distortion}, LANG/{phones.txt,phones/silence.int},
       ALI_DIR/{ali.JOB.gz,num_jobs,final.mdl,final.alimdl,final.mat,input.json,feature_origin.json}
Writes OUT/spk2warp, DATA/.recordings (fingerprints, to detect replaced recordings)

Copy spk2warp to the data directory to make steps/make_mfcc.py and similar steps warp the features. For data
without transcripts, align a copy of the data directory whose text is the output of a first decoding pass.

Example:
    steps/compute_vtln.py data/train data/lang exp/tri1_ali exp/tri1_vtln
    cp exp/tri1_vtln/spk2warp data/train && steps/make_mfcc.py data/train
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.checks.recording_prints import recording_prints
from pyasr.data.tables.datadir import DataDir
from pyasr.feats.extraction.extract_dir import AUDIO_FILE, audio_options, audio_tables
from pyasr.feats.inputs import input_option_files
from pyasr.feats.options import feature_options_file
from pyasr.hmm.model.input_checks import check_gmm_input
from pyasr.hmm.model.model_file import first_pass_model
from pyasr.hmm.training.warp_factors import VtlnOptions, VtlnSpec, merge_scores, parts_to_score
from pyasr.io.int_vectors import job_archive_files


@dataclass(frozen=True)
class ComputeVtln:
    data: Path = argument("data directory with audio and features")
    lang: Path = argument("language directory of the alignments")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("output directory of spk2warp")
    vtln: VtlnOptions = group(VtlnOptions)
    seed: int = option(0, "random seed of dither")
    jobs: JobOptions = group(JobOptions)


def main(options: ComputeVtln) -> None:
    data, ali_dir = options.data, options.ali_dir
    lang = [options.lang / "phones.txt", options.lang / "phones/silence.int"]
    model = [first_pass_model(ali_dir), *input_option_files(ali_dir)]
    how = feature_options_file(data, "is needed to compute warped features")
    inputs = [*audio_tables(data), how, *lang, *model, *job_archive_files(ali_dir)]
    inputs += [path for path in [data / "feats" / AUDIO_FILE] if path.exists()]
    tables = DataDir(data)
    tables.check_commands()
    num_jobs = min(options.jobs.nj, len(tables.spk2utt))
    with (
        recording_prints(data, audio_options(data).channel) as audio,
        output_of(options, options.out, inputs + audio, check=lambda: check_gmm_input(data, ali_dir)) as out,
    ):
        spec = VtlnSpec(data, options.lang, ali_dir, out, num_jobs, options.seed, options.vtln)
        with parts_to_score(spec):
            run_jobs(
                options.jobs,
                out / "log" / "warps.JOB.log",
                "pyasr.hmm.training.warp_factors:score_speakers",
                spec,
                num_jobs=num_jobs,
            )
        merge_scores(spec)


if __name__ == "__main__":
    run_step(ComputeVtln, main, __doc__)
