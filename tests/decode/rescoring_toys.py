"""A small decode directory for rescoring with another language model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from toy_language import random_ngrams, write_arpa_text
from word_graphs import random_compact

from pyasr.data.tables.datadir import write_data_dir
from pyasr.decode.lattices.compact_lattice import empty_compact
from pyasr.decode.lattices.lattice_io import read_compact_lattices, write_lattices
from pyasr.decode.rescoring.lm_rescore import add_lm
from pyasr.io.openfst import write_fst
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable

SPOKEN = [f"w{i}" for i in range(4)]
WORDS = SymbolTable.of(["<eps>", *SPOKEN, "#0", "<s>", "</s>"])
UTTERANCES = ["a-1", "a-2", "b-1", "b-2", "b-3"]


def make_lang(path: Path, seed: int, order: int, words: SymbolTable = WORDS) -> list:
    """Write a lang directory with a random G. Returns its n-grams."""
    path.mkdir()
    words.write(path / "words.txt")
    ngrams = random_ngrams(seed, SPOKEN, (0, 12, 20, 30)[:order])
    write_arpa_text(path / "arpa", ngrams)
    write_fst(path / "G.fst", arpa_to_fst(read_arpa(path / "arpa"), words)[0])
    return ngrams


def make_experiment(tmp_path: Path) -> dict:
    """Write lattices with the costs of the bigram lang/G.fst, and lang4 for rescoring. Returns the lattices
    without these costs."""
    make_lang(tmp_path / "lang", 0, 2)
    make_lang(tmp_path / "lang4", 1, 4)
    (tmp_path / "data").mkdir()
    text = dict.fromkeys(UTTERANCES, "w0 W1 w2")
    write_data_dir(tmp_path / "data", {"text": text, "utt2spk": {utt: utt[0] for utt in UTTERANCES}})
    rng, old = np.random.default_rng(0), BackoffLm.read(tmp_path / "lang", WORDS, best=True)
    bare = {utt: random_compact(rng, num_states=7, num_words=len(SPOKEN)) for utt in UTTERANCES[:-1]} | {
        "b-3": empty_compact()
    }
    (tmp_path / "decode").mkdir()
    (tmp_path / "decode/num_jobs").write_text("3\n")
    for job in (1, 2, 3):
        write_lattices(
            tmp_path / f"decode/lat.{job}.gz",
            [(utt, add_lm(bare[utt], old, 1.0)) for utt in UTTERANCES[job - 1 :: 3]],
        )
    return bare


def read_all(decode: Path) -> dict:
    num_jobs = int((decode / "num_jobs").read_text())
    return {
        utt: lattice
        for job in range(1, num_jobs + 1)
        for utt, lattice in read_compact_lattices(decode / f"lat.{job}.gz")
    }
