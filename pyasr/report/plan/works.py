"""Amounts of work of each program, as functions of hours of speech, model sizes and options.

The cost of an amount in core seconds, bytes and memory is measured (`pyasr.report.plan.rates`). Every program
that a recipe calls must be listed here: in `WORKS`, in `LITTLE` (takes seconds), or in `BEFORE` (has to run
before planning).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from pyasr.report.plan.networks import NetworkSize, pretraining_gflop
from pyasr.report.plan.planned_calls import Call
from pyasr.report.plan.planned_data import PlannedCorpus

FRAMES_PER_HOUR = 360_000
# real-time factor of the search with beams of 15, 13, 11 on egs/amazon_queen's tri2: 0.082, 0.041, 0.021
BEAM, _FACTOR_OF_BEAM = 13.0, 1.4
DEFAULTS = {"nj": 2, "num-ranks": 2}  # defaults of options
EPOCHS = {
    "train_dnn": 10,
    "simulate_parallel": 10,
    "train_lfmmi": 6,
    "train_ctc": 10,
    "train_smbr": 4,
    "train_lstm_lm": 40,
}
Amount = Callable[[Call, PlannedCorpus], float]
NetworkPart = tuple[str, float]  # (name of its rate, Gflop)


def nothing(call: Call, corpus: PlannedCorpus) -> float:
    """The amount of work whose cost is constant."""
    return 0.0


@dataclass(frozen=True)
class Work:
    """A kind of work.

    unit     meaning of an amount of 1
    amount   amount of a call, without its network
    size     quantity that determines the size of the output
    workers  option with the number of processes that share the work; '' for one process
    default  default of that option; 0: that of `DEFAULTS`
    held     data that the processes divide among them and keep in memory, such as hours
    loaded   million n-grams that each process loads
    network  cost of a network's scores or training in addition to the amount
    """

    unit: str
    amount: Amount
    size: Amount
    workers: str = ""
    held: Amount = nothing
    loaded: Amount = nothing
    network: Callable[[Call, PlannedCorpus], NetworkPart | None] = lambda call, corpus: None
    default: int = 0

    def num_workers(self, call: Call) -> int:
        """Number of processes of a call."""
        return int(call.number(self.workers, self.default or DEFAULTS[self.workers])) if self.workers else 1

    def memory(self, call: Call, corpus: PlannedCorpus) -> float:
        """Quantity that determines the memory of a process."""
        return self.loaded(call, corpus) or self.held(call, corpus) / self.num_workers(call)


def hours_of(place: int) -> Amount:
    """Hours of the data directory at this word of a call."""
    return lambda call, corpus: corpus.hours_of(call.words[place])


def hours_by_columns(place: int) -> Amount:
    """Hours of the data directory at this word, times its columns / 40."""
    return lambda call, corpus: corpus.hours_of(call.words[place]) * corpus.columns_of(call.words[place]) / 40


def million_words(call: Call, corpus: PlannedCorpus) -> float:
    """Million words of the text at the first word of a call, times the order of n-grams."""
    return corpus.words_of(call.words[0]) / 1e6 * call.number("order", 3)


def million_ngrams(place: int) -> Amount:
    """Million n-grams of the language model at this word of a call."""
    return lambda call, corpus: corpus.ngrams_of(call.words[place]) / 1e6


def million_mixed(call: Call, corpus: PlannedCorpus) -> float:
    """Million n-grams of the mixture at the first word."""
    return sum(map(corpus.ngrams_of, call.words[1:])) / 1e6


def thousand_words(call: Call, corpus: PlannedCorpus) -> float:
    """Thousand distinct words of the training texts, by Heaps' law: 3,400 of 31,000 running ones, 46,000 of 3
    million."""
    texts = [corpus.words_of(word) for word in call.words if word.endswith("/text")]
    return 10 * max(texts or [10_000 * corpus.most_hours]) ** 0.565 / 1000


def gmm_training(iterations: int, num_gauss: int, num_leaves: int) -> Amount:
    """Hours times iterations times Gaussians per state; the arguments are the defaults of the options."""

    def amount(call: Call, corpus: PlannedCorpus) -> float:
        leaves = call.number("num-leaves", num_leaves)
        return (
            corpus.hours_of(call.words[0])
            * call.number("num-iters", iterations)
            * call.number("num-gauss", num_gauss)
            / leaves
        )

    return amount


def decoding(place: int) -> Amount:
    """Hours of the data directory, as if the beam were 13."""
    return lambda call, corpus: (
        corpus.hours_of(call.words[place]) * _FACTOR_OF_BEAM ** (call.number("beam", BEAM) - BEAM)
    )


def epochs_of(call: Call) -> float:
    """Number of passes over the data."""
    return call.number("num-epochs", EPOCHS[call.name])


def hours_of_epochs(call: Call, corpus: PlannedCorpus) -> float:
    """Hours of the training data times passes over them."""
    return corpus.hours_of(call.words[0]) * epochs_of(call)


def network_training(call: Call, corpus: PlannedCorpus) -> float:
    """Gflop of the training of a network."""
    network = corpus.model_of(call.words[-1]).network or NetworkSize(0, 0)
    return network.training_gflop(FRAMES_PER_HOUR * hours_of_epochs(call, corpus))


def rbm_training(call: Call, corpus: PlannedCorpus) -> float:
    """Gflop of a stack of RBMs."""
    return pretraining_gflop(
        call, corpus.columns_of(call.words[0]), FRAMES_PER_HOUR * corpus.hours_of(call.words[0])
    )


def lstm_lm_training(call: Call, corpus: PlannedCorpus) -> float:
    """Gflop: per word, the cells of all layers and the scores of the vocabulary."""
    dim, layers = call.number("dim", 200), call.number("num-layers", 1)
    products = 8 * dim**2 * layers + dim * 1000 * thousand_words(call, corpus)
    return NetworkSize(products, products).training_gflop(corpus.words_of(call.words[0]) * epochs_of(call))


def million_parameters(call: Call, corpus: PlannedCorpus) -> float:
    """Million parameters of the network that a call trains."""
    network = corpus.model_of(call.words[-1]).network
    return network.parameters / 1e6 if network else 0.0


def thousand_gaussians(num_gauss: int) -> Amount:
    """Thousand Gaussians of the model that a call trains; the argument is the default of the option."""
    return lambda call, corpus: call.number("num-gauss", num_gauss) / 1000


def key_of_network(network: NetworkSize, call: Call) -> str:
    """The name of the rate of a network's training."""
    return f"train_dnn {network.kind}{', natural gradient' if with_natural_gradient(call) else ''}"


