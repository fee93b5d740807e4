"""Options shared by several schemes of parallel training. Those of a single scheme are in its module."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base.cli.options import choose, chosen_group, option
from pyasr.parallel.mixing.register import option_kinds

PAYLOADS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class SchemeOptions:
    """Options of every scheme. The first three are not options, but fixed values for schemes that do not have
    the option."""

    heading = "parallel training"

    first_mixing, mix_momentum, turns_frames = "mix", False, 0

    payload: str = option(
        "float32",
        "number format of messages between ranks; 16-bit formats halve their size",
        choices=PAYLOADS,
    )
    all_reduce: str = option(
        "auto",
        "float32 all-reduce; library: the MPI library's; ring: a ring; auto: a ring for large "
        "sums only; 16-bit payloads always use the ring",
        choices=("auto", "library", "ring"),
        rare=True,
    )
    data_assignment: str | None = option(
        None,
        "training data of a rank; shards: its own part; all: random draws from all data, with the "
        "frames of an epoch divided among the ranks; none: all for adpsgd, asgd, hadpsgd and "
        "kaldi, which support nothing else, shards for the other schemes",
        choices=("shards", "all"),
        rare=True,
    )


@dataclass(frozen=True)
class PeriodOptions(SchemeOptions):
    """Options of schemes that mix at intervals."""

    period_frames: int = option(
        10240, "frames of a rank between two mixings, rounded up to whole minibatches", minimum=1
    )


@dataclass(frozen=True)
class FirstMixingOptions(SchemeOptions):
    """Options of schemes that mix all ranks at once and can select the best rank in the first mixing."""

    first_mixing: str = option(
        "mix",
        "first mixing of a network that is new or has grown; mix: like the later ones; best: all "
        "ranks take the parameters of the rank with the best objective, and train with half "
        "minibatches until then",
        choices=("mix", "best"),
        rare=True,
    )


@dataclass(frozen=True)
class PeriodicOptions(FirstMixingOptions, PeriodOptions):
    """Options of most periodic schemes."""


@dataclass(frozen=True)
class TopologyOptions(SchemeOptions):
    """Options of schemes in which each rank mixes with a few others after every minibatch."""

    topology: str | None = option(
        None,
        "topology that defines a rank's neighbours (utils/spectral_gap.py lists all); none: fixed-ring "
        "with dpsgd, exchanges in pairs with adpsgd and hadpsgd",
    )


@dataclass(frozen=True)
class MomentumMixingOptions(SchemeOptions):
    """Options of schemes with a linear, stateless mixing, which applies to velocities, too."""

    mix_momentum: bool = option(False, "also mix the momentum buffers of the learners", rare=True)


@dataclass(frozen=True)
class AveragingOptions(MomentumMixingOptions, PeriodicOptions):
    """Options of schemes in which all ranks learn and average in the foreground with all or some ranks."""

    turns_frames: int = option(
        0,
        "first frames of a rank during which all ranks take the parameters of one, each in turn, "
        "instead of mixing",
        minimum=0,
        rare=True,
    )


@dataclass(frozen=True)
class MixingOptions:
    """The scheme by which the ranks of a training job share what they learn, and its options."""

    heading = "parallel training"

    parallel: str = option("allreduce", "scheme of parallel training; docs/parallel/parallel.md lists all")
    scheme: SchemeOptions | None = chosen_group("parallel", option_kinds, "scheme")

    def __post_init__(self):
        choose(self)


def mixing_options(parallel: str = "allreduce", **values) -> MixingOptions:
    """Options of a scheme, from the values that differ from the defaults. Raises TypeError for an option that
    the scheme does not have."""
    scheme = MixingOptions(parallel).scheme
    assert scheme is not None
    return MixingOptions(parallel, type(scheme)(**values))
