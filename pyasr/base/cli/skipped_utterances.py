"""Utterances that a step leaves out: the log names them with their reasons, and too many of them end the step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

_NUM_NAMED, _NUM_EXAMPLES, _NUM_REASONS = 5, 3, 3


class LeftOut(Exception):
    """An utterance that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class LeftOutOptions:
    """How much may be missing."""

    max_missing: float = option(0.01, "greatest share of utterances that may be left out", minimum=0.0, maximum=1.0)


def log_reasons(failed: dict[str, str], what: str) -> None:
    """A line for each different reason, with the number of utterances and the names of the first."""
    for reason, number in _counts(failed):
        log.warning(f"{number} utterances {what}: {reason}: {_names(failed, reason, _NUM_NAMED)}")


def told_reasons(failed: dict[str, str]) -> str:
    """The most frequent reasons of {utterance: reason} with counts and examples: `5: no features (a b c ...), 1: no text (d)`."""
    counts = _counts(failed)
    parts = [f"{number}: {reason} ({_names(failed, reason, _NUM_EXAMPLES)})" for reason, number in counts[:_NUM_REASONS]]
    others = [f"{len(counts) - _NUM_REASONS} other reasons"] if len(counts) > _NUM_REASONS else []
    return ", ".join(parts + others) or "there are no utterances"


def _counts(failed: dict[str, str]) -> list[tuple[str, int]]:
    """(reason, number of utterances), most frequent first, ties in the order of utterances."""
    return Counter(reason for _, reason in sorted(failed.items())).most_common()


def _names(failed: dict[str, str], reason: str, most: int) -> str:
    """The first utterances that fail for a reason."""
    utterances = sorted(utt for utt, other in failed.items() if other == reason)
    return " ".join(utterances[:most]) + (" ..." if len(utterances) > most else "")


def check_left_out(left_out: dict[str, str], num_wanted: int, options: LeftOutOptions, where: str, advice: str) -> None:
    """Log {utterance: reason}. Raises UserError, beginning with `where`, when they are too large a share of `num_wanted`, or all."""
    log_reasons(left_out, "left out")
    if left_out and (len(left_out) > options.max_missing * num_wanted or len(left_out) == num_wanted):
        told = f"{len(left_out)} of {num_wanted} utterances have to be left out: {told_reasons(left_out)}"
        raise UserError(f"{where}: {told}; {advice}, or raise --max-missing")
