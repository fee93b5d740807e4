"""An LSTM language model by its formulas, word by word in float64."""

from __future__ import annotations

import numpy as np

from pyasr.nn.networks.lstm_lm import LstmLm, WordLstm


def random_lm(words: list[str], seed: int = 0, dim: int = 5, num_layers: int = 2) -> LstmLm:
    """A model of these words with clearly different probabilities."""
    import torch

    torch.manual_seed(seed)
    network = WordLstm(len(words) + 1, dim, num_layers, dropout=0.5).eval()
    for parameter in network.parameters():
        parameter.data.normal_(0, 0.8)
    return LstmLm(network, list(words))


def token_scores(model: LstmLm, sentence: list[int]) -> list[float]:
    """ln p of each word, given as the model's ids from 1, and of the sentence end."""
    values = {name: value.double().numpy() for name, value in model.network.state_dict().items()}
    vectors, bias, dim = values["embedding.weight"], values["bias"], model.network.dim
    cells, outputs = np.zeros((2, model.network.num_layers, dim))
    found = []
    for before, word in zip([0, *sentence], [*sentence, 0]):
        x = vectors[before]
        for layer in range(model.network.num_layers):
            w_x, w_h, b_x, b_h = (
                values[f"layers.{layer}.{name}_l0"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            i, f, g, o = (w_x @ x + w_h @ outputs[layer] + b_x + b_h).reshape(4, dim)
            cells[layer] = sigmoid(f) * cells[layer] + sigmoid(i) * np.tanh(g)
            x = outputs[layer] = sigmoid(o) * np.tanh(cells[layer])
        scores = vectors @ x + bias
        found.append(scores[word] - np.log(np.exp(scores).sum()))
    return found


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
