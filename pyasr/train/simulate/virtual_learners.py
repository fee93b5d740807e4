"""Real training with virtual learners in simulated time: the effect of a scheme on a model and its duration,
for any number of learners.

    result = simulate(spec, VirtualOptions(num_learners=16, compute_s=0.16, model_mb=160))

Every learner is a rank of `pyasr.parallel.simulation.simulator` with its own network and shard, and runs the
loop, the strategy and the schedule of `pyasr.train.objectives.rank_training:train_rank`. The model of one
learner is bit-identical to that of ordinary training on one rank. A minibatch takes a random virtual time
from `ComputeTime`, proportionally less for fewer frames; evaluating held-out frames takes none. A small
network can stand for a large one: its messages take as long as those of a model of `model_mb`. The defaults
follow from the times published with Su, Chen and Xu (arXiv:1507.01239): 300 h in 254.5 minutes on one K20
with minibatches of 1024, and 160 MB at about 690 MB/s.

The learners share a process, in which one runs at a time. Each has its own state of PyTorch's random numbers.
Frames that several learners use are shared (`pyasr.train.simulate.shared_shards`). There are no checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pyasr.base import log
from pyasr.base.cli.options import to_json
from pyasr.base.cli.seeds import generator
from pyasr.base.outputs.output import atomic_write
from pyasr.parallel.simulation.simulator import ComputeTime, run_simulated
from pyasr.train.data.data_shard import Shard
from pyasr.train.data.frame_memory import check_enough, requested_limit
from pyasr.train.data.rank_data import frame_reader
from pyasr.train.job.checkpoints import random_state, set_random_state
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.feature_codec import make_code
from pyasr.train.objectives.dnn_training import make_network
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.sgd.criterion import Diverged
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import dropout_seed
from pyasr.train.simulate.shared_shards import SharedShards
from pyasr.train.simulate.verdict import NOT_A_NUMBER, guessing, verdict
from pyasr.train.steps.dnn_step import DnnTraining, TrainSpec
from pyasr.train.steps.virtual_step import SimulationSpec, VirtualOptions
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets
from pyasr.train.totals import Totals

SIMULATION_FILE = "simulation.json"
_MB = 1_000_000


class OwnRandom:
    """A learner's own state of PyTorch's global random numbers, as in a process of its own."""

    def __init__(self, seed: int, device: torch.device):
        self.device = device
        before = random_state(device)
        torch.manual_seed(seed)
        self.state = random_state(device)
        set_random_state(before, device)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Use this state in the block, in which no other learner may run."""
        before = random_state(self.device)
        set_random_state(self.state, self.device)
        yield
        self.state = random_state(self.device)
        set_random_state(before, self.device)


@dataclass
class LearnerRecord:
    """Record of a learner's training.

    history    (virtual seconds, held-out objective, held-out accuracy) of the initial model, and after each
               epoch
    apart      the same for the learners' own models before the last mixing of each epoch, each on its part of
               the held-out frames
    learner    (held-out objective, accuracy) of the model of one learner, with --save-learner
    end        entry of `history` of the present model; a schedule may return to an earlier one
    seconds    seconds of computation, waiting and mixing
    sizes      frames of an epoch over all learners, parameters of the network
    """

    history: list[tuple[float, float, float]] = field(default_factory=list)
    apart: list[tuple[float, float, float]] = field(default_factory=list)
    end: tuple[float, float, float] | None = None
    learner: tuple[float, float] | None = None
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    sizes: tuple[int, int] = (0, 0)


class VirtualTrainer(Trainer[Learner]):
    """A training job in virtual time.

    time     distribution of the time of a minibatch; the random stream depends only on `seed` and the rank
    course   filled while the job runs, so that it is available if the job diverges
    """

    def __init__(self, time: ComputeTime, seed: int, course: LearnerRecord, *arguments):
        super().__init__(*arguments)
        self.compute_time, self.course, self._computed = time, course, 0.0
        self._stream = generator(seed, "computing time", self.comm.rank)
        random = OwnRandom(
            dropout_seed(self.options.train_seed, self.comm.rank), self.learner.flat.master.device
        )
        # a step may be interrupted by other learners, the loss is not
        self.learner.loss_context = random.in_use
        course.sizes = (self.schedule.epoch_frames, self.learner.flat.num_parameters)

    def run(self) -> None:
        """See `Trainer.run`; starts at virtual time 0."""
        self._begin = self.comm.time()
        super().run()

    def check_memory(self) -> None:
        """No check: the learners compute one after the other."""

    def single_rank_speed(self) -> float:
        """Single-learner throughput, from the mean time of a minibatch."""
        return self.minibatch / self.compute_time.mean_s if self.compute_time.mean_s else 0.0

    def _learn(self, x: torch.Tensor, pdfs: torch.Tensor) -> torch.Tensor:
        sums = super()._learn(x, pdfs)
        seconds = self.compute_time.sample(self._stream, self.comm.rank) * pdfs.numel() / self.minibatch
        self.comm.sleep(seconds)
        self._computed += seconds
        return sums

    def evaluate(self) -> Totals:
        """See `Trainer.evaluate`; adds the result to `course.history` unless the schedule has ended."""
        now, totals = self.comm.time() - self._begin, super().evaluate()
        if not self.schedule.finished:
            self.course.history.append((now, totals.objective, totals.accuracy))
            waiting, mixing = map(float, self.strategy.times)
            self.course.seconds = self._computed, waiting, mixing
        return totals

    def evaluate_before_consensus(self) -> None:
        """See `Trainer.evaluate_before_consensus`; learners wait for each other; it takes no virtual time."""
        self.strategy.waiting(self.comm.barrier)
        now, totals = self.comm.time() - self._begin, super().evaluate()
        self.heldout_before_consensus = totals
        self.course.apart.append((now, totals.objective, totals.accuracy))

    def log_one_learner(self, heldout: Totals) -> None:
        """See `Trainer.log_one_learner`; also records the result."""
        super().log_one_learner(heldout)
        self.course.learner = heldout.objective, heldout.accuracy

    def _copy_if_needed(self) -> torch.Tensor | None:
        """See `Trainer._copy_if_needed`; records the result of the present model, just evaluated."""
        self.course.end = self.course.history[-1]
        return super()._copy_if_needed()

    def _save(self, equal: bool) -> None:
        """No checkpoint: an interrupted simulation starts again."""

    def _resume(self) -> bool:
        return False

    def check_divergence(self, totals: Totals) -> None:
        """Raise Diverged only if the objective is not finite; the final model is judged by `verdict`."""
        if not math.isfinite(totals.objective):
            raise Diverged(f"the simulation has diverged: the objective is {totals.objective}")

    def is_checkpoint_due(self) -> bool:
        return False

    def _must_stop(self) -> bool:
        """False, without a broadcast, which would take virtual time."""
        return False


