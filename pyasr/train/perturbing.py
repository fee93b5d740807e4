"""Augmentation of the training data: random changes that differ from epoch to epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyasr.base.cli.option_uses import unless_set
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError
from pyasr.feats.compute.warp import Warper
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import read_feature_options


@dataclass(frozen=True)
class PerturbOptions:
    """Random changes of the training data, which differ from epoch to epoch."""

    heading = "data"

    vtlp: float = option(
        0.0,
        "maximum warping of frequencies (VTLP), random per utterance and epoch; 0: none",
        minimum=0.0,
        maximum=0.5,
        only=unless_set("teacher", "the teacher's posteriors are for unmodified frames"),
    )

    def check(self, data: Path, input: InputOptions) -> None:
        """Raise UserError if --vtlp is given and the features of `data` cannot be warped."""
        if self.vtlp:
            make_warper(data, input)


def make_warper(data: Path, input: InputOptions) -> Warper:
    """The warper for features of `data`. Raises UserError if the options that computed them are unknown."""
    if input.norm_vars:
        raise UserError(
            "--vtlp and --norm-vars do not go together: normalised variances cannot be warped; leave one of "
            "them out"
        )
    return Warper(read_feature_options(data, "--vtlp needs to know the filters"))
