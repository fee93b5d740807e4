"""How training data are varied from epoch to epoch."""

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
    """How training data are varied from epoch to epoch."""

    vtlp: float = option(0.0, "greatest warping of an utterance's frequencies, drawn anew in every epoch", minimum=0.0, maximum=0.5,
                         only=unless_set("teacher", "its posteriors belong to single frames as they are"))  # fmt: skip

    def check(self, data: Path, input: InputOptions) -> None:
        """Raise UserError where frequencies of the features of `data` are to be warped and cannot be."""
        if self.vtlp:
            make_warper(data, input)


def make_warper(data: Path, input: InputOptions) -> Warper:
    """The warper of the features of `data`. Raises UserError where it is not known how they were made."""
    if input.norm_vars:
        raise UserError("--vtlp and --norm-vars do not go together: normalised variances cannot be warped; leave one of them out")
    return Warper(read_feature_options(data, "--vtlp needs to know the filters"))
