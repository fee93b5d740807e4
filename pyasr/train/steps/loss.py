"""The loss of a step, by the name of its class, so that the step need not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyasr.base.errors import UserError
from pyasr.base.jobs.job import resolve

if TYPE_CHECKING:
    from pyasr.train.sgd.criterion import Criterion


@dataclass(frozen=True)
class Loss:
    """A criterion by name.

    criterion  MODULE:CLASS, a subclass of `pyasr.train.sgd.criterion.Criterion`
    arguments  keyword arguments of the class: numbers and strings
    """

    criterion: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Criterion:
        """Create the criterion. Raises UserError if Python does not find the module or class."""
        try:
            kind = resolve(self.criterion)
        except ModuleNotFoundError as error:
            raise UserError(
                f"{self.criterion}: no module {error.name}; add its directory to PYTHONPATH"
            ) from None
        return kind(**self.arguments)


CROSS_ENTROPY, CTC = (
    Loss("pyasr.train.sgd.criterion:CrossEntropy"),
    Loss("pyasr.train.objectives.ctc_training:Ctc"),
)
