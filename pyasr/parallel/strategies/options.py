"""Options of a training's scheme. Each scheme declares its own beside itself; here is what several have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pyasr.base.options import choose, chosen_group, option
from pyasr.parallel.strategies.register import option_kinds

PAYLOADS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class SchemeOptions:
    """Options of every scheme. The first three are not options, but values for schemes that leave no choice."""

    first_mixing, mix_momentum, turns_frames = "mix", False, 0

    payload: str = option("float32", "numbers in which ranks send each other what they have learned; 16 bits halve the messages",
                          choices=PAYLOADS)  # fmt: skip
    all_reduce: str = option("auto", "who adds float32 over all ranks: the MPI library, our own ring, or (auto) that for large sums; "
                             "16 bits always go around the ring", choices=("auto", "library", "ring"))  # fmt: skip
    data_assignment: str | None = option(None, "training data of a rank; shards: a part of its own; all: it draws at random from all data, "
                                         "of which all ranks together see as many frames an epoch as there are; none: shards, but all with "
                                         "adpsgd, asgd, hadpsgd and kaldi, which leave no choice", choices=("shards", "all"))  # fmt: skip


@dataclass(frozen=True)
class PeriodOptions(SchemeOptions):
    """Options of schemes that mix at intervals."""

    period_frames: int = option(10240, "frames that a rank sees between two mixings, rounded up to minibatches", minimum=1)


@dataclass(frozen=True)
class FirstMixingOptions(SchemeOptions):
    """Options of schemes that mix all ranks at once, and can take the best rank instead at first."""

    first_mixing: str = option("mix", "first mixing of a network that is new or has grown; best: take the parameters of the rank with the "
                               "best objective, and train by half minibatches until then", choices=("mix", "best"))  # fmt: skip


@dataclass(frozen=True)
class PeriodicOptions(FirstMixingOptions, PeriodOptions):
    """Options of most schemes that mix periodically."""


@dataclass(frozen=True)
class TopologyOptions(SchemeOptions):
    """Options of schemes in which each rank mixes with a few others after every minibatch."""

    topology: str | None = option(None, "with whom a rank mixes (utils/spectral_gap.py has them all); none: dpsgd takes fixed-ring; "
                                  "in adpsgd and hadpsgd pairs exchange, without a topology")  # fmt: skip


@dataclass(frozen=True)
class MomentumMixingOptions(SchemeOptions):
    """Options of schemes whose mixing is linear and keeps no state, so that velocities can be mixed too."""

    mix_momentum: bool = option(False, "mix what learners remember of earlier updates too")


@dataclass(frozen=True)
class AveragingOptions(MomentumMixingOptions, PeriodicOptions):
    """Options of schemes in which all ranks learn, and average with all or some of them in the foreground."""

    turns_frames: int = option(0, "frames of a rank before which, instead of mixing, all take the parameters of one, of each in turn",
                               minimum=0)  # fmt: skip


_UNUSED_BEFORE = {"adpsgd": {"topology"}, "hadpsgd": {"topology"}}  # options of one class for all that these schemes did not use
_LEAST = {"outer_momentum": 0.0, "outer_rate": 0.0, "elastic_rate": 1e-9, "ranks_per_node": 1}  # less meant the scheme's own, before


@dataclass(frozen=True)
class MixingOptions:
    """How the ranks of a training job share what they learn: by which scheme, and the options of that scheme."""

    parallel: str = option("allreduce", "scheme by which ranks share what they learn; docs/parallel.md has them all")
    scheme: SchemeOptions | None = chosen_group("parallel", option_kinds, "scheme")

    def __post_init__(self):
        choose(self)

    @staticmethod
    def upgraded(content: dict) -> dict:
        """Saved options of earlier versions, which had those of all schemes in one class and numbers for a scheme's own default."""
        if "scheme" in content or not content:
            return content
        groups = [content, *(content.get(name, {}) for name in ("server", "outer", "elastic"))]
        flat = {name: value for group in groups for name, value in group.items()}
        parallel = content.get("parallel", "allreduce")
        kind = option_kinds().get(parallel, SchemeOptions)
        names = {field.name for field in dataclasses.fields(kind)} & flat.keys() - _UNUSED_BEFORE.get(parallel, set())
        scheme = {name: None if _is_own_default(name, flat[name]) else flat[name] for name in sorted(names)}
        return {"parallel": parallel, "scheme": scheme}


def _is_own_default(name: str, value) -> bool:
    """Whether a number stood for the scheme's own default in options that an earlier version saved."""
    return name in _LEAST and value < _LEAST[name]


def mixing_options(parallel: str = "allreduce", **values) -> MixingOptions:
    """The options of a scheme, from those that are not at their defaults. Raises TypeError for one that the scheme does not have."""
    return MixingOptions(parallel, MixingOptions(parallel).scheme.__class__(**values))
