#!/usr/bin/env python3
"""Find utterances with wrong transcripts: decode each with a language model of its own and nearby
transcripts, and compare.

Reads  DATA/{feats.scp,cmvn.scp,text,utt2spk}, LANG, MODEL_DIR/{final.mdl,tree} and its input files;
       TRANSFORM_DIR/trans.JOB
Writes OUT/{all_info.sorted.txt,per_utt,good_utts,bad_utts,failed_utts}, sorted by descending number of errors

Example:
    steps/find_bad_utts.py --nj 4 data/train data/lang exp/tri1 exp/tri1_cleanup
    utils/subset_data_dir.py --utt-list exp/tri1_cleanup/good_utts data/train data/train_clean
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.data.tables.datadir import DataDir
from pyasr.decode.decoding.biased import BiasedSpec, BiasOptions, parts_to_decode
from pyasr.decode.decoding.decode_dir import NETWORK
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.transforms import transform_files
from pyasr.hmm.graphs.decoding_graph import GraphOptions
from pyasr.hmm.model.gmm_dir import input_files
from pyasr.hmm.model.input_checks import check_model_input
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.score.bad_utts import BadUttOptions, write_report


@dataclass(frozen=True)
class FindBadUtts:
    data: Path = argument("data directory with features")
    lang: Path = argument("language directory of the model")
    model_dir: Path = argument("directory of the acoustic model")
    out: Path = argument("output directory")
    transform_dir: Path | None = option(
        None,
        "directory of the speakers' transforms, for a model of adapted features; none: no transforms",
        heading="input",
    )
    bad: BadUttOptions = group(BadUttOptions)
    bias: BiasOptions = group(BiasOptions)
    decode: DecodeOptions = group(
        DecodeOptions, beam=15.0, lattice_beam=8.0, max_active=1000, acoustic_scale=0.1
    )
    graph: GraphOptions = group(GraphOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: FindBadUtts) -> None:
    options.decode.check()
    lang, num_jobs = LangDir(options.lang), options.jobs.nj
    transforms = transform_files(options.transform_dir) if options.transform_dir else []
    network = [path for path in [options.model_dir / NETWORK] if path.exists()]
    inputs = [
        *input_files(options.data, options.lang, options.model_dir),
        *network,
        lang.lexicon_disambig_fst,
        lang.path / "phones/disambig.int",
        *transforms,
    ]
    with output_of(
        options, options.out, inputs, check=lambda: check_model_input(options.data, options.model_dir)
    ) as out:
        spec = BiasedSpec(
            options.data,
            options.lang,
            options.model_dir,
            options.transform_dir,
            out,
            num_jobs,
            options.bias,
            options.decode,
            options.graph,
        )
        with parts_to_decode(spec):
            run_jobs(
                options.jobs,
                out / "log" / "decode.JOB.log",
                "pyasr.decode.decoding.biased:decode_shard",
                spec,
            )
        write_report(
            out,
            DataDir(options.data).table("text"),
            set(lang.words.ids),
            lang.oov_word,
            num_jobs,
            options.bad,
        )


if __name__ == "__main__":
    run_step(FindBadUtts, main, __doc__)
