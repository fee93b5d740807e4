"""Utterances that a step skips: the log lists them by reason; the step fails if there are too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyasr.base import log
from pyasr.base.cli.options import option
from pyasr.base.errors import UserError

_NUM_NAMED, _NUM_EXAMPLES, _NUM_REASONS = 5, 3, 3


class SkippedUtterance(Exception):
    """Raised for an utterance that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class SkippedOptions:
    """Limit on the skipped utterances."""

    heading = "data"

    max_missing: float = option(
        0.01, "maximum fraction of utterances that may be skipped", minimum=0.0, maximum=1.0
    )


def log_reasons(failed: dict[str, str], what: str) -> None:
    """Log one line per reason, with the number of utterances and the names of the first ones."""
    for reason, number in _counts(failed):
        log.warning(f"{number} utterances {what}: {reason}: {_names(failed, reason, _NUM_NAMED)}")


def counted_reasons(failed: dict[str, str]) -> str:
    """The most frequent reasons of {utterance: reason} with counts and examples: `5: no features (a b c ...),
    1: no text (d)`."""
    counts = _counts(failed)
    parts = [
        f"{number}: {reason} ({_names(failed, reason, _NUM_EXAMPLES)})"
        for reason, number in counts[:_NUM_REASONS]
    ]
    others = [f"{len(counts) - _NUM_REASONS} other reasons"] if len(counts) > _NUM_REASONS else []
    return ", ".join(parts + others) or "no utterances"


def _counts(failed: dict[str, str]) -> list[tuple[str, int]]:
    """(reason, number of utterances), most frequent first, ties in the order of utterances."""
    return Counter(reason for _, reason in sorted(failed.items())).most_common()


def _names(failed: dict[str, str], reason: str, most: int) -> str:
    """The first `most` utterances with this reason."""
    utterances = sorted(utt for utt, other in failed.items() if other == reason)
    return " ".join(utterances[:most]) + (" ..." if len(utterances) > most else "")


def check_skipped(
    skipped: dict[str, str], num_wanted: int, options: SkippedOptions, where: str, advice: str
) -> None:
    """Log the skipped utterances {utterance: reason}. Raises UserError, beginning with `where`, if they are
    all `num_wanted` utterances or more than the allowed fraction."""
    log_reasons(skipped, "left out")
    if skipped and (len(skipped) > options.max_missing * num_wanted or len(skipped) == num_wanted):
        found = f"{len(skipped)} of {num_wanted} utterances have to be left out: {counted_reasons(skipped)}"
        raise UserError(f"{where}: {found}; {advice}, or raise --max-missing")