def with_natural_gradient(call: Call) -> bool:
    """Whether a call uses natural gradient."""
    return call.flags.get("natural-gradient", "none") != "none"


def _scores(place: int, data: int) -> Callable[[Call, PlannedCorpus], NetworkPart | None]:
    """Scores of the network in --model-dir, or at word `place`, for the data directory at word `data`."""

    def part(call: Call, corpus: PlannedCorpus) -> NetworkPart | None:
        network = corpus.model_of(call.flags.get("model-dir", call.words[place])).network
        frames = FRAMES_PER_HOUR * corpus.hours_of(call.words[data])
        return (f"train_dnn {network.kind}", network.scoring_gflop(frames)) if network else None

    return part


def _training(call: Call, corpus: PlannedCorpus) -> NetworkPart | None:
    """Training of a network by a sequence criterion."""
    network = corpus.model_of(call.words[-1]).network
    return (key_of_network(network, call), network_training(call, corpus)) if network else None


def _gmm(iterations: int, num_gauss: int, num_leaves: int) -> Work:
    amount = gmm_training(iterations, num_gauss, num_leaves)
    return Work(
        "hour x iteration x Gaussian of a state",
        amount,
        thousand_gaussians(num_gauss),
        "nj",
        held=hours_of(0),
    )


def _ivectors(call: Call, corpus: PlannedCorpus) -> float:
    """Hours times Gaussians / 128 times dimensions / 40."""
    return (
        corpus.hours_of(call.words[0])
        * call.number("num-gauss", 128)
        / 128
        * call.number("ivector-dim", 40)
        / 40
    )


def _extracted(call: Call, corpus: PlannedCorpus) -> float:
    """Hours times dimensions / 40."""
    return corpus.hours_of(call.words[0]) * corpus.model_of(call.words[1]).columns / 40


_OF_AUDIO = Work("hour of speech", hours_of(0), hours_of(0), "nj")
_OF_COLUMNS = "hour of 40 columns"
_ALIGNMENT = Work("hour of speech", hours_of(0), hours_of(0), "nj", held=hours_of(0))
_SEQUENCES = Work(
    "hour x epoch without the network",
    hours_of_epochs,
    million_parameters,
    "num-ranks",
    held=hours_of(0),
    network=_training,
)
_VOCABULARY = Work("thousand different words", thousand_words, thousand_words)
_FRAMES = Work("Gflop", network_training, million_parameters, "num-ranks", held=hours_by_columns(0))
_SEARCH = Work(
    "hour of speech at beam 13",
    decoding(1),
    hours_of(1),
    "nj",
    loaded=million_ngrams(0),
    network=_scores(0, 1),
)
_LANGUAGE_MODEL = Work("million n-grams", million_ngrams(0), million_ngrams(0), loaded=million_ngrams(0))
_MADE_GRAMMAR = Work("million n-grams", million_ngrams(1), million_ngrams(1), loaded=million_ngrams(1))

