"""Word error rates of a set of utterances, as sums of counts of utterances.

score = score_texts(references, hypotheses, TextFilter())
score.total.wer, score.interval(), score.of_speaker(utt2spk)["ann"].wer
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyasr.base.errors import UserError
from pyasr.score.bootstrap import by_group, wer_interval
from pyasr.score.filters import TextFilter
from pyasr.score.word_alignment import Counts, count_many

Row = tuple[Counts, int, int]  # counts of some utterances, their number, number of those with an error


@dataclass(frozen=True)
class Score:
    """Counts of utterances: `counts` is int64 (num_utterances, 4), columns correct, sub, ins, del, in the
    order of `utterances`."""

    utterances: list[str]
    counts: np.ndarray
    missing: list[str]
    signature: str

    @cached_property
    def total(self) -> Counts:
        """Total counts of all utterances."""
        return Counts(*map(int, self.counts.sum(axis=0)))

    @property
    def errors(self) -> np.ndarray:
        """(num_utterances,)"""
        return self.counts[:, 1:].sum(axis=1)

    @property
    def words(self) -> np.ndarray:
        """Number of reference words, (num_utterances,)."""
        return self.counts[:, [0, 1, 3]].sum(axis=1)

    @property
    def num_wrong_utterances(self) -> int:
        """Number of utterances with at least one error."""
        return int((self.errors > 0).sum())

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """95 % interval of the WER in per cent, by resampling utterances."""
        return wer_interval(self.errors, self.words, seed)

    def speaker_interval(self, utt2spk: Mapping[str, str], seed: int = 0) -> tuple[float, float]:
        """95 % interval of the WER in per cent, by resampling speakers."""
        speakers = [utt2spk[utt] for utt in self.utterances]
        return wer_interval(by_group(self.errors, speakers), by_group(self.words, speakers), seed)

    @property
    def row(self) -> Row:
        """Row of all utterances."""
        return self.total, len(self.utterances), self.num_wrong_utterances

    def part(self, utterances: Iterable[str]) -> Score:
        """Score of some of the utterances."""
        places, wanted = {utt: i for i, utt in enumerate(self.utterances)}, list(utterances)
        missing = set(wanted).intersection(self.missing)
        return Score(wanted, self.counts[[places[utt] for utt in wanted]], sorted(missing), self.signature)

    def of_speaker(self, utt2spk: Mapping[str, str]) -> dict[str, Row]:
        """{speaker: its row} in C order."""
        rows: dict[str, list[int]] = {}
        for i, utt in enumerate(self.utterances):
            rows.setdefault(utt2spk[utt], []).append(i)
        return {
            speaker: (
                Counts(*map(int, self.counts[mine].sum(axis=0))),
                len(mine),
                int((self.errors[mine] > 0).sum()),
            )
            for speaker, mine in sorted(rows.items())
        }


def score_texts(
    references: Mapping[str, str],
    hypotheses: Mapping[str, str],
    filters: TextFilter,
    name: str = "hypotheses",
) -> Score:
    """Compare {utterance: text} tables.

    An utterance without hypothesis has all its words deleted and is listed in `missing`. Raises UserError for
    a hypothesis without reference, and if the references contain no words.
    """
    unknown = sorted(hypotheses.keys() - references.keys())
    if unknown:
        raise UserError(
            f"{name}: utterance '{unknown[0]}' has no reference ({len(unknown)} such); "
            "score with the data directory of the decoding"
        )
    utterances = sorted(references)
    refs = [filters.words(references[utt]) for utt in utterances]
    if not any(refs):
        raise UserError(
            f"{name}: the references contain no words to score against; check the text of the data "
            "directory and --drop"
        )
    hyps = [filters.words(hypotheses.get(utt, "")) for utt in utterances]
    missing = [utt for utt in utterances if utt not in hypotheses]
    return Score(utterances, count_many(refs, hyps), missing, filters.signature)
