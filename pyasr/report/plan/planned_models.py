"""Properties of the models and features that calls write: tied states, columns, networks, n-grams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pyasr.base.cli.option_flags import flags_of
from pyasr.base.cli.options import parse
from pyasr.feats.feature_kind import feature_kinds, num_columns
from pyasr.report.plan.networks import NetworkSize, feed_forward
from pyasr.report.plan.planned_calls import Call

_LEAVES_OF_MONO = 130.0  # three states for each of about forty phones, and silence
_USUAL_LEAVES = {"train_deltas": 1200, "train_lda_mllt": 1800, "train_sat": 2000, "build_chain_tree": 1000}
# by order; a trigram of 3 million words has 3.1 million (docs/lang/language_model.md)
_NGRAMS_OF_A_WORD = {1: 0.02, 2: 0.5, 3: 1.1, 4: 1.8}
_KEPT_BY_MIN_COUNTS = 0.22  # fraction of n-grams; 30 million words: 7.0 million
_KEPT_BY_PRUNING = 0.25  # fraction of 9.7 million n-grams, with a threshold of 1e-8
_IVECTOR_DIM = 40
# Millions of n-grams: 9 bytes each of the compressed files, whose sizes www.openslr.org/11 gives.
_PUBLISHED_NGRAMS = {"tgsmall": 1.5, "tgmed": 3.8, "tglarge": 84.0, "fglarge": 150.0}


@dataclass(frozen=True)
class PlannedModel:
    """Properties of a model, alignment or graph directory.

    leaves   tied states, or units of CTC
    columns  number of columns of its training features
    network  size of its network; None for a GMM
    """

    leaves: float = _LEAVES_OF_MONO
    columns: float = 40.0
    network: NetworkSize | None = None


class KnownProperties(Protocol):
    """Properties of directories and files, by path."""

    def model_of(self, path: str) -> PlannedModel:
        """Properties of a model, alignment or graph directory."""

    def columns_of(self, path: str) -> float:
        """Columns of a data directory's features."""

    def words_of(self, text: str) -> float:
        """Running words of a text."""

    def ngrams_of(self, path: str) -> float:
        """N-grams of a language model."""

    def network_size(self, path: str, columns: float, leaves: float, chunk: float) -> NetworkSize:
        """Size of a network with the layers of a file."""


def _of_tree(corpus: KnownProperties, call: Call) -> PlannedModel:
    """A GMM, or the tree of LF-MMI. An LDA has its own number of columns, which later systems keep."""
    columns = (
        call.number("dim", 40) if call.name == "train_lda_mllt" else corpus.model_of(call.words[2]).columns
    )
    return PlannedModel(call.number("num-leaves", _USUAL_LEAVES[call.name]), columns)


def _of_place(place: int) -> Callable[[KnownProperties, Call], PlannedModel]:
    """The properties of the model at this word."""
    return lambda corpus, call: corpus.model_of(call.words[place])


def _of_dnn(corpus: KnownProperties, call: Call) -> PlannedModel:
    leaves = corpus.model_of(call.words[2]).leaves
    columns = corpus.columns_of(call.words[0]) * (1 + call.number("deltas", 0))
    if "network" not in call.flags:
        return PlannedModel(leaves, columns, feed_forward(call, columns, leaves))
    return _described(corpus, call, call.flags["network"], leaves, columns, call.number("chunk", 20))


def _of_lfmmi(corpus: KnownProperties, call: Call) -> PlannedModel:
    leaves, columns = corpus.model_of(call.words[2]).leaves, corpus.columns_of(call.words[0])
    return _described(corpus, call, call.flags["network"], leaves, columns, call.number("chunk", 150))


def _of_ctc(corpus: KnownProperties, call: Call) -> PlannedModel:
    return _described(
        corpus,
        call,
        call.words[2],
        corpus.model_of(call.words[1]).leaves,
        corpus.columns_of(call.words[0]),
        0,
    )


def _described(
    corpus: KnownProperties, call: Call, path: str, leaves: float, columns: float, chunk: float
) -> PlannedModel:
    """The properties of a network with the layers of a file."""
    return PlannedModel(leaves, columns, corpus.network_size(path, columns, leaves, chunk))


def _of_graph(corpus: KnownProperties, call: Call) -> PlannedModel:
    return replace(corpus.model_of(call.words[1]), network=None)