def simulate(spec: TrainSpec, options: VirtualOptions) -> dict:
    """Train like `train_rank`, with virtual learners. Writes OUT/final.nnet and, in virtual time,
    OUT/metrics.jsonl.

    Returns the content of SIMULATION_FILE: options, sizes, `history`, `apart`, `learner`, the learners' mean
    `seconds` by activity, the mean duration of an epoch `epoch_s`, `diverged` (a message if values were not
    finite, else None), the losses of `guessing` and the `verdict` on the model (None if nothing is held out).
    """
    _check_room(spec, options.num_learners)
    courses = [LearnerRecord() for _ in range(options.num_learners)]
    time, seed, make_shard = options.compute_time(), options.virtual_seed, shards_for(spec.training)

    def learner(comm) -> None:
        kind = partial(VirtualTrainer, time, seed, courses[comm.rank])
        train_rank(spec, comm, kind, make_shard=make_shard, limit=requested_limit)

    diverged = None
    try:
        run_simulated(options.num_learners, learner, options.network(message_bytes(spec)), seed)
    except Diverged as error:
        log.warning(str(error))
        diverged = str(error)
    judged = _judged(courses[0].end, diverged is not None, Targets.load(spec.out / TARGETS_FILE))
    return {
        **_result(courses),
        "diverged": diverged,
        **judged,
        "virtual": to_json(options),
        "training": to_json(spec.training),
    }


def _judged(end: tuple[float, float, float] | None, has_diverged: bool, targets: Targets) -> dict:
    """Verdict on a model with the held-out result `end`, and the losses of guessing."""
    than = guessing(targets)
    if than is None:
        return {"guessing": None, "verdict": NOT_A_NUMBER if has_diverged else None}
    return {
        "guessing": than._asdict(),
        "verdict": NOT_A_NUMBER if has_diverged or end is None else verdict(-end[1], than),
    }


def shards_for(training: DnnTraining) -> Callable[..., Shard]:
    """Class of the learners' shards: shared, unless frames may be streamed, which each learner does in its
    own order."""
    return Shard if training.store.max_store_mb or training.perturb.vtlp else SharedShards()


def _result(courses: list[LearnerRecord]) -> dict:
    """Summary of all learners' courses. The history is that of the first learner, the same for all."""
    history, (epoch_frames, num_parameters) = courses[0].history, courses[0].sizes
    computing, waiting, mixing = np.mean([course.seconds for course in courses], axis=0).tolist()
    first = courses[0]
    return {
        "epoch_frames": epoch_frames,
        "num_parameters": num_parameters,
        "history": history,
        "apart": first.apart,
        "learner": first.learner,
        "epoch_s": (history[-1][0] - history[0][0]) / (len(history) - 1) if len(history) > 1 else None,
        "seconds": {"computing": computing, "waiting": waiting, "mixing": mixing},
    }


def _check_room(spec: TrainSpec, num_learners: int) -> None:
    """Raise UserError if all learners' frames do not fit into memory; shared frames cannot be streamed."""
    store, targets = spec.training.store, Targets.load(spec.out / TARGETS_FILE)
    dim = frame_reader(spec.data, spec.input, targets).dim
    code = make_code(store.store_type, spec.training.learner.torch_dtype())
    packing = spec.training.over_time.packing(spec.input, dim)
    sizes = packing.num_bytes(np.diff(targets.offsets), dim, code)
    training, heldout = (int(sizes[targets.heldout == held].sum()) for held in (False, True))
    limited = num_learners * _MB * store.max_store_mb
    check_enough(heldout + (min(limited, num_learners * training) if limited else training), num_learners)


def message_bytes(spec: TrainSpec) -> int:
    """Bytes of the network's parameters, in float32."""
    targets = Targets.load(spec.out / TARGETS_FILE)
    dim = frame_reader(spec.data, spec.input, targets).dim
    input_dim = dim * spec.training.over_time.packing(spec.input, dim).width
    network = make_network(spec.training, input_dim, targets.num_pdfs, torch.Generator())
    return 4 * sum(parameter.numel() for parameter in network.parameters())


def simulate_job(spec: SimulationSpec, job: int) -> None:
    """Simulate and write OUT/simulation.json."""
    result = simulate(spec.training, spec.virtual)
    with atomic_write(Path(spec.training.out) / SIMULATION_FILE) as f:
        json.dump(result, f, indent=1)
        f.write("\n")
