"""Options of all schemes; a scheme reads those that are its own."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.options import group, option
from pyasr.parallel.ring import WIRE_TYPES


@dataclass(frozen=True)
class OuterOptions:
    """An outer optimiser that takes the average's move for a gradient (bmuf, bmuf-classical, slowmo, diloco)."""

    outer_momentum: float = option(-1.0, "momentum of the outer optimiser; negative: the scheme's own (docs/parallel.md)", maximum=0.999)
    outer_rate: float = option(-1.0, "its learning rate; negative: the scheme's own")


@dataclass(frozen=True)
class ElasticOptions:
    """Elastic averaging (easgd)."""

    elastic_rate: float = option(0.0, "share of a rank's distance from the centre that both give way at a mixing; 0: 0.9 / ranks",
                                 minimum=0.0, maximum=1.0)  # fmt: skip


@dataclass(frozen=True)
class ServerOptions:
    """The parameter server (asgd)."""

    server_momentum: float = option(0.0, "share of earlier changes in the server's next one", minimum=0.0, maximum=0.999)
    gradient_decay: float = option(1.0, "factor on a shard's move for each change of the server's that it did not know",
                                   minimum=0.0, maximum=1.0)  # fmt: skip
    max_distance: int = option(0, "minibatches after which a shard waits for the server; 0: it never waits", minimum=0)


@dataclass(frozen=True)
class MixingOptions:
    """How the ranks of a training job share what they learn."""

    parallel: str = option("allreduce", "scheme by which ranks share what they learn; docs/parallel.md has them all")
    period_frames: int = option(10240, "frames that a rank sees between two mixings, rounded up to minibatches", minimum=1)
    first_mixing: str = option("mix", "first mixing of a network that is new or has grown; best: take the parameters of the rank with the "
                               "best objective, and train by half minibatches until then", choices=("mix", "best"))  # fmt: skip
    mix_momentum: bool = option(False, "all-reduce and topologies: mix what learners remember of earlier updates too")
    turns_frames: int = option(0, "all-reduce and topologies: frames of a rank before which, instead of mixing, all take the parameters of "
                               "one, of each in turn", minimum=0)  # fmt: skip
    payload: str = option("float32", "numbers in which ranks send each other what they have learned; 16 bits halve the messages",
                          choices=tuple(WIRE_TYPES))  # fmt: skip
    all_reduce: str = option("auto", "who adds float32 over all ranks: the MPI library, our own ring, or (auto) that for large sums; "
                             "16 bits always go around the ring", choices=("auto", "library", "ring"))  # fmt: skip
    topology: str = option("fixed-ring", "dpsgd: with whom a rank mixes (utils/spectral_gap.py has them all)")
    all_reduce_epochs: int = option(0, "first epochs in which topologies are left aside and all ranks average with all", minimum=0)
    initial_ranks: int = option(1, "kaldi: ranks that learn at first; their number grows to all", minimum=1)
    post_local_epochs: int = option(1, "post-local: epochs in which all ranks average after every minibatch", minimum=0)
    random_peers: bool = option(False, "adpsgd, hadpsgd: exchange with random ranks instead of neighbours")
    ranks_per_node: int = option(0, "hadpsgd: ranks that make one learner; 0: those that share a host", minimum=0)
    server: ServerOptions = group(ServerOptions)
    outer: OuterOptions = group(OuterOptions)
    elastic: ElasticOptions = group(ElasticOptions)
