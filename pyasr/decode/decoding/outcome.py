"""Checks of a finished decoding: an error if nothing was decoded, a warning if most hypotheses are empty."""

from __future__ import annotations

from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_table

_MANY = 0.5  # share of utterances
_NUM_NAMED = 5
_CAUSES = (
    "features that differ from those of the model (kind, sampling rate, CMVN), a graph or language model of "
    "other words, too narrow a beam, a wrong acoustic scale, or audio without speech"
)


def check_hypotheses(out: Path, data: Path, num_jobs: int) -> None:
    """Check OUT/hyp.JOB.txt. Raises UserError if no utterance was decoded; warns if most have no words."""
    texts = {
        utt: words
        for job in range(1, num_jobs + 1)
        for utt, words in read_table(out / f"hyp.{job}.txt").items()
    }
    if not texts:
        raise UserError(
            f"{data}: no utterance has features, so none was decoded; compute features or give another data "
            "directory"
        )
    empty = sorted(utt for utt, words in texts.items() if not words)
    if len(empty) > _MANY * len(texts):
        names = " ".join(empty[:_NUM_NAMED]) + " ..." * (len(empty) > _NUM_NAMED)
        log.warning(
            f"{data}: no word was found in {len(empty)} of {len(texts)} utterances ({names}); the usual "
            f"causes are {_CAUSES}"
        )
