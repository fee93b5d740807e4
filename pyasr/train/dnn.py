"""Cross-entropy training of an acoustic model on MPI ranks: what one rank does from the data to the model file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pyasr.base.errors import UserError
from pyasr.base.options import changed, group, refuse_beside
from pyasr.feats.inputs import InputOptions
from pyasr.nn.dbn import DBN_FILE, Dbn, load_dbn
from pyasr.nn.feed_forward import DnnOptions, FeedForward, FixedParts, initialise
from pyasr.nn.layer_kinds import LstmOptions
from pyasr.nn.layered import LayeredNetwork, parse_line, read_network
from pyasr.nn.networks import Network
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies import MixingOptions, Strategy, make_strategy
from pyasr.parallel.strategies.gradient_sum import GradientSum
from pyasr.train.combine import MODELS, CombineOptions, RecentModels
from pyasr.train.corpus import PerturbOptions, StoreOptions, open_corpus
from pyasr.train.growth import Growth, GrowthOptions, check_growth, first_shape
from pyasr.train.input_transform import InputTransformOptions, estimate_transform
from pyasr.train.learner import Learner, LearnerOptions
from pyasr.train.loop import LoopOptions, Training
from pyasr.train.network_seeds import initial_random, seed_dropout
from pyasr.train.over_time import OverTimeOptions
from pyasr.train.priors import PriorOptions, decoding_priors, presoftmax_scales
from pyasr.train.rank_job import combine_and_tell, make_job, write_model
from pyasr.train.row_learner import RowLearner
from pyasr.train.sample import Sample, SampleOptions, draw_sample
from pyasr.train.saturation import SaturationFix
from pyasr.train.schedules import Schedule, ScheduleOptions
from pyasr.train.shard import Shard
from pyasr.train.shrinking import Shrinking, ShrinkingOfSaturated
from pyasr.train.soft_target_files import SoftTargetFiles
from pyasr.train.soft_targets import TeacherOptions
from pyasr.train.targets import TARGETS_FILE, Targets

_SATURATING = ("sigmoid", "tanh")


@dataclass(frozen=True)
class DnnTraining:
    """All options of the training itself."""

    dnn: DnnOptions = group(DnnOptions)
    over_time: OverTimeOptions = group(OverTimeOptions)
    schedule: ScheduleOptions = group(ScheduleOptions)
    learner: LearnerOptions = group(LearnerOptions)
    perturb: PerturbOptions = group(PerturbOptions)
    store: StoreOptions = group(StoreOptions)
    teacher: TeacherOptions = group(TeacherOptions)
    transform: InputTransformOptions = group(InputTransformOptions)
    growth: GrowthOptions = group(GrowthOptions)
    priors: PriorOptions = group(PriorOptions)
    combine: CombineOptions = group(CombineOptions)
    sample: SampleOptions = group(SampleOptions)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)

    @property
    def uses_sample(self) -> bool:
        """Whether something is measured on a sample of the training frames."""
        return self.combine.combine != "none" or self.priors.priors == "posteriors" or any(self.growth.measures.values())

    @property
    def saturates(self) -> bool:
        """Whether the network has sigmoid or tanh units."""
        if self.over_time.network:
            lines = [line for text in read_network(self.over_time.network) for line in parse_line(text)]
            return any(isinstance(line.options, LstmOptions) or getattr(line.options, "activation", "") in _SATURATING for line in lines)
        return self.dnn.activation in _SATURATING


@dataclass(frozen=True)
class TrainSpec:
    """The work of all ranks: features of `data`, targets in OUT/targets.npz, everything written to `out`.

    dbn  directory of a DBN whose machines are the initial hidden layers, with the normalisation of their input; None: random ones
    """

    data: Path
    out: Path
    input: InputOptions
    training: DnnTraining
    dbn: Path | None = None


def train_rank(spec: TrainSpec, comm: Comm, kind: Callable[..., Training] = Training, make_shard: Callable[..., Shard] = Shard) -> None:
    """Train on this rank's shard, together with all others; rank 0 writes final.nnet. The functions take what the classes do."""
    options, targets = spec.training, Targets.load(spec.out / TARGETS_FILE)
    dbn, strategy = load_dbn(spec.dbn / DBN_FILE) if spec.dbn else None, make_strategy(comm, options.mixing)
    soft = SoftTargetFiles(options.teacher, spec.data, targets, spec.out, comm) if options.teacher.teacher else None
    corpus = open_corpus(spec.data, spec.input, targets, options.store, options.learner, comm, strategy.share, options.loop.train_seed,
                         options.perturb, dbn and (dbn.mean.numpy(), dbn.inverse_std.numpy()),
                         make_shard, options.over_time, soft)  # fmt: skip
    counts, seed = targets.counts(), options.loop.train_seed
    fixed = FixedParts(estimate_transform(corpus.training, targets.num_pdfs, options.transform, comm),
                       presoftmax_scales(counts, options.priors.presoftmax_power))  # fmt: skip
    gradient_sum = strategy.sum_gradients(of_any_size=options.over_time.carry_state)
    learner = make_learner(options, corpus.input_dim, targets.num_pdfs, comm, dbn, fixed, gradient_sum)
    job = make_job(kind, learner, corpus.frames, strategy, options, corpus.packing.whole(options.learner.minibatch), spec.out)
    sample = draw_sample(corpus.training, options.sample.sample_frames, comm, seed) if options.uses_sample else None
    recent = RecentModels(spec.out / MODELS, options.combine, comm)
    job.growth = make_growth(options, counts, job.schedule, strategy, sample, recent)
    job.run()
    if options.combine.combine != "none":
        combine_and_tell(job, options.combine, recent, sample)
    network = learner.network.with_parameters(learner.flat.values())
    write_model(comm, spec.out, network, corpus.normaliser(), decoding_priors(options.priors, network, counts, sample))


