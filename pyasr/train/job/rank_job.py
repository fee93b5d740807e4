"""What the trainings of networks do alike on a rank: a job with its schedule and learning rate, and the model file in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from pyasr.base import log
from pyasr.hmm.model.model_file import write_subsampling
from pyasr.nn.files import MODEL_FILE
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import Strategy
from pyasr.train.data.rank_data import check_frames
from pyasr.train.data.sample import Sample, draw_sample
from pyasr.train.draws import ALL
from pyasr.train.evolve.combine import LogProbability, RecentModels, combine_recent, of_targets
from pyasr.train.evolve.growth import Growth
from pyasr.train.job.checkpoint_index import MODELS
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.schedules import make_schedule
from pyasr.train.sgd.learner import Learner
from pyasr.train.training_options import CombineOptions, GrowthOptions


def make_job(learner: Learner, frames: tuple, strategy: Strategy, options, minibatch: int, directory: Path, longest: int = 0,
             terms: float = 0.0, kind: Callable[..., Trainer] = Trainer) -> Trainer:  # fmt: skip
    """A training job, which is described in the log. Every rank must call this.

    frames     this rank's training and held-out ones
    options    of the training, with the groups `schedule` and `loop`
    minibatch  frames that the learning rate is for
    longest    the most frames of a minibatch of this rank, where they may be more than that
    terms      what `--lr-convention mean` divides the gradient of a minibatch by, where it has not `minibatch` terms: its units, or the
               frames of whole utterances
    kind       makes the job from the arguments of `Trainer`
    """
    training, heldout = frames
    schedule = make_schedule(options.schedule, strategy.epoch_frames(training.num_frames), terms or minibatch)
    most = int(strategy.comm.reduce_scalar(max(minibatch, longest), "max"))
    job = kind(learner, training, heldout, strategy, schedule, options.loop, most, directory)
    _announce(job)
    return job


def open_utterances(spec, parts: Sequence[list[str]], strategy: Strategy, make: Callable[..., Utterances]) -> tuple:
    """A rank's training and held-out utterances, whose keys are `parts`. Every rank must call this.

    make  of the keys and the last arguments of `Utterances`
    """
    options, rank = spec.training, strategy.comm.rank
    training, heldout = (make(keys, options.learner, options.loop.train_seed, rank, draw)
                         for keys, draw in zip(parts, (strategy.draw, ALL)))  # fmt: skip
    check_frames(spec.data, training.num_frames, strategy.comm)
    return training, heldout


def run_on_utterances(learner: Learner, utterances: tuple, strategy: Strategy, spec, terms: float) -> None:
    """Train on whole utterances, of `open_utterances`. `terms` as of `make_job`. Every rank must call this."""
    options, longest = spec.training, utterances[0].longest
    make_job(learner, utterances, strategy, options, options.learner.minibatch, spec.out, longest, terms).run()


def _announce(job: Trainer) -> None:
    """What is trained, on how much, with which learning rate."""
    flat, comm, network = job.learner.flat, job.comm, job.learner.network
    sizes = f"{flat.num_parameters} parameters, {network.num_pdfs} outputs, {job.schedule.epoch_frames} frames an epoch"
    comm.say(f"{sizes}, {comm.size} ranks, products in {job.learner.options.products()}")
    comm.say(f"the frames of a rank are {job.training.describe()}")
    comm.say(job.schedule.options.describe(job.strategy.num_averaged, job.schedule.terms))


def run_and_combine(job: Trainer, options, log_probability: LogProbability) -> None:
    """Run a job whose network stays as it is, and give its learner the combination of the last models, if there is to be one.

    options          of the training, with the groups `combine`, `sample` and `loop`
    log_probability  what models are combined by, see `Combination`
    """
    if options.combine.combine == "none":
        return job.run()
    seed, comm = options.loop.train_seed, job.comm
    sample = draw_sample(job.training, options.sample.sample_frames, comm, seed)
    recent = RecentModels(job.directory / MODELS, options.combine, comm)
    keeping = [(options.combine.combine_period_frames, recent.keep)]
    job.growth = Growth(GrowthOptions(), DnnOptions(), np.zeros(0), 0, seed, comm, keeping=keeping)
    job.run()
    combine_and_tell(job, options.combine, recent, sample, log_probability)


def combine_and_tell(job: Trainer, options: CombineOptions, recent: RecentModels, sample: Sample,
                     log_probability: LogProbability = of_targets) -> None:  # fmt: skip
    """The same, of a job that has been run and has kept `recent`."""
    combine_recent(options, recent, job.learner, job.position.frames_seen, sample, log_probability)
    heldout = job.evaluate()
    job.comm.say(f"combined model: held-out {heldout.text()}")


def write_model(comm: Comm, directory: Path, network: torch.nn.Module, normaliser: tuple[torch.Tensor, torch.Tensor],
                log_priors: torch.Tensor, factor: float = 1.0) -> None:  # fmt: skip
    """Let rank 0 write DIRECTORY/final.nnet, and how many frames the network answers at once, if they are several.

    normaliser  mean and inverse standard deviation of the network's input
    factor      of the log-likelihoods, see `AcousticModel`
    """
    if comm.rank == 0:
        model = AcousticModel(network.cpu(), *normaliser, log_priors, factor)
        model.save(directory / MODEL_FILE)
        if model.subsampling != 1:
            write_subsampling(directory, model.subsampling)
        log.info(f"{directory / MODEL_FILE}: written")
