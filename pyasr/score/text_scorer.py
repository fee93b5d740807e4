"""Scores of utterances against the transcripts of their data directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import DataDir
from pyasr.io.text_tables import write_table
from pyasr.score.filters import TextFilter
from pyasr.score.score_tables import per_utterance
from pyasr.score.wer import Score, score_texts


class TextScorer:
    """Scores hypotheses {utterance: text} against all transcripts of a data directory.

    Raises UserError for a transcript without speaker.
    """

    def __init__(self, data: DataDir, filters: TextFilter):
        stray = sorted(data.text.keys() - data.utt2spk.keys())
        if stray:
            raise UserError(
                f"{data.path}/utt2spk: no line for utterance '{stray[0]}' of text ({len(stray)} such); "
                f"run utils/fix_data_dir.py {data.path}"
            )
        self._data, self._filters = data, filters
        self.utt2spk, self.signature = data.utt2spk, filters.signature
        self.subsets: dict[str, list[str]] = {}
        self.parts: dict[str, list[str]] = {}

    def score(self, hypothesis: Mapping[str, str]) -> Score:
        """Counts of all utterances. Raises UserError for an utterance without transcript."""
        return score_texts(self._data.text, hypothesis, self._filters, f"{self._data.path}/text")

    def per_utterance(self, hypothesis: Mapping[str, str]) -> str:
        """Content of per_utt."""
        return per_utterance(self._data.text, hypothesis, self._filters)

    def write(self, directory: Path, name: str, hypothesis: Mapping[str, str]) -> None:
        """Write the hypothesis to DIRECTORY/NAME.txt."""
        write_table(directory / f"{name}.txt", hypothesis)
