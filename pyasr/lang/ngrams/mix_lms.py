"""Static mixtures of ARPA files, with given weights or with weights of EM, for utils/mix_lms.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.cli.option_uses import if_set
from pyasr.base.cli.options import group, option
from pyasr.base.errors import UserError
from pyasr.base.outputs.output import atomic_write
from pyasr.lang.ngrams.arpa import Arpa, Perplexity, read_arpa, text_scores
from pyasr.lang.ngrams.mix import mixture, share_of_unknown
from pyasr.lang.ngrams.mixture import em_weights
from pyasr.lang.ngrams.train_lm import TextOptions, read_eval_text, write_lm, write_perplexity
from pyasr.lang.ngrams.trie import trie_of

WEIGHTS_FILE = "weights"
_SUM_TOLERANCE = 0.002  # accepts 0.333,0.333,0.333
_LN10 = math.log(10.0)


@dataclass(frozen=True)
class MixOptions:
    """Weights of the mixture: --weights or --heldout."""

    heading = "language model"

    weights: str = option(
        "", "comma-separated weights of the models, in their order, with the sum 1, such as 0.7,0.3"
    )
    heldout: Path | None = option(None, "held-out text; EM finds the weights that maximise its probability")
    tolerance: float = option(
        1e-4, "EM ends when no weight changes by more", minimum=1e-9, maximum=0.1, only=if_set("heldout")
    )
    lacking: str = option(
        "zero",
        "probability of words that a model lacks; zero: 0; share: these words and the OOV word "
        "get equal parts of the OOV word's probability",
        choices=("zero", "share"),
    )
    text: TextOptions = group(TextOptions, only={"text_ids": if_set("heldout")})


def given_weights(options: MixOptions, num_models: int) -> np.ndarray | None:
    """Weights of --weights, which sum to one; None with --heldout. Raises UserError for invalid weights."""
    if num_models < 2:
        raise UserError(
            "a mixture needs two models or more; give their ARPA files after the output directory"
        )
    if bool(options.weights) == bool(options.heldout):
        given = "both" if options.weights else "neither"
        raise UserError(f"{given} of --weights and --heldout given; give one of them")
    if options.heldout:
        return None
    weights = np.array([_weight(field, options.weights) for field in options.weights.split(",")])
    if len(weights) != num_models:
        counts = f"{len(weights)} numbers in '{options.weights}' for {num_models} models"
        raise UserError(f"--weights: {counts}; give one for each")
    if abs(weights.sum() - 1) > _SUM_TOLERANCE:
        raise UserError(
            f"--weights: '{options.weights}' sums to {weights.sum():g}, not to 1; correct the numbers"
        )
    return weights / weights.sum()


def _weight(field: str, given: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UserError(
            f"--weights: '{field}' in '{given}' is not a number from 0 to 1; give numbers such as 0.7,0.3"
        )
    return value


class HeldOut:
    """A text and the probabilities of its words under each model."""

    def __init__(self, path: Path, options: MixOptions):
        self.path, self.options = path, options
        self.sentences = read_eval_text(path, options.text)
        self.words = {word for words in self.sentences for word in words} - {options.text.oov_word}
        # log10 p of each word and sentence end; that of the OOV word for words that a model lacks
        self.scores: list[np.ndarray] = []
        self.lacking: list[np.ndarray] = []
        self.vocabularies: list[set[str]] = []

    def add(self, arpa: Arpa, name: Path) -> None:
        """Score the text with one of the models and log the perplexity."""
        scores, lacking = text_scores(arpa, self.sentences, self.options.text.oov_word)
        log.info(f"{name}: {Perplexity.of(scores, lacking, len(self.sentences))}")
        self.scores.append(scores)
        self.lacking.append(lacking)
        self.vocabularies.append(set(arpa.words))

    def weights(self) -> np.ndarray:
        """Weights estimated by EM; logs perplexity and weights of each iteration. Words that all models lack
        are skipped.

        Raises UserError if the models lack all words of the text.
        """
        vocabulary = set().union(*self.vocabularies)
        if not self.words & vocabulary:
            raise UserError(
                f"{self.path}: the models have none of its words; give a text with words of the models"
            )
        known = ~np.all(self.lacking, axis=0)
        rows = np.stack([self._with_lacking(i, len(vocabulary)) for i in range(len(self.scores))])[:, known]
        for number, (weights, mean) in enumerate(em_weights(_LN10 * rows, self.options.tolerance)):
            log.info(f"iteration {number}: perplexity {math.exp(-mean):.3f}, weights {_shown(weights)}")
        return weights

    def _with_lacking(self, i: int, num_words: int) -> np.ndarray:
        """log10 p of each word under model `i`; words that it lacks are scored according to --lacking."""
        scores, lacking = self.scores[i], self.lacking[i]
        shares = self.options.lacking == "share" and self.options.text.oov_word in self.vocabularies[i]
        substitute = scores + share_of_unknown(num_words - len(self.vocabularies[i])) if shares else -np.inf
        return np.where(lacking, substitute, scores)


def mix_lms(sources: list[Path], weights: np.ndarray | None, options: MixOptions, out: Path) -> None:
    """Write the mixture of models in ARPA files to the directory `out`, with the weights and, with --heldout,
    the perplexity.

    weights  of `given_weights`
    """
    heldout = HeldOut(options.heldout, options) if options.heldout else None
    models = []
    for source in sources:
        arpa = read_arpa(source)
        models.append(trie_of(arpa, source))
        if heldout:
            heldout.add(arpa, source)
    weights = heldout.weights() if heldout else weights
    assert weights is not None
    wanted = np.flatnonzero(weights)
    mixed = mixture(
        [models[i] for i in wanted], weights[wanted], options.text.oov_word, options.lacking == "share"
    )
    del models
    arpa = mixed.arpa()
    write_lm(arpa, out)
    with atomic_write(out / WEIGHTS_FILE) as f:
        f.writelines(f"{weight:.6f} {source}\n" for weight, source in zip(weights, sources))
    if heldout:
        write_perplexity(arpa, heldout.path, heldout.sentences, options.text, out)


def _shown(weights: np.ndarray) -> str:
    return " ".join(f"{weight:.4f}" for weight in weights)
