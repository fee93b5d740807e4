"""Utterances that a step leaves out: the log names them with their reasons, and too many of them end the step."""

from __future__ import annotations

from dataclasses import dataclass

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.base.options import option

_NUM_NAMED = 5


class LeftOut(Exception):
    """An utterance that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class LeftOutOptions:
    """How much may be missing."""

    max_missing: float = option(0.01, "greatest share of utterances that may be left out", minimum=0.0, maximum=1.0)


def log_reasons(failed: dict[str, str], what: str) -> None:
    """A line for each different reason, with the number of utterances and the names of the first."""
    for reason in dict.fromkeys(failed.values()):
        utterances = sorted(utt for utt, other in failed.items() if other == reason)
        names = " ".join(utterances[:_NUM_NAMED]) + (" ..." if len(utterances) > _NUM_NAMED else "")
        log.warning(f"{len(utterances)} utterances {what}: {reason}: {names}")


def check_left_out(left_out: dict[str, str], num_wanted: int, options: LeftOutOptions, where: str, advice: str) -> None:
    """Log {utterance: reason}. Raises UserError, beginning with `where`, when they are too large a share of `num_wanted`, or all."""
    log_reasons(left_out, "left out")
    if left_out and (len(left_out) > options.max_missing * num_wanted or len(left_out) == num_wanted):
        first, reason = min(left_out.items())
        told = f"{len(left_out)} of {num_wanted} utterances have to be left out (the first is {first}: {reason})"
        raise UserError(f"{where}: {told}; {advice}, or raise --max-missing")
