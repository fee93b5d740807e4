"""Training of an LSTM language model from a text and a vocabulary, for utils/train_lstm_lm.py.

Adam (D. P. Kingma, J. Ba, ICLR 2015) minimises the cross-entropy of words and sentence ends, with gradients
clipped at a norm of 1. After each epoch the held-out text controls training as in newbob
(`pyasr.train.schedules`). An epoch without a gain is rejected: its parameters are discarded. The learning
rate is halved if gains are small, and training ends if they are still small then. So after every epoch the
network is the best one so far.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from pyasr.base import log
from pyasr.base.cli.seeds import generator
from pyasr.base.outputs.output import atomic_write
from pyasr.base.pace import Pace
from pyasr.cluster.runner.group_progress import lasting
from pyasr.lang.ngrams.arpa import Perplexity, read_arpa, token_scores
from pyasr.lang.ngrams.mixture import best_weight, mix
from pyasr.lang.ngrams.train_lm import PERPLEXITY_FILE, arpa_file
from pyasr.lang.ngrams.vocabulary import read_vocabulary
from pyasr.nn.files import LM_FILE
from pyasr.nn.networks.lstm_lm import LstmLm, WordLstm
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.job.checkpoint_index import DIRECTORY
from pyasr.train.job.checkpoints import load_checkpoint, save_checkpoint
from pyasr.train.minibatches.sentences import NOTHING, Sentences
from pyasr.train.schedules import Newbob, ScheduleOptions, ScheduleState
from pyasr.train.steps.lstm_lm_step import LstmLmOptions

_MAX_NORM = 1.0
_MAX_SCORES = 1 << 24  # tokens times words of a minibatch in evaluation


def make_lstm_lm(
    text: Path, heldout: Path, lexicon: Path, ngram: Path | None, options: LstmLmOptions, out: Path
) -> None:
    """Train a model on `text` and write it to the directory `out`, with its perplexity on `heldout`. With
    `ngram`, also write the perplexities of the n-gram model and of the mixture."""
    words = read_vocabulary(lexicon)
    training, heldout_text = (Sentences.read(path, words, options) for path in (text, heldout))
    ngram_result = ngram_scores(ngram, words, heldout_text, options) if ngram else None
    job = Job(
        LstmLm(new_network(len(words) + 1, options), words), training, heldout_text, options, out / DIRECTORY
    )
    log.info(
        f"{training.num_tokens} words and ends, {len(words)} words in the vocabulary, "
        f"{sum(p.numel() for p in job.model.network.parameters())} parameters"
    )
    job.run()
    lines = compare(job.model, heldout_text, ngram_result, options)
    with atomic_write(out / PERPLEXITY_FILE) as f:
        f.writelines(f"{heldout}: {line}\n" for line in lines)
    job.model.save(out / LM_FILE)
    for line in lines:
        log.info(f"{heldout}: {line}")


def new_network(num_words: int, options: LstmLmOptions) -> WordLstm:
    """A network on the device, with initial parameters drawn from the seed."""
    torch.manual_seed(_seed(options, "initial"))
    return WordLstm(num_words, options.dim, options.num_layers, options.dropout).to(options.torch_device())


def _seed(options: LstmLmOptions, *names: object) -> int:
    return int(generator(options.train_seed, "lstm-lm", *names).integers(1 << 31))


def log_probabilities(model: LstmLm, text: Sentences) -> np.ndarray:
    """ln p of each token of a text, float64 (num_tokens,)."""
    network = model.network.eval()
    parts, device = (
        text.minibatches(max(_MAX_SCORES // network.num_words, 1), np.random.default_rng(0)),
        network.bias.device,
    )
    found = []
    with torch.inference_mode():
        for chosen in parts:
            before, tokens = (tensor.to(device) for tensor in text.tensors(chosen))
            scores = network.logits(network(before)[0]).log_softmax(2)
            found.append(scores.gather(2, tokens.clamp(min=0)[:, :, None])[:, :, 0].double().cpu().numpy())
    return text.in_order(parts, found)


class Job:
    """The training of one model, with checkpoints in `directory` after each epoch. `run` resumes from the
    last checkpoint."""

    def __init__(
        self, model: LstmLm, training: Sentences, heldout: Sentences, options: LstmLmOptions, directory: Path
    ):
        self.model, self.training, self.heldout, self.options, self.directory = (
            model,
            training,
            heldout,
            options,
            directory,
        )
        self.optimizer = torch.optim.Adam(model.network.parameters(), lr=options.learning_rate)
        self.schedule = Newbob(
            ScheduleOptions(
                learning_rate=options.learning_rate,
                num_epochs=options.num_epochs,
                start_halving_gain=options.start_halving_gain,
                end_halving_gain=options.end_halving_gain,
            ),
            training.num_tokens,
        )

    def run(self) -> None:
        """Train to the end."""
        if not self._resume():
            self.schedule.begin(self.heldout_loss(), 0.0)
        self.first_epoch, self.pace = self.schedule.state.epoch, Pace()
        while not self.schedule.finished:
            epoch, rate, best = (
                self.schedule.state.epoch + 1,
                self.schedule.state.rate,
                copy.deepcopy(self._state()),
            )
            loss = self._epoch(epoch, rate)
            heldout = self.heldout_loss()
            accepted = self.schedule.end_epoch(heldout, 0.0)
            if not accepted:
                self._load_state(best)
            log.info(
                f"epoch {epoch}: perplexity {_exp(loss):.1f} in training, {_exp(heldout):.1f} held out, "
                f"learning rate {rate:.3g}{'' if accepted else '; rejected'}"
            )
            shared = {"state": self._state(), "schedule": dataclasses.asdict(self.schedule.state)}
            save_checkpoint(self.directory, SoloComm(), shared, {}, epoch * self.training.num_tokens)

    def heldout_loss(self) -> float:
        """Mean of -ln p over words of the vocabulary and sentence ends of the held-out text."""
        return -float(log_probabilities(self.model, self.heldout)[~self.heldout.is_oov].mean())

    def _epoch(self, number: int, rate: float) -> float:
        """Train for one epoch. Returns the mean loss of its tokens."""
        options, network = self.options, self.model.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        torch.manual_seed(_seed(options, "dropout", number))
        total, num_done = torch.zeros((2, 1), device=network.bias.device)
        for chosen in self.training.minibatches(
            options.minibatch, generator(options.train_seed, "lstm-lm", "order", number)
        ):
            before, tokens = (tensor.to(total.device) for tensor in self.training.tensors(chosen))
            scored = tokens != NOTHING
            loss = F.cross_entropy(network.logits(network(before)[0][scored]), tokens[scored])
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _MAX_NORM)
            self.optimizer.step()
            total += loss.detach() * scored.sum()
            num_done += scored.sum()
            if self.pace.is_due():
                self._log_progress(number, int(num_done), float(total / num_done.clamp(min=1)), rate)
        return float(total) / self.training.num_tokens

    def _log_progress(self, epoch: int, num_done: int, loss: float, rate: float) -> None:
        """Log the progress of an epoch and an upper bound of the remaining time."""
        so_far = (epoch - 1 - self.first_epoch) * self.training.num_tokens + num_done
        speed = so_far / self.pace.passed_s
        left_s = ((self.options.num_epochs - epoch + 1) * self.training.num_tokens - num_done) / speed
        share = num_done / self.training.num_tokens
        which = f"epoch {epoch} of at most {self.options.num_epochs} ({share:.0%} of it)"
        log.info(
            f"{which}, perplexity {_exp(loss):.1f}, learning rate {rate:.3g}, {speed:.0f} words/s, at most "
            f"{lasting(left_s)} left"
        )

    def _state(self) -> dict:
        return {"network": self.model.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def _load_state(self, state: dict) -> None:
        self.model.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _resume(self) -> bool:
        found = load_checkpoint(self.directory, SoloComm())
        if found is None:
            return False
        self._load_state(found.shared["state"])
        self.schedule.state = ScheduleState(**found.shared["schedule"])
        log.info(f"resuming after epoch {self.schedule.state.epoch}")
        return True


def _exp(loss: float) -> float:
    """Perplexity; infinite for the loss of a diverged network beyond the range of floats."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def ngram_scores(
    path: Path, words: list[str], text: Sentences, options: LstmLmOptions
) -> tuple[np.ndarray, np.ndarray]:
    """(ln p of each token under an n-gram model, whether it is a word that the model does not have). `path`
    is an ARPA file or a directory with one."""
    arpa = read_arpa(arpa_file(path))
    ids = np.array([arpa.index.get(word, -1) for word in words])
    scores, oov = token_scores(arpa, ids[text.flat - 1], text.lengths, options.oov_word)
    return math.log(10) * scores, oov