def check_training(options: DnnTraining, dbn: Path | None) -> None:
    """Raise UserError where options do not go together."""
    options.schedule.check()
    options.learner.check()
    check_growth(options.growth, options.dnn, options.schedule.listens)
    if dbn and (options.growth.layer_period_frames or options.transform.input_transform != "none"):
        raise UserError("--dbn: it brings all hidden layers and was trained on untransformed input; leave out --layer-period-frames and "
                        "--input-transform")  # fmt: skip
    if options.over_time.network:
        check_over_time(options, dbn)
    elif options.over_time.carry_state:
        raise UserError("--carry-state: a feed-forward network has no state; give --network with a file that has lstm layers")
    if options.growth.shrink_value < 1 and not options.saturates:
        reason = "the network has no sigmoid, tanh or lstm units, and others do not saturate"
        raise UserError(f"--shrink-value {options.growth.shrink_value:g}: {reason}; leave it out")
    if options.teacher.teacher:
        check_teacher(options)
    elif options.teacher.teacher_data:
        raise UserError(f"--teacher-data {options.teacher.teacher_data}: there is no teacher to see it; give --teacher, or leave it out")


def check_over_time(options: DnnTraining, dbn: Path | None) -> None:
    """The same of a network from a file, which none of these knows."""
    growth = options.growth
    given = {"--dbn": dbn, "--layer-period-frames": growth.layer_period_frames, "--mix-up": growth.mix_up,
             "--fix-period-frames": growth.fix_period_frames, "--shrink-period-frames": growth.shrink_period_frames,
             "--input-transform": options.transform.input_transform != "none",
             "--presoftmax-power": options.priors.presoftmax_power}  # fmt: skip
    refuse_beside("--network", given, "these are for feed-forward networks")
    if options.over_time.carry_state:
        given = {"--combine": options.combine.combine != "none", "--priors posteriors": options.priors.priors == "posteriors",
                 "--shrink-value": growth.shrink_value < 1}  # fmt: skip
        refuse_beside("--carry-state", given, "these go by a sample of chunks, which would all begin without a state")
    refuse_beside("--network", changed(options.dnn, DnnOptions()), "layers and their dropout are those of the file")


def check_teacher(options: DnnTraining) -> None:
    """The same of a network that learns from another."""
    given = {"--network": options.over_time.network, "--vtlp": options.perturb.vtlp,
             "--input-transform": options.transform.input_transform != "none", "--combine": options.combine.combine != "none",
             "--priors posteriors": options.priors.priors == "posteriors", **options.growth.measures}  # fmt: skip
    reason = "its posteriors belong to single frames as they are, and what is measured on a sample needs the alignment"
    refuse_beside("--teacher", given, reason)


def make_learner(options: DnnTraining, input_dim: int, num_pdfs: int, comm: Comm, dbn: Dbn | None = None,
                 fixed: FixedParts = FixedParts(), gradient_sum: GradientSum | None = None) -> Learner:  # fmt: skip
    """The network with its initial parameters, which are the same on all ranks; dropout differs by rank."""
    seed = options.loop.train_seed
    network = make_network(options, input_dim, num_pdfs, initial_random(seed), fixed)
    if dbn is not None:
        dbn.start(network)
    seed_dropout(seed, comm.rank)
    kind = RowLearner if options.over_time.carry_state else Learner
    return kind(network, options.learner, comm.size, gradient_sum)


def make_network(options: DnnTraining, input_dim: int, num_pdfs: int, random: torch.Generator,
                 fixed: FixedParts = FixedParts()) -> Network:  # fmt: skip
    """The network to begin with, with random parameters."""
    over_time = options.over_time
    if over_time.network:
        chunk = 0 if over_time.carry_state else over_time.chunk
        network = LayeredNetwork(read_network(over_time.network), input_dim, num_pdfs, chunk)
        network.initialise(random)
        return network
    shape = first_shape(options.growth, options.dnn)
    network = FeedForward(shape, input_dim, num_pdfs, fixed)
    initialise(network, shape, random)
    return network


def make_growth(options: DnnTraining, counts: np.ndarray, schedule: Schedule, strategy: Strategy, sample: Sample | None,
                recent: RecentModels) -> Growth:  # fmt: skip
    """All that happens to the network beside learning."""
    actions, keeping = [], []
    if options.growth.fix_period_frames:
        actions.append((options.growth.fix_period_frames, SaturationFix(sample)))
    if options.growth.shrink_period_frames:
        actions.append((options.growth.shrink_period_frames, Shrinking(sample)))
    if options.growth.shrink_value < 1:
        shrinking = ShrinkingOfSaturated(sample, options.growth.shrink_value, options.growth.shrink_saturation_threshold)
        actions.append((options.growth.shrink_value_period_frames, shrinking))
    if options.combine.combine != "none":
        keeping.append((options.combine.combine_period_frames, recent.keep))
    total_frames = schedule.epoch_frames * options.schedule.num_epochs
    meets = partial(strategy.meets, epoch_frames=schedule.epoch_frames, minibatch=options.learner.minibatch)
    return Growth(options.growth, options.dnn, counts, total_frames, options.loop.train_seed, strategy.comm, actions, keeping, meets)
