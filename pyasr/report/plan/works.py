"""How the cost of each program grows: its amount of work, a function of hours of speech, sizes of models and options.

What an amount costs in core seconds, bytes and memory is measured (`pyasr.report.plan.rates`). A program that is not listed has no part
in a plan, which names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyasr.report.plan.calls import Call
from pyasr.report.plan.corpus import Corpus

FRAMES_PER_HOUR = 360_000
_SPLICED_INPUT = 440  # 11 frames of 40 features
_FLOPS_PER_PARAMETER = 6  # and frame: forward, and backward for weights and inputs
BEAM, _FACTOR_OF_BEAM = 13.0, 1.4  # real-time factor of the search with beams of 15, 13, 11 on egs/amazon_queen's tri2: 0.082, 0.041, 0.021
DEFAULTS = {"nj": 2, "num-ranks": 2, "num-epochs": 10, "rbm-iter": 1}  # of options
SHAPES = {"train_dnn": (4, 768), "pretrain_dbn": (6, 2048)}  # layers and units by default
Amount = Callable[[Call, Corpus], float]


@dataclass(frozen=True)
class Work:
    """A kind of work.

    unit     what an amount of 1 is
    amount   of a call
    size     hours of speech that the output grows with
    workers  the option with the number of processes that share it; '' for one process
    holds    jobs hold their part of the speech in memory, which grows with it
    """

    unit: str
    amount: Amount
    size: Amount
    workers: str = ""
    holds: bool = False

    def num_workers(self, call: Call) -> int:
        """Processes of a call."""
        return int(call.number(self.workers, DEFAULTS[self.workers])) if self.workers else 1



def hours_of(place: int) -> Amount:
    """Hours of the data directory that is this word of a call."""
    return lambda call, corpus: corpus.hours_of(call.words[place])


def most_hours(call: Call, corpus: Corpus) -> float:
    """Hours of the largest data directory, of which a text may be given: vocabularies, language models and graphs grow with it."""
    for word in call.words:
        if word.endswith("/text"):
            corpus.hours_of(word.removesuffix("/text"))
    return corpus.most_hours


def gmm_training(iterations: int, num_gauss: int, num_leaves: int) -> Amount:
    """Hours times iterations times Gaussians of a state; the arguments are the defaults of the options."""

    def amount(call: Call, corpus: Corpus) -> float:
        leaves = call.number("num-leaves", num_leaves)
        return corpus.hours_of(call.words[0]) * call.number("num-iters", iterations) * call.number("num-gauss", num_gauss) / leaves

    return amount


def decoding(place: int) -> Amount:
    """Hours of the data directory, as if the beam were 13."""
    return lambda call, corpus: corpus.hours_of(call.words[place]) * _FACTOR_OF_BEAM ** (call.number("beam", BEAM) - BEAM)


def num_parameters(call: Call, corpus: Corpus) -> float:
    """Parameters of a feed-forward network: that of steps/train_dnn.py (DATA LANG ALI OUT), or of a stack of RBMs (DATA OUT)."""
    layers, units = (call.number(flag, usual) for flag, usual in zip(("hidden-layers", "hidden-dim"), SHAPES[call.name]))
    outputs = corpus.leaves_of(call.words[-2]) if call.name == "train_dnn" else 0.0
    return _SPLICED_INPUT * units + (layers - 1) * units**2 + outputs * units


def network_training(call: Call, corpus: Corpus) -> float:
    """Gflop: parameters times frames times epochs."""
    frames = FRAMES_PER_HOUR * corpus.hours_of(call.words[0])
    return _FLOPS_PER_PARAMETER * num_parameters(call, corpus) * frames * call.number("num-epochs", DEFAULTS["num-epochs"]) / 1e9


def rbm_training(call: Call, corpus: Corpus) -> float:
    """Gflop: each machine sees all frames `--rbm-iter` times."""
    frames = FRAMES_PER_HOUR * corpus.hours_of(call.words[0])
    return _FLOPS_PER_PARAMETER * num_parameters(call, corpus) * frames * call.number("rbm-iter", DEFAULTS["rbm-iter"]) / 1e9


_OF_DATA = Work("hour of speech", hours_of(0), hours_of(0), "nj")
_ALIGNMENT = Work("hour of speech", hours_of(0), hours_of(0), "nj", holds=True)
_OF_TEXT = Work("hour of training speech", most_hours, most_hours)
_DECODING = Work("hour of speech at beam 13", decoding(1), hours_of(1), "nj")


def _gmm(iterations: int, num_gauss: int, num_leaves: int) -> Work:
    return Work("hour x iteration x Gaussian of a state", gmm_training(iterations, num_gauss, num_leaves), hours_of(0), "nj", holds=True)


LITTLE = frozenset(  # programs that take seconds, whatever the corpus
    "check_install validate_data_dir copy_data_dir fix_data_dir subset_data_dir combine_data perturb_data_dir dict_dir_add_pronprobs "
    "collect_results validate_lang prepare_own_data".split()
)
WORKS = {
    **dict.fromkeys(("make_mfcc", "make_plp", "make_fbank", "make_spectrogram", "make_fmllr_feats"), _OF_DATA),
    **dict.fromkeys(("get_prons", "get_train_ctm", "score", "get_ctm"), _OF_DATA),
    **dict.fromkeys(("align_si", "align_fmllr", "align_dnn"), _ALIGNMENT),
    "compute_cmvn": Work("hour of speech", hours_of(0), hours_of(0)),
    **dict.fromkeys(("prepare_dict", "prepare_lang", "train_lm", "make_grammar", "make_graph"), _OF_TEXT),
    "train_mono": _gmm(40, 1000, 130),
    "train_deltas": _gmm(35, 9000, 1200),
    "train_lda_mllt": _gmm(35, 15000, 1800),
    "train_sat": _gmm(35, 20000, 2000),
    "decode": _DECODING,
    "decode_fmllr": _DECODING,
    "lm_rescore": Work("hour of speech", hours_of(2), hours_of(2), "nj"),
    "train_dnn": Work("Gflop", network_training, hours_of(0), "num-ranks", holds=True),
    "pretrain_dbn": Work("Gflop", rbm_training, hours_of(0), "num-ranks", holds=True),
}


def key_of(call: Call) -> str:
    """The name of a call's rates: features differ by their width, networks of layers from those that are described by options."""
    if "network" in call.flags:
        return f"{call.name} --network"
    width = call.flags.get("num-ceps") or call.flags.get("num-mel-bins") if call.name in ("make_mfcc", "make_plp", "make_fbank") else ""
    compressed = " --compress" if call.is_set("compress") else ""
    return f"{call.name} {width}{compressed}".strip() if width else f"{call.name}{compressed}"
