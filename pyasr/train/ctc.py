"""CTC training of a network over time, on MPI ranks: from transcripts to the model file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pyasr.base.left_out import LeftOutOptions, check_left_out
from pyasr.base.options import argument, group
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.origin import keep_origin
from pyasr.io.text import read_table
from pyasr.lang.subwords import MODEL, UNITS, UNITS_DIR, UNKNOWN_ID, WORDS, Subwords
from pyasr.nn.acoustic import log_priors
from pyasr.nn.layered import LayeredNetwork, read_network
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.parallel.comm import Comm
from pyasr.parallel.strategies import MixingOptions, make_strategy
from pyasr.sequence.ctc import BLANK, CtcSupervision, ctc_loss
from pyasr.train.corpus import check_frames
from pyasr.train.learner import Learner, LearnerOptions
from pyasr.train.loop import LoopOptions
from pyasr.train.network_seeds import initial_random, seed_dropout
from pyasr.train.on_ranks import copy_inputs, training_output
from pyasr.train.padded_utterances import CtcMinibatch, PaddedUtterances
from pyasr.train.rank_job import make_job, write_model
from pyasr.train.schedules import ScheduleOptions
from pyasr.train.shard import global_normaliser
from pyasr.train.targets import TARGETS_FILE, HeldoutOptions, Targets, choose_heldout, trained_tables
from pyasr.train.utterance_training import ObjectiveTotals, UtteranceTraining

_TOO_SHORT, _STRIDE = "it is too short for its transcript", "let the network leave out fewer frames (stride)"
_MOST_LETTERS = 50  # that are shown


@dataclass(frozen=True)
class CtcTraining:
    """All options of the training itself; --minibatch counts frames, those that are repeated too. The learning rate is for the mean over
    units, of which a minibatch has as many as is usual in these data."""

    schedule: ScheduleOptions = group(ScheduleOptions, learning_rate=0.3)
    learner: LearnerOptions = group(LearnerOptions, minibatch=8000)
    mixing: MixingOptions = group(MixingOptions)
    loop: LoopOptions = group(LoopOptions)


@dataclass(frozen=True)
class CtcTargetOptions(HeldoutOptions):
    """Which utterances are trained on."""

    missing: LeftOutOptions = group(LeftOutOptions, max_missing=0.05)


@dataclass(frozen=True)
class CtcStep:
    """The options of steps/train_ctc.py but those of its job."""

    data: Path = argument("data directory with features and transcripts")
    units_dir: Path = argument("directory of the units (utils/train_subwords.py)")
    network: Path = argument("file of layers (docs/networks.md); layers splice, so --splice-left and --splice-right do not count")
    out: Path = argument("directory of the model to be trained")
    input: InputOptions = group(InputOptions)
    targets: CtcTargetOptions = group(CtcTargetOptions)
    training: CtcTraining = group(CtcTraining)


@dataclass(frozen=True)
class CtcSpec:
    """The work of all ranks: features of `data`, units of the transcripts in OUT/targets.npz, everything written to `out`."""

    data: Path
    network: Path
    out: Path
    input: InputOptions
    training: CtcTraining


@contextlib.contextmanager
def staged_ctc(step: CtcStep) -> Iterator[CtcSpec]:
    """The work of the ranks; its `out`, of `training_output`, has what they need.

    Raises UserError where options or inputs do not go together.
    """
    step.training.schedule.check_deaf()
    step.training.learner.check()
    input = replace(step.input, splice_left=0, splice_right=0)
    units = [step.units_dir / name for name in (MODEL, UNITS, WORDS)]
    with training_output(step, [*trained_tables(step.data, input), step.data / "text", step.network, *units]) as out:
        (out / UNITS_DIR).mkdir(exist_ok=True)
        copy_inputs(units, out / UNITS_DIR)
        input.save(out)
        keep_origin(out, step.data)
        prepare(step, input, out)
        yield CtcSpec(step.data, step.network, out, input, step.training)


def prepare(step: CtcStep, input: InputOptions, out: Path) -> None:
    """Write OUT/targets.npz: units of the utterances that have a transcript in letters of the units, and frames enough for it.

    Others are named. Raises UserError where they are too many.
    """
    reader, subwords, texts = FeatureReader(step.data, input), Subwords.read(step.units_dir), read_table(step.data / "text")
    with torch.device("meta"):
        network = LayeredNetwork(read_network(step.network), reader.dim, len(subwords))
    units = {key: subwords.encode(texts[key]) for key in reader.keys if texts.get(key)}
    strange = {key: subwords.strange_letters(texts[key]) for key in units if UNKNOWN_ID in units[key]}
    num_outputs = [-(-reader.num_frames(key) // network.subsampling) for key in units]
    supervision = CtcSupervision.of(list(units.values()), num_outputs, list(units))
    wanted = set(reader.utterances).union(reader.keys)
    left_out = {key: "it has no features" for key in wanted.difference(reader.keys)}
    left_out |= {key: "it has no transcript" for key in reader.keys if key not in units}
    left_out |= {key: _TOO_SHORT for key, fits in zip(units, supervision.reachable) if not fits}
    letters = "".join(sorted(set().union(*strange.values())))
    left_out |= {key: f"it has letters that no unit has: {_shown(letters)}" for key, own in strange.items() if own}
    advice = [*_advice_on_letters(letters, subwords), *[_STRIDE] * (_TOO_SHORT in left_out.values() or not letters)]
    check_left_out(left_out, len(wanted), step.targets.missing, str(step.data), ", ".join(advice))
    keys = [key for key in units if key not in left_out]
    offsets = np.concatenate([[0], np.cumsum([len(units[key]) for key in keys])]).astype(np.int64)
    heldout = choose_heldout(keys, np.array([reader.num_frames(key) for key in keys]), reader.original, step.targets)
    flat = np.concatenate([units[key] for key in keys]).astype(np.int32)
    Targets(keys, offsets, flat, heldout, len(subwords)).save(out / TARGETS_FILE)


def _shown(letters: str) -> str:
    return " ".join(letters[:_MOST_LETTERS]) + " ..." * (len(letters) > _MOST_LETTERS)


def _advice_on_letters(letters: str, subwords: Subwords) -> Iterator[str]:
    """What to do about letters that no unit has, if there are any."""
    in_one_case = len(subwords.strange_letters(letters.swapcase()))
    if in_one_case < len(letters):
        yield "write these transcripts and the text of the units in one case, as by tr A-Z a-z"
    if in_one_case:
        yield "learn the units of these transcripts (utils/train_subwords.py)"


class CtcTotals(ObjectiveTotals):
    """Sums over units: loss (nats), nothing, units."""

    def text(self) -> str:
        """For log lines."""
        return f"objective {self.objective:.4f} a unit" if self.sums[2] else "no units"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        return {"objective": round(self.objective, 6)} if self.sums[2] else {}


class CtcLearner(Learner):
    """A learner whose minibatches are whole utterances."""

    def loss(self, x: torch.Tensor, supervision: CtcMinibatch) -> tuple[torch.Tensor, torch.Tensor]:
        """(the summed loss with a gradient; float64 (loss, 0, units)) of a minibatch."""
        loss, counts = ctc_loss(self.network(x, torch.from_numpy(supervision.lengths).to(x.device)), supervision)
        return loss, torch.tensor([float(loss.detach()), 0.0, counts.num_labels], dtype=torch.float64, device=loss.device)


class CtcJob(UtteranceTraining):
    """A training by CTC."""

    totals = CtcTotals


def train_rank(spec: CtcSpec, comm: Comm) -> None:
    """Train on this rank's utterances, together with all others; rank 0 writes final.nnet, with the units' priors."""
    options, targets = spec.training, Targets.load(spec.out / TARGETS_FILE)
    strategy, reader, seed = make_strategy(comm, options.mixing), FeatureReader(spec.data, spec.input), options.loop.train_seed
    parts = targets.shard(*strategy.share, heldout=False) if strategy.share else [], targets.shard(comm.rank, comm.size, heldout=True)
    training, heldout = (PaddedUtterances(reader, targets, keys, options.learner, seed, comm.rank) for keys in parts)
    check_frames(spec.data, training.num_frames, comm)
    mean, inverse_std = global_normaliser(training, comm)
    network = LayeredNetwork(read_network(spec.network), reader.dim, targets.num_pdfs)
    network.initialise(initial_random(seed))
    for utterances in (training, heldout):
        utterances.normalise_by(mean, inverse_std, network)
    seed_dropout(seed, comm.rank)
    learner = CtcLearner(network, options.learner, comm.size, strategy.sum_gradients(of_any_size=True))
    units, minibatch = training.mean_units(comm), options.learner.minibatch
    make_job(CtcJob, learner, (training, heldout), strategy, options, minibatch, spec.out, training.longest, units).run()
    normaliser = torch.from_numpy(mean), torch.from_numpy(inverse_std)
    network = learner.network.with_parameters(learner.flat.values())
    write_model(comm, spec.out, network, normaliser, log_priors(counts_of_labels(targets)), ACOUSTIC_FACTOR)


def counts_of_labels(targets: Targets) -> np.ndarray:
    """How often each unit stands in the transcripts, with a blank before each unit and after the last: what the priors of units are by
    (Y. Miao et al., ASRU 2015). int64 (num_units,)."""
    counts = targets.counts()
    counts[BLANK] = counts.sum() + len(targets.keys)
    return counts
