#!/usr/bin/env python3
"""Build the tree of LF-MMI networks: left biphones at a third of the frame rate, from the alignments of a GMM
system.

Reads  DATA/{feats.scp,cmvn.scp,utt2spk},
       LANG/phones/{sets.int,roots.int,extra_questions.int,context_indep.int},
       ALI_DIR/{ali.*.gz,num_jobs,final.mdl,input.json,feature_origin.json}; for an adapted system,
       ALI_DIR/{final.mat,trans.*}
Writes OUT/{tree,final.mdl,frame_subsampling_factor,phones.txt}

final.mdl contains a transition model only, with HMMs of at least one frame (docs/networks/lfmmi.md). Use the
features of the GMM system.

Example:
    steps/build_chain_tree.py --nj 4 --num-leaves 1200 data/train data/lang exp/tri3_ali exp/chain/tree
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.cli.step import output_of, run_step
from pyasr.base.files.places import remove_tree
from pyasr.cluster.ranks.jobs import run_jobs
from pyasr.feats.fit import check_features
from pyasr.hmm.model.gmm_dir import check_phones, training_files
from pyasr.hmm.training.model_size import report_leaves
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.train.targets.chain_tree import (
    STATS_DIR,
    ChainTreeOptions,
    ChainTreeSpec,
    choose_utterances,
    parts_to_count,
)


@dataclass(frozen=True)
class BuildChainTree:
    data: Path = argument("data directory with the features of the GMM system")
    lang: Path = argument("lang directory")
    ali_dir: Path = argument("directory of the alignments, with their model")
    out: Path = argument("directory of the tree")
    tree: ChainTreeOptions = group(ChainTreeOptions)
    missing: SkippedOptions = group(SkippedOptions)
    jobs: JobOptions = group(JobOptions)


def main(options: BuildChainTree) -> None:
    transform_dir = options.ali_dir if (options.ali_dir / "trans.1").exists() else None
    inputs = training_files(options.data, options.lang, options.ali_dir)
    with output_of(
        options, options.out, inputs, check=lambda: check_features(options.data, options.ali_dir)
    ) as out:
        check_phones(options.ali_dir, LangDir(options.lang))
        spec = ChainTreeSpec(
            options.data, options.lang, options.ali_dir, transform_dir, out, options.jobs.nj, options.tree
        )
        choose_utterances(spec, options.missing)
        with parts_to_count(spec):
            run_jobs(
                options.jobs,
                out / "log" / "acc.JOB.log",
                "pyasr.train.targets.chain_tree:accumulate_shard",
                spec,
            )
        run_jobs(
            options.jobs,
            out / "log" / "tree.JOB.log",
            "pyasr.train.targets.chain_tree:make_tree",
            spec,
            num_jobs=1,
        )
        shutil.copyfile(options.lang / "phones.txt", out / "phones.txt")
        remove_tree(out / STATS_DIR)
        report_leaves(out, options.tree, "lower --num-leaves or --split-thresh, or use more data")


if __name__ == "__main__":
    run_step(BuildChainTree, main, __doc__)
