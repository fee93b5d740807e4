"""Common part of the trainings of triphone systems: a tree and a first model from given alignments, then the
loop of `train_gmm`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.job_options import JobOptions
from pyasr.base.cli.options import argument, group, option
from pyasr.base.cli.seeds import generator
from pyasr.base.cli.skipped_utterances import SkippedOptions
from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import check_split
from pyasr.feats.inputs import InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.hmm.align.align_report import MAX_MISSING, AlignReport
from pyasr.hmm.align.viterbi import AlignOptions
from pyasr.hmm.graphs.transcript_ids import check_transcripts
from pyasr.hmm.model.gmm_dir import silence_pdfs, training_files, write_static_files
from pyasr.hmm.model.gmm_update import GmmUpdateOptions, mix_up
from pyasr.hmm.model.model_file import MODEL, read_transitions, read_tree
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.hmm.model.tree import ContextTree
from pyasr.hmm.shards.gmm_shard import GmmShard
from pyasr.hmm.shards.shard_store import MemoryOptions
from pyasr.hmm.training.train_gmm import (
    GmmScheduleOptions,
    GmmTrainer,
    Model,
    TrainingTransforms,
    TrainOptions,
    has_checkpoint,
)
from pyasr.hmm.trees.phone_segments import iterate_converted
from pyasr.hmm.trees.questions import make_questions
from pyasr.hmm.trees.tree_building import build_tree, init_model_from_stats, read_roots
from pyasr.hmm.trees.tree_stats import TreeStats, accumulate_tree_stats, reduced
from pyasr.io.int_vectors import iterate_job_archives
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class TreeOptions:
    """The decision tree of a triphone system."""

    heading = "tree"

    num_leaves: int = option(1200, "maximum number of leaves of the decision tree", minimum=1)
    cluster_thresh: float = option(
        -1.0,
        "maximum likelihood loss of a merge of leaves; negative: smallest gain of a split; 0: no merges",
        rare=True,
    )


TRIPHONE_SCHEDULE = {"num_iters": 35, "max_iter_inc": 25, "realign_iters": "10 20 30"}


@dataclass(frozen=True)
class TriphoneStep:
    """Options of every triphone training; steps differ in default sizes."""

    data: Path = argument("data directory with features")
    lang: Path = argument("language directory")
    ali_dir: Path = argument("directory with alignments of the data directory")
    dir: Path = argument("directory of the model")
    tree: TreeOptions = group(TreeOptions)
    schedule: GmmScheduleOptions = group(GmmScheduleOptions, **TRIPHONE_SCHEDULE)
    align: AlignOptions = group(AlignOptions)
    update: GmmUpdateOptions = group(GmmUpdateOptions)
    missing: SkippedOptions = group(SkippedOptions, max_missing=MAX_MISSING)
    store: MemoryOptions = group(MemoryOptions)
    jobs: JobOptions = group(JobOptions)

    def check(self) -> None:
        """Raise UserError for options that would fail in the ranks."""
        check_split(self.data, self.jobs.nj)
        self.schedule.check()
        if self.schedule.num_iters < 2:
            raise UserError(
                f"--num-iters {self.schedule.num_iters}: the training of triphones starts with iteration 1, "
                "so no iteration would run; give 2 or more"
            )

    def check_inputs(self) -> None:
        """Raise UserError if no transcript can be used, or if ALI_DIR has no model."""
        check_transcripts(self.data, self.lang)
        read_transitions(self.ali_dir / MODEL)

    @property
    def input_files(self) -> list[Path]:
        """The files for the fingerprint of the output."""
        return training_files(self.data, self.lang, self.ali_dir)

    def spec(self, out: Path, inputs: InputOptions) -> TriphoneSpec:
        """The work of a training on the features of `inputs`, with output in `out`."""
        train = TrainOptions(self.schedule, self.align, self.update, self.missing, self.store)
        return TriphoneSpec(self.data, self.lang, self.ali_dir, out, self.tree, train, inputs)


@dataclass(frozen=True)
class TriphoneSpec:
    """The work of a triphone training, given to every rank."""

    data: Path
    lang: Path
    ali_dir: Path
    out: Path
    tree: TreeOptions
    train: TrainOptions
    inputs: InputOptions


def train_triphones(
    spec: TriphoneSpec, lang: LangDir, shard: GmmShard, comm, adaptation: TrainingTransforms | None = None
) -> tuple[GmmTrainer, Model]:
    """Train on this rank's `shard`. Returns the trainer and the last model, for `finish`.

    adaptation  transforms of the shard's features; its `begin` is called once the shard has the alignments of
                `spec.ali_dir`
    """
    shard.check_usable(comm)
    old = read_transitions(spec.ali_dir / MODEL)
    tree, model = None, None
    if not comm.bcast_object(has_checkpoint(spec.out)):
        alignments = iterate_job_archives(spec.ali_dir, keys=set(shard.keys))
        report = shard.set_alignments(alignments, old.num_tids, spec.ali_dir)
        if not comm.reduce_scalar(report.num_aligned):
            raise UserError(
                f"{spec.ali_dir}: no alignment of any utterance of {spec.data}; align this data directory "
                "first"
            )
        if adaptation:
            adaptation.begin()
        tree, model = _first_model(spec, lang, shard, old, comm)
    tree = tree or read_tree(spec.out / "tree")
    if comm.rank == 0:
        write_static_files(spec.out, lang, spec.inputs, comm.size)
        keep_origin(spec.out, spec.data)
    shard.compile_graphs(
        lang, model.trans if model else TransitionModel.from_tree(Topology.read(lang.topo), tree), tree
    )
    trainer = GmmTrainer(
        spec.out, shard, comm, spec.train, lambda trans: silence_pdfs(lang, trans), adaptation
    )

    def first_alignment() -> AlignReport:
        assert model is not None
        return _converted(shard, old, model.trans, tree, spec.ali_dir)

    return trainer, trainer.run(1, model, first_alignment)


def _first_model(
    spec: TriphoneSpec, lang: LangDir, shard: GmmShard, old: TransitionModel, comm
) -> tuple[ContextTree, Model]:
    """The tree, also written to `spec.out`, and a model with up to --num-leaves Gaussians, from the
    alignments; the same on all ranks."""
    alignments = dict(shard.alignments())
    own = accumulate_tree_stats(old, alignments, shard, lang.context_indep_phones) if alignments else None
    total = reduced(own, comm)
    if comm.rank == 0:
        assert total is not None
        stats = rounded(total)
        topology = Topology.read(lang.topo)
        central = topology.num_pdf_classes(lang.nonsilence_phones[0]) // 2
        questions = make_questions(
            stats, lang.sets, lang.extra_questions, pdf_classes=(central,), seed=spec.train.schedule.seed
        )
        tree = build_tree(
            stats,
            questions,
            read_roots(lang.path / "phones" / "roots.int"),
            topology,
            spec.tree.num_leaves,
            cluster_thresh=spec.tree.cluster_thresh,
        )
        tree.write(spec.out / "tree")
        trans, gmm, occupancies = init_model_from_stats(stats, tree, topology)
        rng = generator(spec.train.schedule.seed, "mix_up", "first")
        gmm = mix_up(gmm, occupancies, spec.tree.num_leaves, spec.train.update, rng)
        log.info(
            f"{len(stats.events)} phones in context, {sum(map(len, questions.values()))} questions, tree of "
            f"{tree.num_pdfs} pdfs"
        )
        made = (tree, Model(trans, gmm, spec.tree.num_leaves))
    return comm.bcast_object(made if comm.rank == 0 else None)


def rounded(stats: TreeStats) -> TreeStats:
    """Statistics rounded so that the order of summation has no effect: ties between questions are broken
    in the same way for any number of ranks."""
    return dataclasses.replace(stats, sums=np.round(stats.sums * 1024) / 1024)


def _converted(
    shard: GmmShard, old: TransitionModel, new: TransitionModel, tree: ContextTree, ali_dir: Path
) -> AlignReport:
    """Convert the shard's alignment to the same states of the new model."""
    return shard.set_alignments(
        iterate_converted(old, new, tree, dict(shard.alignments())), new.num_tids, ali_dir
    )
