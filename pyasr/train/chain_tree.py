"""The tree of LF-MMI networks: left biphones with HMMs of one frame or more, from alignments of any GMM system at a third of its frames.

Jobs accumulate statistics of the utterances that were chosen before in STATS_DIR/JOB.npz, then one makes DIR/tree and DIR/final.mdl, a
transition model alone.
Features are those of the system that made the alignments, with its transforms of speakers. As in Kaldi's steps/nnet3/chain/build_tree.sh.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.left_out import LeftOutOptions, check_left_out
from pyasr.base.options import option
from pyasr.data.datadir import split
from pyasr.feats.inputs import FeatureReader, InputOptions, open_features
from pyasr.hmm.model import MODEL, read_transitions, write_subsampling
from pyasr.hmm.questions import make_questions
from pyasr.hmm.train_triphones import TreeOptions, rounded
from pyasr.hmm.transitions import TransitionModel
from pyasr.hmm.tree_building import build_tree, read_roots
from pyasr.hmm.tree_stats import TreeStats, accumulate_tree_stats
from pyasr.io.int_vectors import read_job_archives
from pyasr.io.kaldi import KaldiWriter
from pyasr.io.text import read_lines
from pyasr.lang.lang_dir import LangDir
from pyasr.lang.symbols import write_lines
from pyasr.sequence.chain import FRAME_SUBSAMPLING_FACTOR, aligned_phones, chain_alignments, chain_topology, subsample
from pyasr.train.targets import join
from pyasr.train.usable_features import check_numbers

STATS_DIR = "stats"
_UTTERANCES = "utterances"
_CONTEXT = dict(context_width=2, central_position=1)


@dataclass(frozen=True)
class ChainTreeOptions(TreeOptions):
    """The decision tree of an LF-MMI network."""

    split_thresh: float = option(100.0, "smallest gain in log-likelihood of a split, counted over the frames that are kept", minimum=0.0)
    frame_subsampling_factor: int = option(FRAME_SUBSAMPLING_FACTOR, "of so many frames one is kept, and answered by networks", minimum=1)
    tree_seed: int = option(0, "seed of the clustering of phones for questions")


@dataclass(frozen=True)
class ChainTreeSpec:
    """The work of all jobs; transform_dir has the speakers' transforms, if the system is adapted to them."""

    data: Path
    lang: Path
    ali_dir: Path
    transform_dir: Path | None
    out: Path
    num_jobs: int
    tree: ChainTreeOptions


def choose_utterances(spec: ChainTreeSpec, options: LeftOutOptions) -> None:
    """Make STATS_DIR with the list of the utterances that have features, an alignment and a frame for each phone; the log names others.

    Raises UserError where these are too many, and where features and alignments do not match.
    """
    reader, alignments = FeatureReader(spec.data, InputOptions(cmvn="none")), read_job_archives(spec.ali_dir)
    factor = spec.tree.frame_subsampling_factor
    keys = join(reader, alignments, options.max_missing, spec.ali_dir)
    aligned = aligned_phones(read_transitions(spec.ali_dir / MODEL), {key: alignments[key] for key in keys})
    reason = f"it has more phones than frames at 1/{factor} of the frame rate"
    left_out = {key: reason for key, phones in aligned if subsample(phones, factor) is None}
    check_left_out(left_out, len(keys), options, str(spec.ali_dir), "lower --frame-subsampling-factor")
    (spec.out / STATS_DIR).mkdir()
    write_lines(spec.out / STATS_DIR / _UTTERANCES, [key for key in keys if key not in left_out])


def accumulate_shard(spec: ChainTreeSpec, job: int) -> None:
    """Statistics of the `job`-th part of the utterances, 1-based; of a part of which none was chosen, nothing is written."""
    lang, chosen = LangDir(spec.lang), set(read_lines(spec.out / STATS_DIR / _UTTERANCES))
    mine = [utt for utt in split(spec.data, spec.num_jobs)[job - 1] if utt in chosen]
    if mine:
        alignments = read_job_archives(spec.ali_dir, keys=set(mine))
        features = _Kept(open_features(spec.data, spec.ali_dir, spec.transform_dir), spec.tree.frame_subsampling_factor)
        old = read_transitions(spec.ali_dir / MODEL)
        trans, converted = chain_alignments(old, {utt: alignments[utt] for utt in mine}, lang.sets, features.factor)
        stats = accumulate_tree_stats(trans, converted, features, lang.context_indep_phones, **_CONTEXT)
        stats.save(spec.out / STATS_DIR / f"{job}.npz")


class _Kept:
    """Features of every `factor`-th frame."""

    def __init__(self, reader: FeatureReader, factor: int):
        self.reader, self.factor = reader, factor

    def __getitem__(self, utt: str) -> np.ndarray:
        features = self.reader[utt]
        check_numbers(features, utt, self.reader.data)
        return features[:: self.factor]


def make_tree(spec: ChainTreeSpec, job: int) -> None:
    """Tree and transition model from the statistics of all jobs."""
    lang, topology = LangDir(spec.lang), chain_topology(read_transitions(spec.ali_dir / MODEL).topology.phones)
    stats = rounded(TreeStats.add([TreeStats.load(path) for path in sorted((spec.out / STATS_DIR).glob("*.npz"))]))
    questions = make_questions(stats, lang.sets, lang.extra_questions, pdf_classes=(0, 1), seed=spec.tree.tree_seed)
    tree = build_tree(stats, questions, read_roots(lang.path / "phones" / "roots.int"), topology, spec.tree.num_leaves,
                      thresh=spec.tree.split_thresh, cluster_thresh=spec.tree.cluster_thresh)  # fmt: skip
    tree.write(spec.out / "tree")
    with KaldiWriter(spec.out / MODEL) as writer:
        TransitionModel.from_tree(topology, tree).write(writer)
    write_subsampling(spec.out, spec.tree.frame_subsampling_factor)
    log.info(f"{stats.num_frames:.0f} frames, {len(stats.events)} phones in context, tree of {tree.num_pdfs} pdfs")
