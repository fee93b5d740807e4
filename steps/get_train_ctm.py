#!/usr/bin/env python3
"""Write the times of the words of transcripts, from alignments, in NIST's ctm format.

Reads   DATA/{utt2spk,text,segments,reco2file_and_channel,frame_shift,feats.scp}, LANG,
        ALI_DIR/{ali.*.gz,num_jobs,final.mdl,frame_subsampling_factor,feature_origin.json}
Writes  OUT/ctm: FILE CHANNEL BEGIN DURATION WORD 1.0000, seconds from the beginning of the recording

    steps/get_train_ctm.py data/train data/lang exp/tri3_ali exp/tri3_ali/ctm
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.ctm_dir import join_ctm
from pyasr.decode.lattice_jobs.train_ctm import TrainCtmSpec, check_words
from pyasr.feats.frame_shift import frame_shift_files
from pyasr.hmm.model.model_file import MODEL, answer_shift_s, subsampling_files
from pyasr.io.int_vectors import job_archive_files, num_archives
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class GetTrainCtm:
    data: Path = argument("data directory of the alignments")
    lang: Path = argument("language directory of the alignments")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("output directory of the ctm")
    missing: SkippedOptions = group(SkippedOptions, max_missing=0.05)
    jobs: JobOptions = group(JobOptions)


def main(options: GetTrainCtm) -> None:
    ali, data = options.ali_dir, DataDir(options.data)
    times = [
        data.path / name for name in ("segments", "reco2file_and_channel") if data.has(name)
    ] + frame_shift_files(data.path)
    tables = [data.path / "utt2spk", data.path / "text", *times]
    inputs = [
        *tables,
        *LangDir(options.lang).pronunciation_files,
        ali / MODEL,
        *subsampling_files(ali),
        *job_archive_files(ali),
    ]
    with output_of(options, options.out, inputs) as out:
        spec = TrainCtmSpec(
            data.path,
            options.lang,
            ali,
            out,
            answer_shift_s(data.path, ali),
            min(options.jobs.nj, num_archives(ali)),
        )
        run_jobs(
            options.jobs,
            out / "log" / "ctm.JOB.log",
            "pyasr.decode.lattice_jobs.train_ctm:write_train_ctm",
            spec,
            num_jobs=spec.num_jobs,
        )
        check_words(spec, options.missing)
        log.info(f"{join_ctm(out, spec.num_jobs)} words")


if __name__ == "__main__":
    run_step(GetTrainCtm, main, __doc__)
