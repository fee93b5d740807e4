"""Sequence-discriminative training of a network on lattices, on MPI ranks."""

from __future__ import annotations

from pyasr.feats.inputs import InputOptions, matrix_of
from pyasr.hmm.model.model_file import MODEL, read_transitions
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.mixing.gradient_sum import GradientSum
from pyasr.parallel.strategies import Strategy, make_strategy
from pyasr.sequence.lattices.hypotheses_store import HypothesesStore
from pyasr.sequence.lattices.lattice_objective import LatticeObjective
from pyasr.sequence.lattices.tid_classes import TidClasses
from pyasr.train.job.rank_job import open_utterances, run_on_utterances, write_model
from pyasr.train.minibatches.lattice_utterances import LatticeUtterances
from pyasr.train.objectives.lattice_criterion import LatticeCriterion
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import seed_dropout
from pyasr.train.steps.smbr_step import HYPOTHESES_FILE, SmbrSpec
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets
from pyasr.train.targets.rank_reader import rank_reader


def train_rank(spec: SmbrSpec, comm: Comm) -> None:
    """Train on this rank's utterances, together with all other ranks. Rank 0 writes final.nnet, with the
    priors of the initial network."""
    model, strategy = load_scorer(spec.dnn_dir), make_strategy(comm, spec.training.mixing)
    training, heldout = with_lattices(spec, model, strategy)
    learner = make_learner(spec, model, comm, strategy.sum_gradients(of_any_size=True))
    run_on_utterances(learner, (training, heldout), strategy, spec, training.mean_minibatch(comm))
    write_model(
        comm,
        spec.out,
        learner.trained_network(),
        (model.mean, model.inverse_std),
        model.log_priors,
        model.factor,
    )


def with_lattices(
    spec: SmbrSpec, model: AcousticModel, strategy: Strategy
) -> tuple[LatticeUtterances, LatticeUtterances]:
    """This rank's training and held-out utterances."""
    references = Targets.load(spec.out / TARGETS_FILE)
    parts = references.parts(strategy.share, strategy.comm.rank, strategy.comm.size)
    own = {*parts[0], *parts[1]}
    store = HypothesesStore(spec.out / HYPOTHESES_FILE, own)
    reader = rank_reader(
        spec.out, spec.data, InputOptions.load(spec.dnn_dir), references, own, matrix_of(spec.dnn_dir)
    )

    def utterances(keys: list[str], *arguments) -> LatticeUtterances:
        return LatticeUtterances(reader, model, references, keys, store, *arguments)

    return open_utterances(spec, parts, strategy, utterances)


def make_learner(
    spec: SmbrSpec, model: AcousticModel, comm: Comm, gradient_sum: GradientSum | None
) -> Learner:
    """The learner of the network with its criterion. Dropout differs by rank."""
    options, silence = spec.training, LangDir(spec.lang).silence_phones
    classes = TidClasses.of(read_transitions(spec.dnn_dir / MODEL), silence)
    objective = LatticeObjective(options.criterion, classes, model.log_priors, model.factor)
    seed_dropout(options.loop.train_seed, comm.rank)
    return Learner(model.network, options.learner, comm.size, gradient_sum, LatticeCriterion(objective))
