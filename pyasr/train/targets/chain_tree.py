"""The decision tree of LF-MMI networks: left biphones with HMMs of one frame or more, from alignments of any
GMM system, by default at a third of its frame rate.

Jobs accumulate statistics of the chosen utterances in STATS_DIR/JOB.npz. Then one job writes DIR/tree and
DIR/final.mdl, which contains only a transition model. Features are those of the system that made the
alignments, with its speaker transforms. As in Kaldi's steps/nnet3/chain/build_tree.sh.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.cli.skipped_utterances import SkippedOptions, check_skipped
from pyasr.data.parts.job_parts import part_of, parts_of_jobs
from pyasr.data.tables.datadir import split
from pyasr.feats.inputs import INPUT_TABLES, FeatureReader, InputOptions, open_features
from pyasr.hmm.model.model_file import MODEL, read_transitions, write_subsampling
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.training.train_triphones import TreeOptions, rounded
from pyasr.hmm.trees.questions import make_questions
from pyasr.hmm.trees.tree_building import build_tree, read_roots
from pyasr.hmm.trees.tree_stats import TreeStats, accumulate_tree_stats
from pyasr.io.int_vectors import (
    iterate_int_vectors,
    iterate_job_archives,
    job_archive_files,
    read_job_archives,
)
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.io.tables import Parsed, Table, TableBuilder
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.symbols import write_lines
from pyasr.sequence.lfmmi.chain import (
    FRAME_SUBSAMPLING_FACTOR,
    aligned_phones,
    chain_alignments,
    chain_topology,
    subsample,
)
from pyasr.train.targets.pdf_targets import join
from pyasr.train.targets.usable_features import check_numbers

STATS_DIR = "stats"
_UTTERANCES = "utterances"
_CONTEXT = dict(context_width=2, central_position=1)


@dataclass(frozen=True)
class ChainTreeOptions(TreeOptions):
    """The decision tree of an LF-MMI network."""

    heading = "tree"

    split_thresh: float = option(
        100.0,
        "minimum log-likelihood gain of a split, summed over the subsampled frames",
        minimum=0.0,
        rare=True,
    )
    frame_subsampling_factor: int = option(
        FRAME_SUBSAMPLING_FACTOR, "keep every N-th frame; networks output at this rate", minimum=1
    )
    tree_seed: int = option(0, "random seed of the phone clustering that yields the questions", rare=True)


@dataclass(frozen=True)
class ChainTreeSpec:
    """The input of all jobs. transform_dir contains the speaker transforms; None if the system is not
    speaker-adapted."""

    data: Path
    lang: Path
    ali_dir: Path
    transform_dir: Path | None
    out: Path
    num_jobs: int
    tree: ChainTreeOptions


def choose_utterances(spec: ChainTreeSpec, options: SkippedOptions) -> None:
    """Create STATS_DIR with the list of utterances that have features, an alignment and a kept frame for each
    phone. The log names the skipped utterances.

    Raises UserError if too many are skipped, or if features and alignments do not match.
    """
    reader, lengths, factor = (
        FeatureReader(spec.data, InputOptions(cmvn="none")),
        TableBuilder(),
        spec.tree.frame_subsampling_factor,
    )
    for utt, tids in iterate_job_archives(spec.ali_dir):
        lengths.add(utt, len(tids))
    keys = join(reader, Parsed(lengths.table(), int), options.max_missing, spec.ali_dir)
    crowded = _crowded(spec, Table.of_keys(keys))
    skipped = dict.fromkeys(crowded, f"it has more phones than frames at 1/{factor} of the frame rate")
    check_skipped(skipped, len(keys), options, str(spec.ali_dir), "lower --frame-subsampling-factor")
    (spec.out / STATS_DIR).mkdir()
    write_lines(spec.out / STATS_DIR / _UTTERANCES, (key for key in keys if key not in crowded))


def _crowded(spec: ChainTreeSpec, keys: Container[str]) -> set[str]:
    """The utterances among `keys` whose alignments have more phones than kept frames."""
    trans, found = read_transitions(spec.ali_dir / MODEL), set[str]()
    for archive in job_archive_files(spec.ali_dir):
        alignments = {utt: tids for utt, tids in iterate_int_vectors(archive) if utt in keys}
        aligned = aligned_phones(trans, alignments)
        found.update(
            utt for utt, phones in aligned if subsample(phones, spec.tree.frame_subsampling_factor) is None
        )
    return found


def parts_to_count(spec: ChainTreeSpec) -> AbstractContextManager[None]:
    """A context in which each job has its part of the data directory."""
    return parts_of_jobs(spec.data, spec.out, split(spec.data, spec.num_jobs), INPUT_TABLES)


def accumulate_shard(spec: ChainTreeSpec, job: int) -> None:
    """Write the statistics of part `job` (1-based) of the utterances; nothing for a part without chosen
    utterances."""
    lang, chosen = LangDir(spec.lang), Table.read(spec.out / STATS_DIR / _UTTERANCES)
    part = part_of(spec.data, spec.out, spec.num_jobs, job)
    mine = [utt for utt in part.utterances if utt in chosen]
    if mine:
        alignments = read_job_archives(spec.ali_dir, keys=set(mine))
        features = _Kept(
            open_features(spec.data, spec.ali_dir, spec.transform_dir, part),
            spec.tree.frame_subsampling_factor,
        )
        old = read_transitions(spec.ali_dir / MODEL)
        trans, converted = chain_alignments(
            old, {utt: alignments[utt] for utt in mine}, lang.sets, features.factor
        )
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
    """Write the tree and the transition model from the statistics of all jobs."""
    lang, topology = (
        LangDir(spec.lang),
        chain_topology(read_transitions(spec.ali_dir / MODEL).topology.phones),
    )
    stats = rounded(
        TreeStats.add([TreeStats.load(path) for path in sorted((spec.out / STATS_DIR).glob("*.npz"))])
    )
    questions = make_questions(
        stats, lang.sets, lang.extra_questions, pdf_classes=(0, 1), seed=spec.tree.tree_seed
    )
    tree = build_tree(
        stats,
        questions,
        read_roots(lang.path / "phones" / "roots.int"),
        topology,
        spec.tree.num_leaves,
        thresh=spec.tree.split_thresh,
        cluster_thresh=spec.tree.cluster_thresh,
    )
    tree.write(spec.out / "tree")
    with KaldiWriter(spec.out / MODEL) as writer:
        TransitionModel.from_tree(topology, tree).write(writer)
    write_subsampling(spec.out, spec.tree.frame_subsampling_factor)
    log.info(
        f"{stats.num_frames:.0f} frames, {len(stats.events)} phones in context, tree of {tree.num_pdfs} pdfs"
    )
