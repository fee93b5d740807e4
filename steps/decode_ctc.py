#!/usr/bin/env python3
"""Decode a data directory with a CTC network: greedy search, prefix beam search, or search in a
graph TLG.fst (--search wfst).

Reads   CTC_DIR/{final.nnet,input.json,feature_origin.json}, UNITS_DIR/units.txt,
        DATA/{feats.scp,cmvn.scp,utt2spk}; with --posteriors, that table instead of network and features;
        --search wfst: GRAPH_DIR/{TLG.fst,words.txt,phones.txt}, optional CTC_DIR/frame_subsampling_factor;
        --search prefix: optional --lm ARPA
Writes  DECODE_DIR/{lat.JOB.gz,hyp.JOB.txt,words.txt,num_jobs}; with wfst also shard.JOB.json, totals.json;
        else nbest.JOB.txt

Greedy and prefix search need no lexicon and can output any word; DECODE_DIR/words.txt lists the words found,
and steps/score.py uses it. Lattices contain the negated log posteriors times ten, so that LM weight 10 gives
network and language model the same weight. With --search wfst and a network, posteriors are divided by the
priors of the units, counted in the training transcripts.

Examples:
    steps/decode_ctc.py --search wfst --graph-dir exp/ctc/graph data/test exp/ctc exp/ctc/decode_test
    steps/score.py data/test data/lang_ctc_test exp/ctc/decode_test
    steps/decode_ctc.py --search prefix --lm data/local/lm/trigram/lm.arpa.gz data/test exp/ctc \\
        exp/ctc/decode_prefix
    steps/score.py --min-lmwt 3 --word-ins-penalties=-8.0,-6.0,-4.0,-2.0,0.0,1.0 data/test \\
        data/lang_ctc_test exp/ctc/decode_prefix
"""

from dataclasses import dataclass
from pathlib import Path

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.option_uses import if_is
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.errors import UserError
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.decode.ctc.ctc_lists import join_lists
from pyasr.decode.ctc.ctc_prefix import PrefixOptions
from pyasr.decode.decoding.ctc_dir import ACOUSTIC_FACTOR, PREFIX, SEARCHES, WFST, CtcDecodeSpec
from pyasr.decode.decoding.decode_dir import decoding, join_totals
from pyasr.decode.decoding.outcome import check_hypotheses
from pyasr.decode.lattice_jobs.lattice_dir import keep_words
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions


@dataclass(frozen=True)
class DecodeCtc:
    data: Path = argument("data directory with features")
    ctc_dir: Path = argument("directory of the network")
    decode_dir: Path = argument("directory of the lattices")
    search: str = option(
        PREFIX,
        "search method; greedy: best unit of each frame; prefix: prefix beam search; wfst: search "
        "in the graph TLG.fst of --graph-dir",
        choices=SEARCHES,
        heading="search",
        common=True,
    )
    units_dir: Path | None = option(
        None, "directory of the units (units.txt); none: CTC_DIR/units", heading="input"
    )
    posteriors: Path | None = option(
        None,
        "table (scp) of log posteriors (frames, units), instead of network and features",
        heading="input",
    )
    graph_dir: Path | None = option(None, "directory of TLG.fst", only=if_is("search", WFST), heading="input")
    lm: Path | None = option(
        None,
        "n-gram model in ARPA format, optionally compressed",
        only=if_is("search", PREFIX),
        heading="input",
    )
    prefix: PrefixOptions = group(PrefixOptions, only=if_is("search", PREFIX))
    decode: DecodeOptions = group(
        DecodeOptions, only=if_is("search", WFST), acoustic_scale=1 / ACOUSTIC_FACTOR
    )
    lattices: DeterminizeOptions = group(DeterminizeOptions, only=if_is("search", WFST))
    jobs: JobOptions = group(JobOptions)

    def spec(self, out: Path) -> CtcDecodeSpec:
        return CtcDecodeSpec(
            self.search,
            self.data,
            self.ctc_dir,
            self.units_dir or self.ctc_dir / "units",
            out,
            self.jobs.nj,
            self.jobs.num_threads,
            self.posteriors,
            self.graph_dir,
            self.lm,
            self.prefix,
            self.decode,
            self.lattices,
        )


def check(options: DecodeCtc) -> None:
    options.decode.check()
    if options.search == WFST and not options.graph_dir:
        raise UserError("--search wfst needs --graph-dir; create the graph with utils/make_ctc_graph.py")


def main(options: DecodeCtc) -> None:
    check(options)
    with output_of(
        options, options.decode_dir, options.spec(options.decode_dir).input_files(), resume=True
    ) as out:
        with decoding(out, options.data, options.jobs.nj):
            run_jobs(
                options.jobs,
                out / "log" / "decode.JOB.log",
                "pyasr.decode.decoding.ctc_dir:decode_shard",
                options.spec(out),
            )
        if options.search != WFST:
            log.info(f"{join_lists(out, options.jobs.nj)} utterances decoded")
        else:
            assert options.graph_dir is not None
            keep_words(options.graph_dir / "words.txt", out)
            join_totals(out, options.jobs.nj).log()
        check_hypotheses(out, options.data, options.jobs.nj)


if __name__ == "__main__":
    run_step(DecodeCtc, main, __doc__)
