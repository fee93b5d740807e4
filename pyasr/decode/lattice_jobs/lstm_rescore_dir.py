"""Rescoring of lattices of a decode directory with an LSTM language model, interpolated with n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pyasr.base import log
from pyasr.base.errors import UserError
from pyasr.decode.lattice_jobs.rescore_dir import (
    LstmRescoreOptions,
    LstmRescoreSpec,
    read_models,
    rewrite_shard,
    spoken_words,
)
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.rescoring.lm_rescore import add_lm
from pyasr.decode.rescoring.lstm_rescore import Expansion, rescore_together
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.networks.lstm_lm import LstmLm, load_lm

_MAX_ARCS = 4000  # maximum total of arcs of lattices that are expanded together


def check_lstm(spec: LstmRescoreSpec) -> None:
    """Raise UserError if the model lacks a word of words.txt, or if the interpolation weight is unknown."""
    words, model = SymbolTable.read(spec.words), load_lm(spec.lstm)
    known = set(model.words)
    missing = [word for word in spoken_words(words) if word not in known]
    if missing:
        others = f" and {len(missing) - 1} more of its words are" if len(missing) > 1 else " is"
        raise UserError(
            f"{spec.lstm}: the word '{missing[0]}' of {spec.words}{others} not in this language model; "
            f"train one with this vocabulary with utils/train_lstm_lm.py"
        )
    log.info(
        f"{spec.lstm}: weight {expansion(spec.rescore, model, spec.lstm).weight:g}, interpolated with "
        f"{spec.new_lm}"
    )
    spec.rescore.torch_device()


def expansion(options: LstmRescoreOptions, model: LstmLm, name: Path) -> Expansion:
    """The options of rescoring with `model`, including the interpolation weight. Raises UserError if the
    weight is unknown."""
    weight = model.weight if options.lstm_weight is None else options.lstm_weight
    if weight is None:
        raise UserError(
            f"{name}: this language model was trained without --ngram, so it has no interpolation weight; "
            "give --lstm-weight"
        )
    return Expansion(options.ngram_order, weight, options.rescore_beam, options.acoustic_scale)


def rescore_shard(spec: LstmRescoreSpec, job: int) -> None:
    """Write lat.JOB.gz."""
    old, new = read_models(spec)
    model, words = load_lm(spec.lstm), SymbolTable.read(spec.words)
    model.network.to(spec.rescore.torch_device())
    options, ids = expansion(spec.rescore, model, spec.lstm), ids_in(model, words)

    def change(lattices: Sequence[CompactLattice]) -> list[CompactLattice]:
        return rescore_together(
            [add_lm(lattice, old, -1.0) for lattice in lattices], new, model, ids, options
        )

    rewrite_shard(spec, job, old, new, change, _MAX_ARCS)


def ids_in(model: LstmLm, words: SymbolTable) -> np.ndarray:
    """The model's id of each word of words.txt, 0 for symbols that are not words: int64 (maximum id + 1)."""
    ids = np.zeros(max(words.ids.values()) + 1, np.int64)
    places = {word: place for place, word in enumerate(model.words, 1)}
    for word, number in spoken_words(words).items():
        ids[number] = places[word]
    return ids