# {program: properties of the last word of a call}
MODELS: dict[str, Callable[[KnownProperties, Call], PlannedModel]] = {
    "train_mono": lambda corpus, call: PlannedModel(columns=3 * corpus.columns_of(call.words[0])),
    **dict.fromkeys(_USUAL_LEAVES, _of_tree),
    **dict.fromkeys(("align_si", "align_fmllr", "align_dnn"), _of_place(2)),
    "train_dnn": _of_dnn,
    "simulate_parallel": _of_dnn,
    "train_smbr": _of_place(4),
    "train_lfmmi": _of_lfmmi,
    "train_ctc": _of_ctc,
    "train_subwords": lambda corpus, call: PlannedModel(call.number("num-units", 500)),
    "train_ivector_extractor": lambda corpus, call: PlannedModel(
        columns=call.number("ivector-dim", _IVECTOR_DIM)
    ),
    "extract_ivectors": _of_place(1),
    "make_graph": _of_graph,
}


def columns_made(corpus: KnownProperties, call: Call) -> tuple[str, float] | None:
    """(data directory, columns of its features) of a call that computes features; None for others."""
    if cls := _options_of_audio(call):
        return call.words[0], _columns_of_audio(cls, call)
    if call.name == "make_fmllr_feats":
        return call.words[2], corpus.model_of(call.words[1]).columns
    if call.name == "paste_feats":
        return call.words[0], _pasted_columns(corpus, call)
    if call.name in ("copy_data_dir", "subset_data_dir") and call.flags.get("features") != "false":
        return call.words[1], corpus.columns_of(call.words[0])
    return None


def _options_of_audio(call: Call) -> type | None:
    """The options of the features of audio that a call computes; None for other programs."""
    return next((cls for cls, kind in feature_kinds().items() if call.name == f"make_{kind.name}"), None)


def _columns_of_audio(cls: type, call: Call) -> int:
    """Columns of features with the options of `cls` among the flags of a call."""
    known = {flag.name for flag in flags_of(cls)}
    given = [f"--{name}={value}" for name, value in call.flags.items() if name in known]
    return num_columns(parse(cls, given)[0])


def _pasted_columns(corpus: KnownProperties, call: Call) -> float:
    """Columns of all streams with their derivatives, plus those of i-vectors."""
    orders = list(map(float, call.flags.get("deltas", "0").split()))
    streams = call.words[1:]
    orders += orders[-1:] * (len(streams) - len(orders))
    vectors = (
        corpus.model_of(call.flags["vectors"].rpartition("/")[0]).columns if "vectors" in call.flags else 0.0
    )
    return vectors + sum(corpus.columns_of(stream) * (1 + order) for stream, order in zip(streams, orders))


def _trained_ngrams(corpus: KnownProperties, call: Call) -> dict[str, float]:
    order = int(call.number("order", 3))
    kept = _KEPT_BY_MIN_COUNTS if "min-counts" in call.flags else 1.0
    per_word = _NGRAMS_OF_A_WORD.get(order, _NGRAMS_OF_A_WORD[4])
    return {call.words[-1]: per_word * kept * corpus.words_of(call.words[0])}


def _pruned_ngrams(corpus: KnownProperties, call: Call) -> dict[str, float]:
    kept = _KEPT_BY_PRUNING if call.number("threshold", 0) else 1.0
    return {call.words[1]: kept * corpus.ngrams_of(call.words[0])}


def _published_ngrams(corpus: KnownProperties, call: Call) -> dict[str, float]:
    return {f"{call.words[-1]}/{name}": 1e6 * num for name, num in _PUBLISHED_NGRAMS.items()}


# {directory that a call makes: n-grams}
LANGUAGE_MODELS: dict[str, Callable[[KnownProperties, Call], dict[str, float]]] = {
    "train_lm": _trained_ngrams,
    "prune_lm": _pruned_ngrams,
    "mix_lms": lambda corpus, call: {call.words[0]: sum(map(corpus.ngrams_of, call.words[1:]))},
    "get_lms": _published_ngrams,
    "make_grammar": lambda corpus, call: {call.words[2]: corpus.ngrams_of(call.words[1])},
    "make_graph": lambda corpus, call: {call.words[2]: corpus.ngrams_of(call.words[0])},
    "make_ctc_graph": lambda corpus, call: {call.words[1]: corpus.ngrams_of(call.words[0])},
}
