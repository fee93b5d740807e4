"""Speaker adaptive training of triphone GMMs on fMLLR features, on all ranks of one MPI job, with the
schedule of Kaldi's train_sat.sh.

The first transforms of the speakers are those of the alignment directory, or are estimated with its model. In
the iterations `fmllr_iters` they are re-estimated with the current model, each composed with the previous
one. In addition to final.mdl, training writes an *alignment model*, final.alimdl: the same Gaussians,
estimated on features without fMLLR, with the posteriors of final.mdl on features with fMLLR. The first
transform of a new speaker is estimated from the alignment model's recognition or alignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyasr.base import log
from pyasr.base.cli.option_uses import unless_is
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.feats.transforms import read_transforms
from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.model.gmm_update import update
from pyasr.hmm.model.model_file import ALIGNMENT_MODEL, MODEL, read_model, write_model
from pyasr.hmm.shards.adaptable_shard import AdaptableShard, load_adaptable
from pyasr.hmm.shards.speaker_transforms import SpeakerTransforms
from pyasr.hmm.training.train_gmm import Model, finish, is_finished, iterations
from pyasr.hmm.training.train_triphones import TriphoneSpec, train_triphones
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.lang.lang_dirs.lang_dir import LangDir


@dataclass(frozen=True)
class SatOptions:
    """Iterations and statistics of the estimation of transforms."""

    heading = "transforms and adaptation"

    fmllr_iters: str = option("2 4 6 12", "iterations in which the speakers' transforms are estimated")
    silence_weight: float = option(
        0.0,
        "weight of silence frames in the fMLLR statistics",
        minimum=0.0,
        maximum=1.0,
        only=unless_is("fmllr-update-type", "none"),
    )

    def check(self) -> None:
        """Raise UserError if --fmllr-iters is not a list of iterations."""
        iterations(self.fmllr_iters, "--fmllr-iters")


@dataclass(frozen=True)
class SatSpec:
    """The work of `train_rank`."""

    triphones: TriphoneSpec
    sat: SatOptions
    fmllr: FmllrOptions


def train_rank(spec: SatSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`. Writes a complete SAT directory to
    `spec.triphones.out`."""
    work = spec.triphones
    if is_finished(work.out, comm):
        return
    lang = LangDir(work.lang)
    check_phones(work.ali_dir, lang)
    shard = load_adaptable(work.data, work.inputs, lang, comm, work.train.store, work.out)
    transforms = SpeakerAdaptation(shard, comm, spec, lang.silence_phones)
    trainer, model = train_triphones(work, lang, shard, comm, transforms)
    alignment_model = _alignment_model(model, shard, transforms.without, work.train.update, comm)
    if comm.rank == 0:
        write_model(work.out / ALIGNMENT_MODEL, alignment_model.trans, alignment_model.gmm)
    finish(work.out, trainer)


class SpeakerAdaptation(SpeakerTransforms):
    """The transforms of a shard's speakers as an `Adaptation`."""

    def __init__(self, shard: AdaptableShard, comm, spec: SatSpec, silence_phones: list[int]):
        self.ali_dir = spec.triphones.ali_dir
        super().__init__(shard, comm, self.ali_dir, spec.fmllr, (silence_phones, spec.sat.silence_weight))
        self.iters = iterations(spec.sat.fmllr_iters, "--fmllr-iters")

    def begin(self) -> None:
        """Read the transforms of the alignment directory; if it has none, estimate them from its alignment
        and model."""
        if (self.ali_dir / "trans.1").exists():
            self.restore(read_transforms(self.ali_dir, self.names))
            return
        if (self.ali_dir / ALIGNMENT_MODEL).exists():
            raise UserError(
                f"{self.ali_dir} has an alignment model but no transforms (trans.1); align with "
                "steps/align_fmllr.py"
            )
        self.start()
        self.estimate(*read_model(self.ali_dir / MODEL))

    def update(self, model: Model) -> Model:
        """Estimate new transforms of all speakers. Returns the model unchanged."""
        self.estimate(model.trans, model.gmm)
        return model


def _alignment_model(
    model: Model, shard: AdaptableShard, without: Callable[[int], np.ndarray], options, comm
) -> Model:
    """The model with means and variances of the features before fMLLR, `without(index)` of each utterance; no
    Gaussian is removed."""
    stats, counts = shard.accumulate(model.trans, model.gmm, seen_as=without)
    stats.allreduce(comm)
    comm.allreduce(counts)
    model.trans.update(counts)
    if comm.rank == 0:
        log.info(
            f"alignment model: {model.gmm.num_gauss} Gaussians on {stats.num_frames:.0f} frames before fMLLR"
        )
    return Model(model.trans, update(model.gmm, stats, options, remove_low_count=False), 0)
