r"""Networks that grow during training (Kaldi's nnet2 recipes): hidden layers one by one, then more outputs.

Layer-wise discriminative growth: training begins with one hidden layer. After every `--layer-period-frames` a
new layer with random weights is inserted between the last hidden layer and the output layer, and the output
layer is set to 0. The layers below do not change.

Mixing up, halfway between the last new layer and the end of training: N outputs instead of one for each pdf.
The number of outputs of pdf s is about proportional to its frames to the power 0.25
(`pyasr.hmm.model.gmm_update.split_targets`). To copy an output o, with e ~ N(0, d^2),

    w_o -> w_o + e,  w_o - e,       b_o -> b_o - log 2 / a_o  in both
                                    a_o the factor before the softmax, mostly 1

and the posteriors of the copies are added (`pyasr.nn.layers.nnet2_layers.SumGroup`), so with d = 0 the
posteriors of the pdfs do not change. Of n copies, copy n - 2^floor(log2 n) is split next: all copies of a pdf
are split once before one is split twice.

All times are frames seen by all ranks. All ranks have the same parameters and draw the same random numbers,
so their networks stay equal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from pyasr.base.cli.seeds import generator
from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm_update import split_targets
from pyasr.nn.layers.hidden_layers import initialise_hidden
from pyasr.nn.network_options import DnnOptions
from pyasr.nn.networks.construction import network_from
from pyasr.nn.networks.feed_forward import FeedForward
from pyasr.parallel.communication.comm import Comm
from pyasr.train.sgd.learner import Learner
from pyasr.train.training_options import GrowthOptions

Action = Callable[[Learner, int], None]  # arguments: learner, frames seen
# arguments: parameters of the consensus of ranks, frames seen
Keep = Callable[[list[torch.Tensor], int], None]


def first_shape(growth: GrowthOptions, dnn: DnnOptions) -> DnnOptions:
    """Options of the initial network."""
    return dataclasses.replace(dnn, hidden_layers=1) if growth.layer_period_frames else dnn


class Growth:
    """Changes of the network at given times, and periodic actions.

    counts                frames of each pdf
    total_frames          frames of the whole training
    actions               (period in frames, function that changes parameters)
    keeping               (period in frames, function that only reads parameters)
    next_synchronisation  function of the frames after which a change is due: frames after which all ranks
                          next synchronise and perform the change

    Raises UserError if training would end before the complete network is trained, or if there are fewer
    outputs than pdfs.
    """

    def __init__(
        self,
        options: GrowthOptions,
        dnn: DnnOptions,
        counts: np.ndarray,
        total_frames: int,
        seed: int,
        comm: Comm,
        actions: Sequence[tuple[int, Action]] = (),
        keeping: Sequence[tuple[int, Keep]] = (),
        next_synchronisation: Callable[[int], int] = lambda frames: frames,
    ):
        self.options, self.counts, self.seed, self.comm, self.done = options, counts, seed, comm, 0
        self.actions, self.keeping = actions, keeping
        self.events = _events(options, dnn, total_frames)
        if self.events and next_synchronisation(self.events[-1][0]) >= total_frames:
            when, what = self.events[-1]
            mixed = f", when ranks next mix at {next_synchronisation(when)}" if when < total_frames else ""
            found = (
                f"training ends at {total_frames} frames, but the last change of the network is due at "
                f"{when} ({what}){mixed}"
            )
            raise UserError(
                f"{found}; lower --layer-period-frames{' or --period-frames' if mixed else ''} or raise "
                "--num-epochs"
            )
        if 0 < options.mix_up < len(counts):
            raise UserError(
                f"--mix-up {options.mix_up}: each of {len(counts)} pdfs needs an output; give a larger "
                "number, or 0 to disable"
            )

    def expected(self, network: FeedForward, frames_seen: int) -> FeedForward:
        """The network at `frames_seen` that grows from the initial one, except for trained parameters and
        random numbers."""
        network = network.with_parameters(network.parameters())
        for name in self._events_until(frames_seen):
            network = self._changed(network, name)
        return network

    def resume(self, learner: Learner, description: dict, frames_seen: int) -> None:
        """Give the learner the network of a description from `frames_seen`, after all changes due then."""
        learner.adopt(network_from(description))
        self.done = frames_seen

    def due(self, frames_seen: int) -> bool:
        """Whether a change or an action is due."""
        return self.changes(frames_seen) or bool(self._due_of(self.keeping, frames_seen))

    def changes(self, frames_seen: int) -> bool:
        """Whether a change or an action that changes parameters is due."""
        return bool(self._events_until(frames_seen) or self._due_of(self.actions, frames_seen))

    def ahead(self, frames_seen: int) -> list[int]:
        """Frames until each future change and the next time of each action."""
        events = [when - frames_seen for when, _ in self.events if when > frames_seen]
        return events + [
            period - frames_seen % period for period, _ in (*self.actions, *self.keeping) if period
        ]

    def check_whole(self, frames_seen: int) -> None:
        """Raise UserError if changes are still due at the end of training, as ranks have not synchronised
        since."""
        if late := self._events_until(frames_seen):
            found = (
                f"training has ended after {frames_seen} frames, but changes of the network are still "
                f"due ({', '.join(late)})"
            )
            raise UserError(f"{found}; lower --layer-period-frames or --period-frames, or raise --num-epochs")

    def grow(self, learner: Learner, frames_seen: int) -> bool:
        """Perform all due actions, then due changes of the network; whether the network has changed. Every
        rank must call this, at the same time, with equal parameters."""
        for action in self._due_of(self.actions, frames_seen):
            action(learner, frames_seen)
        events = self._events_until(frames_seen)
        self.keep_due(learner.flat.values(), frames_seen)
        for name in events:
            grown = self._changed(learner.network.with_parameters(learner.flat.values()), name)
            self.comm.log(_message(name, grown))
            learner.adopt(grown)
        return bool(events)

    def keep_due(self, parameters: list[torch.Tensor], frames_seen: int) -> None:
        """Perform the due actions that only read parameters, with those of the ranks' consensus. Nothing else
        is due unless `changes` says so."""
        for keep in self._due_of(self.keeping, frames_seen):
            keep(parameters, frames_seen)
        self.done = frames_seen

    def _events_until(self, frames_seen: int) -> list[str]:
        return [name for when, name in self.events if self.done < when <= frames_seen]

    def _due_of(self, timed: Sequence[tuple[int, Callable]], frames_seen: int) -> list[Callable]:
        return [
            function for period, function in timed if period and frames_seen // period > self.done // period
        ]

    def _changed(self, network: FeedForward, name: str) -> FeedForward:
        rng = generator(self.seed, "growth", name, network.options.hidden_layers)
        if name == "layer":
            return with_new_layer(network, torch.Generator().manual_seed(int(rng.integers(1 << 31))))
        return mixed_up(network, self.counts, self.options, rng)


def _message(name: str, grown: FeedForward) -> str:
    if name == "layer":
        return f"one more hidden layer: {grown.options.hidden_layers}"
    return f"mixed up: {grown.layers[-1].out_features} outputs for {grown.num_pdfs} pdfs"


def _events(options: GrowthOptions, dnn: DnnOptions, total_frames: int) -> list[tuple[int, str]]:
    """(frames seen, change due then), in order of time."""
    period = options.layer_period_frames
    layers = [(k * period, "layer") for k in range(1, dnn.hidden_layers)] if period else []
    last = layers[-1][0] if layers else 0
    return layers + ([((last + total_frames) // 2, "outputs")] if options.mix_up else [])


@torch.no_grad()
def with_new_layer(network: FeedForward, random: torch.Generator) -> FeedForward:
    """`network` with one more hidden layer, of random weights, before the output layer, which is set to 0."""
    options = dataclasses.replace(network.options, hidden_layers=network.options.hidden_layers + 1)
    grown = FeedForward(options, network.input_dim, network.num_pdfs, network.fixed)
    *kept, new, output = grown.affine_layers
    for layer, old in zip(kept, network.affine_layers):
        layer.load_state_dict(old.state_dict())
    initialise_hidden(new, options, is_first=False, generator=random)
    output.weight.zero_()
    output.bias.zero_()
    return grown


@torch.no_grad()
def mixed_up(
    network: FeedForward, counts: np.ndarray, options: GrowthOptions, rng: np.random.Generator
) -> FeedForward:
    """`network`, which has one output for each pdf, with about `options.mix_up` outputs."""
    numbers = split_targets(counts, options.mix_up, options.mix_up_power, options.mix_up_min_count)
    output, scales = network.layers[-1], network.fixed.prior_scales
    halving = math.log(2) / (np.ones(network.num_pdfs) if scales is None else scales.numpy())
    weights, biases, extras = split_outputs(
        output.weight.numpy(), output.bias.numpy(), numbers, halving, options.mix_up_stddev, rng
    )
    fixed = dataclasses.replace(network.fixed, extras=torch.from_numpy(extras))
    grown = FeedForward(network.options, network.input_dim, network.num_pdfs, fixed)
    for layer, old in zip(grown.affine_layers[:-1], network.affine_layers):
        layer.load_state_dict(old.state_dict())
    grown.layers[-1].weight.copy_(torch.from_numpy(weights))
    grown.layers[-1].bias.copy_(torch.from_numpy(biases))
    return grown


def split_outputs(
    weights: np.ndarray,
    biases: np.ndarray,
    numbers: np.ndarray,
    halving: np.ndarray,
    stddev: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weights, biases, extras) of an output layer in which pdf s has numbers[s] outputs instead of one.

    weights (num_pdfs, D), biases (num_pdfs); halving (num_pdfs): subtracted from a bias to halve the
    posterior of the output. extras: the pdfs of the rows beyond the first num_pdfs.
    """
    rounds = [np.flatnonzero(numbers > n) for n in range(1, int(numbers.max()))]
    extras = np.concatenate([np.zeros(0, np.int64), *rounds])
    weights, biases = np.concatenate([weights, weights[extras]]), np.concatenate([biases, biases[extras]])
    row_of = np.full((len(rounds) + 1, len(numbers)), -1)  # row of the n-th copy of each pdf
    row_of[0] = np.arange(len(numbers))
    end = len(numbers)
    for n, pdfs in enumerate(rounds, 1):
        old, new = row_of[n - (1 << (n.bit_length() - 1)), pdfs], np.arange(end, end + len(pdfs))
        noise = stddev * rng.standard_normal((len(pdfs), weights.shape[1]), np.float32)
        biases[old] -= halving[pdfs]
        weights[new], biases[new] = weights[old] - noise, biases[old]
        weights[old] += noise
        row_of[n, pdfs] = new
        end += len(pdfs)
    return weights, biases, extras
