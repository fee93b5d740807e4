"""Checks of a finished decoding: an error where no utterance was decoded, a warning where most hypotheses are empty."""

from __future__ import annotations

from pathlib import Path

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.io.text_tables import read_table

_MANY = 0.5  # of the utterances
_NUM_NAMED = 5
_CAUSES = ("features that were not made as the model's were (kind, sampling rate, CMVN), a graph or language model of other words, "
           "too narrow a beam, a wrong acoustic scale, or audio without speech")  # fmt: skip


def check_hypotheses(out: Path, data: Path, num_jobs: int) -> None:
    """Look at OUT/hyp.JOB.txt of the utterances of `data`. Raises UserError where there are none."""
    texts = {utt: words for job in range(1, num_jobs + 1) for utt, words in read_table(out / f"hyp.{job}.txt").items()}
    if not texts:
        raise UserError(f"{data}: none of its utterances has features, so nothing is decoded; make them, or give another data directory")
    empty = sorted(utt for utt, words in texts.items() if not words)
    if len(empty) > _MANY * len(texts):
        names = " ".join(empty[:_NUM_NAMED]) + " ..." * (len(empty) > _NUM_NAMED)
        log.warning(f"{data}: no word was found in {len(empty)} of {len(texts)} utterances ({names}); the usual causes are {_CAUSES}")