def compare(
    model: LstmLm, text: Sentences, ngram_result: tuple[np.ndarray, np.ndarray] | None, options: LstmLmOptions
) -> list[str]:
    """Lines with perplexities. Sets the model's weight to the best one in a mixture with an n-gram model,
    whose scores are `ngram_result`."""
    scores, oov = log_probabilities(model, text), text.is_oov
    if ngram_result is None:
        return [f"LSTM: {_perplexity(scores, oov, text)}"]
    ngram, oov = ngram_result[0], oov | ngram_result[1]
    model.weight = best_weight(ngram[~oov], scores[~oov])
    both = mix(ngram, scores, model.weight)
    share = f"{model.weight:.3f} LSTM + {1 - model.weight:.3f} n-gram"
    return [
        f"{name}: {_perplexity(values, oov, text)}"
        for name, values in (("LSTM", scores), ("n-gram", ngram), (share, both))
    ]


def _perplexity(scores: np.ndarray, oov: np.ndarray, text: Sentences) -> Perplexity:
    """As `pyasr.lang.ngrams.arpa.perplexity`: out-of-vocabulary words are counted, but not scored."""
    return Perplexity(
        float(scores[~oov].sum()) / math.log(10), len(text.flat), int(oov.sum()), len(text.lengths)
    )
