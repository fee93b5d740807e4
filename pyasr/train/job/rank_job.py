"""Common parts of network training on a rank: the job with its schedule and learning rate, and the model file
at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pyasr.base import log
from pyasr.feats.inputs import INPUT_FILE
from pyasr.feats.origin import ORIGIN_FILE
from pyasr.hmm.model.model_file import MODEL, write_subsampling
from pyasr.nn.files import MODEL_FILE
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.construction import Network
from pyasr.parallel.communication.comm import Comm
from pyasr.parallel.strategies import Strategy
from pyasr.train.data.minibatch_stream import Frames
from pyasr.train.data.sample import Sample, draw_sample
from pyasr.train.evolve.combine import LogProbability, RecentModels, combine_recent, of_targets
from pyasr.train.evolve.growth import Growth
from pyasr.train.job.checkpoint_index import MODELS
from pyasr.train.job.one_learner import DIRECTORY, OneLearner
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.frames import FrameStore
from pyasr.train.minibatches.whole_utterances import Utterances
from pyasr.train.schedules import make_schedule
from pyasr.train.sgd.learner import Learner
from pyasr.train.training_options import CombineOptions, GrowthOptions

_MODEL_FILES = (MODEL, "tree", "phones.txt", INPUT_FILE, ORIGIN_FILE)


@dataclass(frozen=True)
class JobData:
    """A rank's data.

    normaliser  mean and inverse standard deviation of the network's input, float32 (input_dim,)
    minibatch   frames per minibatch that the learning rate refers to
    longest     maximum frames of a minibatch of this rank, if it can exceed `minibatch`
    terms       divisor of a minibatch's gradient for `--lr-convention mean`, if it is not `minibatch`: units
                of a minibatch, or frames of whole utterances; 0: `minibatch`
    """

    training: Frames | Utterances
    heldout: FrameStore | Utterances
    normaliser: tuple[torch.Tensor, torch.Tensor]
    minibatch: int
    longest: int = 0
    terms: float = 0.0


def make_job(
    learner: Learner,
    data: JobData,
    strategy: Strategy,
    options,
    directory: Path,
    kind: Callable[..., Trainer[Learner]] = Trainer,
) -> Trainer[Learner]:
    """Create a training job and describe it in the log. Every rank must call this.

    options  of the training, with the groups `schedule` and `loop`
    kind     class of the job, with the arguments of `Trainer`
    """
    epoch_frames = strategy.epoch_frames(data.training.num_frames)
    schedule = make_schedule(options.schedule, epoch_frames, data.terms or data.minibatch)
    most = int(strategy.comm.reduce_scalar(max(data.minibatch, data.longest), "max"))
    job = kind(learner, data.training, data.heldout, strategy, schedule, options.loop, most, directory)
    _announce(job)
    return job


def _announce(job: Trainer[Learner]) -> None:
    """Log the sizes of the network and the data, and the learning rate."""
    flat, comm, network = job.learner.flat, job.comm, job.learner.network
    sizes = (
        f"{flat.num_parameters} parameters, {network.num_pdfs} outputs, {job.schedule.epoch_frames} "
        "frames an epoch"
    )
    comm.log(f"{sizes}, {comm.size} ranks, products in {job.learner.options.products()}")
    comm.log(f"the frames of a rank are {job.training.describe()}")
    comm.log(job.schedule.options.describe(job.strategy.num_averaged, job.schedule.terms))


def run_and_combine(
    job: Trainer[Learner], training: Frames, options, log_probability: LogProbability
) -> None:
    """Run a job whose network does not grow. With --combine, its learner has the combination of the last
    models afterwards.

    training         the frames of the job
    options          of the training, with the groups `combine`, `sample` and `loop`
    log_probability  objective of the combination, see `Combination`
    """
    if options.combine.combine == "none":
        return job.run()
    seed, comm = options.loop.train_seed, job.comm
    sample = draw_sample(training, options.sample.sample_frames, comm, seed)
    recent = RecentModels(job.directory / MODELS, options.combine, comm)
    keeping = [(options.combine.combine_period_frames, recent.keep)]
    job.growth = Growth(GrowthOptions(), DnnOptions(), np.zeros(0), 0, seed, comm, keeping=keeping)
    job.run()
    combine_and_log(job, options.combine, recent, sample, log_probability)


def combine_and_log(
    job: Trainer[Learner],
    options: CombineOptions,
    recent: RecentModels,
    sample: Sample,
    log_probability: LogProbability = of_targets,
) -> None:
    """Combine the models `recent` that a finished job has kept, and log the held-out result."""
    combine_recent(options, recent, job.learner, job.position.frames_seen, sample, log_probability)
    heldout = job.evaluate()
    job.comm.log(f"combined model: held-out {heldout.text()}")


def write_model(
    comm: Comm,
    directory: Path,
    network: torch.nn.Module,
    normaliser: tuple[torch.Tensor, torch.Tensor],
    log_priors: torch.Tensor,
    factor: float = 1.0,
) -> None:
    """Write DIRECTORY/final.nnet on rank 0, and the subsampling factor of the network if it is not 1.

    normaliser  mean and inverse standard deviation of the network's input
    factor      factor on the log-likelihoods, see `AcousticModel`
    """
    if comm.rank == 0:
        model = AcousticModel(network.cpu(), *normaliser, log_priors, factor)
        model.save(directory / MODEL_FILE)
        if model.subsampling != 1:
            write_subsampling(directory, model.subsampling)
        log.info(f"{directory / MODEL_FILE}: written")


def save_one_learner(
    job: Trainer[Learner],
    one_learner: OneLearner,
    normaliser: tuple[torch.Tensor, torch.Tensor],
    priors: Callable[[Network], torch.Tensor],
) -> None:
    """Write OUT/learner, a model directory for decoding like OUT, and log its held-out result. The job's
    parameters are this model's afterwards. Every rank must call this.

    one_learner  of the job, which has ended
    normaliser   mean and inverse standard deviation of the network's input
    priors       function from a network to its log priors
    """
    flat, directory = job.learner.flat, job.directory / DIRECTORY
    flat.master.copy_(one_learner.parameters(flat.master))
    flat.refresh()
    job.log_one_learner(job.evaluate())
    if job.comm.rank == 0:
        directory.mkdir(exist_ok=True)
        _copy_model_files(job.directory, directory)
    network = job.learner.trained_network()
    write_model(job.comm, directory, network, normaliser, priors(network))


def _copy_model_files(out: Path, directory: Path) -> None:
    """Copy the files that decoding needs in addition to the network."""
    for path in (out / name for name in _MODEL_FILES):
        if path.exists():
            shutil.copyfile(path, directory / path.name)
