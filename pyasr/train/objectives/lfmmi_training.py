r"""LF-MMI training of a network over time on a rank: the criterion on chunks, and from alignments and a chain
tree to the model file.

F is the objective of `pyasr.sequence.lfmmi.lfmmi` for the outputs y of the network, z are the second
outputs, q is their softmax, and g are the posteriors of the numerators, which are constants. The derivatives

    dF/dy   and   dX/dz,       X = sum_t sum_p g_t(p) log q_t(p)

are combined in the layers below the two output layers to dF + c dX, c = --xent-regularize. X is a frame-level
criterion with the numerators of F; its output layer is not part of the final model.

Frames that a chunk shares with the one before, which have the target `NO_TARGET`, are context: they have
derivatives only in the chunk before. Targets are the numbers of outputs, counted over the utterances of the
training set.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pyasr.hmm.model.model_file import MODEL, read_transitions, read_tree
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.nn.networks.two_outputs import TwoOutputs
from pyasr.nn.scales import ACOUSTIC_FACTOR
from pyasr.sequence.lfmmi.aligned_phones_file import PackedPhones, load_aligned_phones
from pyasr.sequence.lfmmi.chain import AlignedPhones, num_subsampled
from pyasr.sequence.lfmmi.denominator_graph import DenominatorGraph
from pyasr.sequence.lfmmi.lfmmi import lf_mmi_with_posteriors
from pyasr.sequence.lfmmi.lfmmi_options import LfMmiOptions
from pyasr.sequence.lfmmi.supervision import Supervision, SupervisionMaker, SupervisionOptions
from pyasr.train.job.rank_job import run_and_combine
from pyasr.train.job.trainer import Trainer
from pyasr.train.minibatches.chunks import NO_TARGET
from pyasr.train.minibatches.over_time import Phases
from pyasr.train.objectives.rank_training import OnFrames
from pyasr.train.sgd.criterion import Criterion
from pyasr.train.sgd.learner import Learner
from pyasr.train.sgd.network_seeds import initial_random
from pyasr.train.steps.lfmmi_step import DENOMINATOR_FILE, PHONES_FILE, LfMmiSpec, LfMmiTraining
from pyasr.train.totals import SequenceTotals

# numerators in memory, of about 15 kB each; those of further chunks are computed for each minibatch
_MAX_KEPT = 20_000


class Numerators:
    """The numerators of chunks, identified by the numbers of their outputs.

    aligned  the phones of all utterances, in the order of their outputs' numbers
    """

    def __init__(self, maker: SupervisionMaker, aligned: PackedPhones | Mapping[str, AlignedPhones]):
        self.maker, self.utterances = (
            maker,
            aligned if isinstance(aligned, PackedPhones) else PackedPhones.of(aligned),
        )
        outputs = num_subsampled(self.utterances.lengths, maker.options.frame_subsampling_factor)
        self._first = np.cumsum(outputs) - outputs
        self._kept: dict[tuple[int, int], Supervision] = {}

    def of(self, targets: Tensor) -> list[Supervision]:
        """The numerators of chunks (N, T'), each from the first output to the last output that is a target.
        Every chunk must have one."""
        return [self._of_chunk(row) for row in targets.cpu().numpy()]

    def _of_chunk(self, row: np.ndarray) -> Supervision:
        known = np.flatnonzero(row != NO_TARGET)
        place = int(row[known[0]] - known[0]), int(known[-1]) + 1
        found = self._kept.get(place)
        if found is None:
            found = self._make(*place)
            if len(self._kept) < _MAX_KEPT:
                self._kept[place] = found
        return found

    def _make(self, first: int, num_outputs: int) -> Supervision:
        utterance = int(np.searchsorted(self._first, first, side="right")) - 1
        states = self.maker.utterance(*self.utterances[utterance])
        return self.maker.chunk(states, first - int(self._first[utterance]), num_outputs)


class LfMmiTotals(SequenceTotals):
    """Sums over outputs: -F without the penalty on outputs, cross-entropy of the second outputs, number of
    outputs."""

    @property
    def cross_entropy(self) -> float:
        """Cross-entropy in nats per output."""
        return float(self.sums[1] / max(self.sums[2], 1.0))

    def text(self) -> str:
        """For log lines."""
        regular = f"  cross-entropy {self.cross_entropy:.4f}" if self.sums[1] else ""
        return f"objective {self.objective:.4f}{regular}" if self.sums[2] else "no frames"

    def metrics(self) -> dict[str, float]:
        """For metrics.jsonl."""
        if not self.sums[2]:
            return {}
        return {"objective": round(self.objective, 6), "cross_entropy": round(self.cross_entropy, 6)}


class LfMmi(Criterion):
    """LF-MMI for a network with one or two output layers.

    phases  the frames of a chunk that the network gets in a minibatch
    """

    totals = LfMmiTotals
    skipped_parts = "chunks", "their likelihoods were not finite"

    def __init__(
        self,
        graph: DenominatorGraph,
        numerators: Numerators,
        options: LfMmiOptions,
        phases: Phases = Phases(),
    ):
        self.graph, self.numerators, self.options, self.phases = graph, numerators, options, phases

    def loss(
        self, network: nn.Module, x: Tensor, targets: Tensor, number: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """-F - X with the derivatives above, and (-F without the penalty on outputs, -X, number of outputs).
        Chunks whose likelihoods are not finite are skipped."""
        outputs = network(self.phases.cut(x, number))
        logits, second = outputs if isinstance(outputs, tuple) else (outputs, None)
        known = (targets != NO_TARGET)[:, :, None]
        objf, posteriors, counts = lf_mmi_with_posteriors(
            _only(logits, known), self.numerators.of(targets), self.graph, self.options
        )
        loss, cross_entropy = -objf, objf.new_zeros(())
        if second is not None:
            # others count as 0, even if they are not finite
            second = torch.where(posteriors.sum(2, keepdim=True) > 0, second, 0.0)
            cross_entropy = -(posteriors * torch.log_softmax(_only(second, known).to(posteriors), 2)).sum()
            loss = loss + cross_entropy
        self.num_skipped += counts.num_skipped
        sums = [-counts.log_prob, float(cross_entropy.detach()), counts.num_frames]
        return loss, torch.tensor(sums, dtype=torch.float64, device=loss.device)

    def log_probability(self, network: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        """F with the penalty, scaled as if only targets were counted: the objective for the combination of
        models."""
        logits = network.main if isinstance(network, TwoOutputs) else network
        objf, _, counts = lf_mmi_with_posteriors(
            logits(self.phases.cut(x)), self.numerators.of(targets), self.graph, self.options
        )
        return objf * (float((targets != NO_TARGET).sum()) / max(counts.num_frames, 1))


def _only(logits: Tensor, known: Tensor) -> Tensor:
    """`logits` with derivatives only for known targets."""
    return torch.where(known, logits, logits.detach())


class LfMmiRank(OnFrames[LfMmiSpec]):
    """A network over time that learns from chunks. The model has no second output layer and no priors."""

    factor = ACOUSTIC_FACTOR

    def make_network(self) -> LayeredNetwork | TwoOutputs:
        """The network of --network, with a second output layer unless --xent-regularize is 0."""
        return make_network(self.options, self.corpus.input_dim, self.targets.num_pdfs)

    def make_criterion(self) -> LfMmi:
        """LF-MMI with the prepared denominator and phones."""
        self.criterion = make_criterion(self.spec, self.corpus.packing.subsampling)
        return self.criterion

    def run(self, job: Trainer[Learner]) -> None:
        """Train, and combine the last models with --combine."""
        run_and_combine(job, self.corpus.training, self.options, self.criterion.log_probability)

    def without_helpers(self, network: nn.Module) -> nn.Module:
        """The network with its first output layer only."""
        return network.main if isinstance(network, TwoOutputs) else network

    def log_priors(self, network: nn.Module) -> Tensor:
        """0: the outputs are scaled likelihoods."""
        return torch.zeros(self.targets.num_pdfs)


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


def make_network(options: LfMmiTraining, input_dim: int, num_pdfs: int) -> LayeredNetwork | TwoOutputs:
    """The network with its initial parameters, which are the same on all ranks."""
    chunk, share = options.over_time.chunk, options.regularisation.xent_regularize
    network = LayeredNetwork(read_network(options.layers_file), input_dim, num_pdfs, chunk)
    network = TwoOutputs(network, share) if share else network
    network.initialise(initial_random(options.loop.train_seed))
    return network
