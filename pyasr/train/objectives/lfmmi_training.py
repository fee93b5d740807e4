"""LF-MMI training of a network over time on MPI ranks: from alignments and a chain tree to the model file."""

from __future__ import annotations

import torch

from pyasr.hmm.model.model_file import MODEL, read_transitions, read_tree
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import make_strategy
from pyasr.sequence.lfmmi.aligned_phones_file import load_aligned_phones
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi.supervision import SupervisionMaker, SupervisionOptions
from pyasr.train.data.rank_data import RankData, open_corpus
from pyasr.train.job.rank_job import make_job, run_and_combine, write_model
from pyasr.train.objectives.lfmmi_criterion import LfMmi, Numerators
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import initial_random, seed_dropout
from pyasr.train.steps.lfmmi_step import DENOMINATOR_FILE, PHONES_FILE, LfMmiSpec, LfMmiTraining
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets


def train_rank(spec: LfMmiSpec, comm: Comm) -> None:
    """Train on this rank's chunks together with all other ranks; rank 0 writes final.nnet, without the second
    output layer."""
    options, targets = spec.training, Targets.load(spec.out / TARGETS_FILE)
    strategy = make_strategy(comm, options.mixing)
    corpus = open_corpus(
        spec.data,
        spec.input,
        targets,
        options.store,
        options.learner,
        comm,
        strategy.share,
        options.loop.train_seed,
        options.perturb,
        over_time=options.over_time,
        draw=strategy.draw,
        directory=spec.out,
    )
    criterion = make_criterion(spec, corpus.packing.subsampling)
    network = make_network(options, corpus, targets.num_pdfs, comm)
    learner = Learner(network, options.learner, comm.size, strategy.sum_gradients(), criterion)
    job = make_job(
        learner, corpus.frames, strategy, options, corpus.packing.whole(options.learner.minibatch), spec.out
    )
    run_and_combine(job, corpus.training, options, criterion.log_probability)
    trained = learner.trained_network()
    network = trained.main if isinstance(trained, TwoOutputs) else trained
    write_model(comm, spec.out, network, corpus.normaliser(), torch.zeros(targets.num_pdfs), ACOUSTIC_FACTOR)


def make_criterion(spec: LfMmiSpec, factor: int) -> LfMmi:
    """The criterion from the files of `prepare` in the output directory."""
    options, graph, trans = (
        spec.training,
        DenominatorGraph.load(spec.out / DENOMINATOR_FILE),
        read_transitions(spec.out / MODEL),
    )
    supervision = SupervisionOptions(**vars(options.tolerance), frame_subsampling_factor=factor)
    maker = SupervisionMaker(graph, trans, read_tree(spec.out / "tree", trans), supervision)
    numerators = Numerators(maker, load_aligned_phones(spec.out / PHONES_FILE))
    return LfMmi(graph, numerators, options.objective, options.over_time.phases(factor))


def make_network(
    options: LfMmiTraining, corpus: RankData, num_pdfs: int, comm: Comm
) -> LayeredNetwork | TwoOutputs:
    """The network with its initial parameters, which are the same on all ranks; dropout differs by rank."""
    over_time, share, seed = (
        options.over_time,
        options.regularisation.xent_regularize,
        options.loop.train_seed,
    )
    network = LayeredNetwork(read_network(options.layers_file), corpus.input_dim, num_pdfs, over_time.chunk)
    network = TwoOutputs(network, share) if share else network
    network.initialise(initial_random(seed))
    seed_dropout(seed, comm.rank)
    return network
