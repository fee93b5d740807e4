"""Sentences as word ids, and minibatches of sentences of similar lengths for a network whose state is reset
for each sentence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyasr.base.errors import UserError
from pyasr.lang.ngrams.train_lm import TextOptions, read_ids
from pyasr.nn.networks.lstm_lm import BOUNDARY

NOTHING = -1  # target after the end of a sentence


@dataclass(frozen=True)
class Sentences:
    """A text. Its *tokens* are the words of each sentence followed by the sentence end.

    flat     ids of all words, int64, from 1
    lengths  number of words of each sentence, int64
    oov      id of out-of-vocabulary words; 0: none
    """

    flat: np.ndarray
    lengths: np.ndarray
    oov: int = 0

    @classmethod
    def read(cls, path: Path, words: list[str], options: TextOptions) -> Sentences:
        """Read a text file; ids from 1 are places in `words`. Empty lines are skipped. Raises UserError for a
        text without words."""
        flat, lengths = read_ids(path, words, options)
        if not len(flat):
            raise UserError(f"{path}: it contains no words; give a text with one sentence per line")
        return cls(flat + 1, lengths, words.index(options.oov_word) + 1 if options.oov_word in words else 0)

    @property
    def num_tokens(self) -> int:
        return len(self.flat) + len(self.lengths)

    @property
    def is_oov(self) -> np.ndarray:
        """Whether each token is an out-of-vocabulary word, bool (num_tokens)."""
        found = np.zeros(self.num_tokens, bool)
        found[self.word_places] = self.flat == self.oov
        return found

    @cached_property
    def word_places(self) -> np.ndarray:
        """Indices of the words among the tokens, int64 (num_words); the other tokens are sentence ends."""
        return np.arange(len(self.flat)) + np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def begins(self) -> np.ndarray:
        """Index of the first word of each sentence, int64 (num_sentences)."""
        return np.cumsum(self.lengths) - self.lengths

    def minibatches(self, num_tokens: int, rng: np.random.Generator) -> list[np.ndarray]:
        """All sentences in parts of about `num_tokens` tokens, in random order; the sentences of a part have
        similar lengths."""
        order = np.lexsort((rng.random(len(self.lengths)), self.lengths))
        part = np.cumsum(self.lengths[order] + 1) // num_tokens
        parts = np.split(order, np.flatnonzero(np.diff(part)) + 1)
        return [parts[i] for i in rng.permutation(len(parts))]

    def tensors(self, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        """(words before the tokens, tokens) of the sentences `chosen`, int64 (longest + 1, num_sentences).
        Words are padded with BOUNDARY, tokens with NOTHING."""
        lengths = self.lengths[chosen]
        times = np.arange(lengths.max() + 1)[:, None]
        places = np.minimum(self.begins[chosen] + times, len(self.flat) - 1)
        words = np.where(times < lengths, self.flat[places], BOUNDARY)
        before = np.vstack([np.full_like(words[:1], BOUNDARY), words[:-1]])
        return torch.from_numpy(before), torch.from_numpy(np.where(times <= lengths, words, NOTHING))

    def in_order(self, chosen: list[np.ndarray], values: list[np.ndarray]) -> np.ndarray:
        """One value per token in the order of the text, from `values` (longest + 1, num_sentences) of the
        parts `chosen`."""
        found = np.empty(self.num_tokens)
        for sentences, part in zip(chosen, values):
            lengths, times = self.lengths[sentences], np.arange(len(part))[:, None]
            places = self.begins[sentences] + sentences + times
            found[places[times <= lengths]] = part[times <= lengths]
        return found
