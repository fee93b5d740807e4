"""Sentences as word ids, and minibatches of sentences of similar lengths for a network that begins each of them anew."""

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

NOTHING = -1  # in the place of what is to be predicted, after a sentence's end


@dataclass(frozen=True)
class Sentences:
    """A text. Its *tokens* are the words of each sentence and then its end.

    flat     ids of all words, int64, from 1
    lengths  words of each sentence, int64
    oov      the id that words outside the vocabulary have; 0: there is none
    """

    flat: np.ndarray
    lengths: np.ndarray
    oov: int = 0

    @classmethod
    def read(cls, path: Path, words: list[str], options: TextOptions) -> Sentences:
        """Those of a text file, the ids from 1 being those of `words`; lines without words are left out. Raises UserError without any."""
        flat, lengths = read_ids(path, words, options)
        if not len(flat):
            raise UserError(f"{path}: there are no words in it; give a text with one sentence a line")
        return cls(flat + 1, lengths, words.index(options.oov_word) + 1 if options.oov_word in words else 0)

    @property
    def num_tokens(self) -> int:
        return len(self.flat) + len(self.lengths)

    @property
    def is_oov(self) -> np.ndarray:
        """Whether each token is a word outside the vocabulary, bool (num_tokens)."""
        found = np.zeros(self.num_tokens, bool)
        found[self.word_places] = self.flat == self.oov
        return found

    @cached_property
    def word_places(self) -> np.ndarray:
        """Where among the tokens the words are, int64 (num_words): the others are ends."""
        return np.arange(len(self.flat)) + np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def begins(self) -> np.ndarray:
        """The first word of each sentence, int64 (num_sentences)."""
        return np.cumsum(self.lengths) - self.lengths

    def minibatches(self, num_tokens: int, rng: np.random.Generator) -> list[np.ndarray]:
        """All sentences in parts of about that many tokens; sentences of a part are of similar lengths, otherwise the order is random."""
        order = np.lexsort((rng.random(len(self.lengths)), self.lengths))
        part = np.cumsum(self.lengths[order] + 1) // num_tokens
        parts = np.split(order, np.flatnonzero(np.diff(part)) + 1)
        return [parts[i] for i in rng.permutation(len(parts))]

    def tensors(self, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        """(words before the tokens, tokens) of some sentences, int64 (longest + 1, num_sentences), the one filled up with BOUNDARY, the
        other with NOTHING."""
        lengths = self.lengths[chosen]
        times = np.arange(lengths.max() + 1)[:, None]
        places = np.minimum(self.begins[chosen] + times, len(self.flat) - 1)
        words = np.where(times < lengths, self.flat[places], BOUNDARY)
        before = np.vstack([np.full_like(words[:1], BOUNDARY), words[:-1]])
        return torch.from_numpy(before), torch.from_numpy(np.where(times <= lengths, words, NOTHING))

    def in_order(self, chosen: list[np.ndarray], values: list[np.ndarray]) -> np.ndarray:
        """One value for each token, in the order of the text, from those (longest + 1, num_sentences) of parts of the sentences."""
        found = np.empty(self.num_tokens)
        for sentences, part in zip(chosen, values):
            lengths, times = self.lengths[sentences], np.arange(len(part))[:, None]
            places = self.begins[sentences] + sentences + times
            found[places[times <= lengths]] = part[times <= lengths]
        return found
