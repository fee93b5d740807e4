r"""An LSTM language model of words, and its file.

References: M. Sundermeyer, R. Schlueter, H. Ney, "LSTM neural networks for language modeling", Interspeech
2012; O. Press, L. Wolf, "Using the output embedding to improve language models", EACL 2017 (one matrix E for
the words' vectors at input and output).

With w_0 the sentence boundary, w_1 ... w_k the words and e(w) the row of E for w,

    s_t = LSTM(e(w_{t-1}), s_{t-1}),  s_0 = 0
    p(w_t | w_0 ... w_{t-1}) = softmax(E y_t + b),   y_t the topmost output in s_t

w_{k+1} is the boundary again: p(end of the sentence). A sentence does not depend on previous sentences, as in
rescoring.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyasr.base.errors import UserError
from pyasr.nn.dropout import ByteDropout
from pyasr.nn.files import LM_FILE
from pyasr.nn.networks.described import Described, restored
from pyasr.tensor.file import load_object, save_tensors

BOUNDARY = 0
_FORMAT = 1
_FIRST_WEIGHTS = 0.1


class WordLstm(Described):
    """The network, over word ids from 0, which is the boundary.

    num_words   rows of E
    dim         elements of a word's vector, and cells of each layer
    dropout     proportion of elements dropped in training: of words' vectors, between layers, of y_t
    """

    def __init__(self, num_words: int, dim: int, num_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        self.num_words, self.dim, self.num_layers, self.share = num_words, dim, num_layers, dropout
        self.embedding = nn.Embedding(num_words, dim)
        self.layers = nn.ModuleList(nn.LSTM(dim, dim) for _ in range(num_layers))
        self.bias = nn.Parameter(torch.zeros(num_words))
        self.dropout = ByteDropout(dropout)
        nn.init.uniform_(self.embedding.weight, -_FIRST_WEIGHTS, _FIRST_WEIGHTS)

    def describe(self) -> dict:
        """The arguments with which `from_description` constructs a network of this shape."""
        return {
            "num_words": self.num_words,
            "dim": self.dim,
            "num_layers": self.num_layers,
            "dropout": self.share,
        }

    @classmethod
    def from_description(cls, description: dict) -> WordLstm:
        return cls(**description)

    def forward(self, words: Tensor, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(y after each word (T, N, dim), states after the last ones) of N sequences of T words, int64 (T,
        N).

        states  (N, state_dim), before the first words: h and c of each layer, from the lowest layer up; None:
                zeros
        """
        y, after = self.dropout(self.embedding(words)), []
        before = y.new_zeros(words.shape[1], self.state_dim) if states is None else states
        for layer, state in zip(self.layers, before.chunk(self.num_layers, 1)):
            y, state = layer(y, tuple(part[None].contiguous() for part in state.chunk(2, 1)))
            y = self.dropout(y)
            after += [part[0] for part in state]
        return y, torch.cat(after, 1)

    @property
    def state_dim(self) -> int:
        return 2 * self.dim * self.num_layers

    def logits(self, y: Tensor) -> Tensor:
        """E y + b: (..., dim) to (..., num_words)."""
        return F.linear(y, self.embedding.weight, self.bias)


@dataclass
class LstmLm:
    """A network and the words for its ids from 1 on.

    weight  interpolation weight next to the n-gram model of its training (`pyasr.lang.ngrams.mixture`); None:
            trained without one
    """

    network: WordLstm
    words: list[str]
    weight: float | None = None

    @property
    def num_words(self) -> int:
        """Number of words, including the boundary."""
        return self.network.num_words

    def start(self) -> Tensor:
        """The state after the boundary, (1, state_dim)."""
        return self.step(self.network.bias.new_zeros(1, self.network.state_dim), torch.tensor([BOUNDARY]))

    def step(self, states: Tensor, words: Tensor) -> Tensor:
        """The states (N, state_dim) after one more word each, int64 (N)."""
        with torch.inference_mode():
            return self.network(words[None].to(states.device), states)[1]

    def log_probabilities(self, states: Tensor) -> Tensor:
        """ln p of every word, and of the end in column BOUNDARY, after each state: (N, num_words)."""
        with torch.inference_mode():
            top = states[:, -2 * self.network.dim : -self.network.dim]
            return self.network.logits(top).log_softmax(1)

    def save(self, path: Path) -> None:
        """Write the file that `load_lm` reads: plain tensors and values."""
        parameters = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        save_tensors(
            path,
            {
                "format": _FORMAT,
                "language_model": self.network.describe(),
                "parameters": parameters,
                "words": self.words,
                "weight": self.weight,
            },
        )


def load_lm(path: Path) -> LstmLm:
    """The model of a file, or of a directory of utils/train_lstm_lm.py, on the CPU. Raises UserError for
    other files."""
    path = Path(path) / LM_FILE if Path(path).is_dir() else Path(path)

    def make(content: dict) -> LstmLm:
        """The model from the content of its file."""
        if content["format"] != _FORMAT and "language_model" in content:
            raise UserError(
                f"{path}: model file of format {content['format']}, but this pyasr reads {_FORMAT}; use "
                "that which wrote it"
            )
        network = restored(
            lambda: WordLstm.from_description(content["language_model"]), content["parameters"]
        )
        if len(content["words"]) != network.num_words - 1:
            raise ValueError("a number of words that differs from the network's")
        return LstmLm(network, content["words"], content["weight"])

    return load_object(
        path, make, "LSTM language model", "train the language model", "utils/train_lstm_lm.py"
    )
