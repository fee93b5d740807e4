#!/usr/bin/env python3
"""Write the recognised words with times and confidences in NIST's ctm format.

Reads   DATA/{utt2spk,segments,reco2file_and_channel,frame_shift,feats.scp},
        LANG/{words.txt,phones/align_lexicon.int}, DECODE_DIR/{lat.*.gz,words.txt},
        MODEL_DIR/{final.mdl,frame_subsampling_factor,feature_origin.json}, for CTC units/units.txt instead of
        final.mdl, and without --lmwt DECODE_DIR/scoring/summary.json
Writes  OUT/ctm: FILE CHANNEL BEGIN DURATION WORD CONFIDENCE, seconds from the beginning of the recording

The words minimise the expected word error (MBR decoding); each has its posterior probability as confidence.

    steps/get_ctm.py data/test data/lang_test exp/tri1/decode_test exp/tri1/ctm_test
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.lattice_jobs.ctm_dir import CtmSpec, join_ctm
from pyasr.decode.lattice_jobs.decoded import Decoded
from pyasr.decode.lattices.mbr import MbrOptions
from pyasr.feats.frame_shift import frame_shift_files
from pyasr.hmm.model.model_file import answer_shift_s
from pyasr.score.score_dir import PointOptions


@dataclass(frozen=True)
class GetCtm:
    data: Path = argument("data directory that was decoded")
    lang: Path = argument("lang directory of the graph")
    decode_dir: Path = argument("directory of the lattices")
    out: Path = argument("output directory of the ctm")
    model_dir: Path | None = option(
        None, "directory of the acoustic model; none: the parent of DECODE_DIR", heading="input"
    )
    frame_shift_s: float | None = option(
        None,
        "frame shift of the lattices in seconds; none: that of the features times the model's "
        "frame_subsampling_factor",
        minimum=1e-6,
        heading="input",
    )
    mbr: MbrOptions = group(MbrOptions, decode_mbr=True)
    point: PointOptions = group(PointOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: GetCtm) -> None:
    lm_weight, penalty = options.point.of(options.decode_dir)
    decoded = Decoded.of(options.data, options.lang, options.decode_dir, options.model_dir, options.jobs.nj)
    times = [
        options.data / name
        for name in ("segments", "reco2file_and_channel")
        if DataDir(options.data).has(name)
    ]
    times += frame_shift_files(options.data)
    with output_of(
        options, options.out, [*decoded.files(), *times, *options.point.inputs(options.decode_dir)]
    ) as out:
        frame_shift_s = options.frame_shift_s or answer_shift_s(options.data, decoded.model_dir)
        spec = CtmSpec(decoded, out, lm_weight, penalty, options.mbr, frame_shift_s)
        run_jobs(
            options.jobs,
            out / "log" / "ctm.JOB.log",
            "pyasr.decode.lattice_jobs.ctm_dir:ctm_shard",
            spec,
            num_jobs=decoded.num_jobs,
        )
        log.info(
            f"{join_ctm(out, decoded.num_jobs)} words at LM weight {lm_weight}, word insertion penalty "
            f"{penalty}"
        )


if __name__ == "__main__":
    run_step(GetCtm, main, __doc__)
