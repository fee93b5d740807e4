"""Split Fisher English: the first utterances, in order of calls, form dev and test, as in Kaldi's recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.corpora.fisher.fisher_calls import CALL_PREFIX


def _from_call(utterance: str) -> str:
    """The name from the call on: the order of these is that of calls, sides and times."""
    return utterance[max(utterance.find(CALL_PREFIX), 0) :]


def split(utterances: Sequence[str], num_dev: int, num_test: int, where: Path) -> dict[str, list[str]]:
    """{dev, test, train: utterances}: the first `num_dev`, the next `num_test`, the rest.

    Raises UserError, beginning with `where`, if nothing is left for training, and for an utterance that is
    not from Fisher.
    """
    if strange := [utterance for utterance in utterances if CALL_PREFIX not in utterance]:
        raise UserError(
            f"{where}: '{strange[0]}' is not an utterance of Fisher; give a directory written by "
            "local/prepare_fisher.py"
        )
    ordered, num_heldout = sorted(utterances, key=_from_call), num_dev + num_test
    if len(ordered) <= num_heldout:
        found = (
            f"{len(ordered)} utterances, which leaves none for training in addition to {num_dev} for dev and "
            f"{num_test} for test"
        )
        raise UserError(f"{where}: {found}; give more calls, or lower --num-dev and --num-test")
    return {"dev": ordered[:num_dev], "test": ordered[num_dev:num_heldout], "train": ordered[num_heldout:]}