LITTLE = frozenset(  # programs that take seconds for any corpus
    "validate_data_dir copy_data_dir fix_data_dir subset_data_dir combine_data perturb_data_dir "
    "split_data_dir dict_dir_add_pronprobs collect_results collect_parallel keep_training compare_published "
    "validate_lang get_lms make_stm prepare_lm_text".split()
)
BEFORE = frozenset(  # programs that find the corpus and create data directories: a plan needs their output
    "check_install get_corpus make_corpus prepare_data prepare_own_data prepare_swbd prepare_eval2000 "
    "prepare_rt03 prepare_fisher split_fisher prepare_librispeech".split()
)
WORKS = {
    **dict.fromkeys(("make_mfcc", "make_plp", "make_fbank"), _OF_AUDIO),
    **dict.fromkeys(("get_prons", "score", "get_ctm"), _OF_AUDIO),
    **dict.fromkeys(("align_si", "align_fmllr"), _ALIGNMENT),
    "align_dnn": Work(
        "hour of speech without the network", hours_of(0), hours_of(0), "nj", network=_scores(2, 0)
    ),
    "make_fmllr_feats": Work(_OF_COLUMNS, hours_by_columns(2), hours_by_columns(2), "nj"),
    "paste_feats": Work(_OF_COLUMNS, hours_by_columns(0), hours_by_columns(0), "nj"),
    "compute_cmvn": Work("hour of speech", hours_of(0), hours_of(0), "nj", default=1),
    "train_ivector_extractor": Work(
        "hour x 128 Gaussians x 40 dimensions", _ivectors, _ivectors, "nj", held=hours_of(0)
    ),
    "extract_ivectors": Work("hour x 40 dimensions", _extracted, _extracted, "nj"),
    **dict.fromkeys(
        ("prepare_dict", "prepare_joint_dict", "prepare_fisher_dict", "prepare_lang", "prepare_ctc_lang"),
        _VOCABULARY,
    ),
    "train_subwords": Work("hour of speech", hours_of(0), nothing),
    "train_lm": Work("million words x order", million_words, million_words, loaded=million_words),
    "mix_lms": Work("million n-grams", million_mixed, million_mixed, loaded=million_mixed),
    "prune_lm": _LANGUAGE_MODEL,
    "make_grammar": _MADE_GRAMMAR,
    "make_graph": _LANGUAGE_MODEL,
    "make_ctc_graph": _LANGUAGE_MODEL,
    "train_mono": _gmm(40, 1000, 130),
    "train_deltas": _gmm(35, 9000, 1200),
    "train_lda_mllt": _gmm(35, 15000, 1800),
    "train_sat": _gmm(35, 20000, 2000),
    "decode": _SEARCH,
    "decode_fmllr": _SEARCH,
    "decode_ctc": Work(
        "hour of speech without the network", hours_of(0), hours_of(0), "nj", network=_scores(1, 0)
    ),
    "lm_rescore": Work("hour of speech", hours_of(2), hours_of(2), "nj", loaded=million_ngrams(1)),
    "lm_rescore_lstm": Work("hour of speech", hours_of(2), hours_of(2), "nj"),
    "train_lstm_lm": Work("Gflop", lstm_lm_training, nothing),
    "train_dnn": _FRAMES,
    "simulate_parallel": Work("Gflop", network_training, million_parameters, held=hours_by_columns(0)),
    "pretrain_dbn": Work("Gflop", rbm_training, nothing, "num-ranks", held=hours_by_columns(0)),
    "build_chain_tree": _ALIGNMENT,
    **dict.fromkeys(("train_smbr", "train_lfmmi", "train_ctc"), _SEQUENCES),
}
# the same work under another name
_LIKE = {"prepare_joint_dict": "prepare_dict", "prepare_fisher_dict": "prepare_dict"}


def key_of(call: Call, corpus: PlannedCorpus) -> str:
    """The name of a call's rates: features are distinguished by width, searches by kind, trainings by the
    layers of the network."""
    network = (
        corpus.model_of(call.words[-1]).network if call.name in ("train_dnn", "simulate_parallel") else None
    )
    if network:
        return key_of_network(network, call).replace("train_dnn", call.name)
    name = _LIKE.get(call.name, call.name)
    width = (
        call.flags.get("num-ceps") or call.flags.get("num-mel-bins")
        if name in ("make_mfcc", "make_plp", "make_fbank")
        else ""
    )
    marks = [f"--{flag}" for flag in ("compress", "add-pitch", "decode-mbr") if call.is_set(flag)]
    return " ".join(filter(None, (name, width, _search(call, corpus), *marks)))


def _search(call: Call, corpus: PlannedCorpus) -> str | None:
    """The kind of a search: CTC, or with the scores of a network, whose jobs take more memory; else None."""
    if call.name == "decode_ctc":
        return call.flags.get("search", "prefix")
    has_network = (
        call.name == "decode"
        and corpus.model_of(call.flags.get("model-dir", os.path.dirname(call.words[0]))).network
    )
    return "network" if has_network else None
