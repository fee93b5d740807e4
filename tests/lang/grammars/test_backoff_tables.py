"""Tables of back-off models built in pieces, against those of the transducer G; their memory, and memory
mapping."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pyasr.base.errors import UserError
from pyasr.io.mapped_files import mapped
from pyasr.io.openfst import write_fst
from pyasr.lang.grammars.backoff_lm import BackoffLm, tables_of_fst
from pyasr.lang.grammars.backoff_tables import tables_of_arpa
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams import arpa_reader
from pyasr.lang.ngrams.arpa import Arpa, NgramTable, read_arpa, write_arpa
from pyasr.lang.symbols import SymbolTable

SPOKEN = [f"w{i}" for i in range(5)]
WORDS = SymbolTable.of(["<eps>", *reversed(SPOKEN), "#0", "<s>", "</s>"])


def write_random(path, seed: int, order: int, num: int, words=(*SPOKEN, "strange")) -> None:
    """A random model with n-grams in random order: unlisted histories, histories without continuation,
    sentence marks and words without id at any place."""
    rng, names = np.random.default_rng(seed), ["<s>", "</s>", *words]
    tables = []
    for n in range(1, order + 1):
        ids = (
            np.unique(rng.integers(0, len(names), (num, n)), axis=0)
            if n > 1
            else np.arange(len(names))[:, None]
        )
        ids = rng.permutation(ids).astype(np.int32) if n > 1 else ids.astype(np.int32)
        backoff = rng.standard_normal(len(ids)) * (n < order)
        tables.append(
            NgramTable(ids, np.where(rng.random(len(ids)) < 0.1, -99.0, -5 * rng.random(len(ids))), backoff)
        )
    write_arpa(path, Arpa(names, tables))


def check_as_transducer(path, words: SymbolTable) -> int:
    """Check bit-identity with the transducer; returns the number of states."""
    found = tables_of_arpa(path, words)
    expected = tables_of_fst(arpa_to_fst(read_arpa(path), words)[0], words["#0"], "G")
    assert found.values == expected.values and found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype and found.arrays[name].tobytes() == array.tobytes(), (
            name
        )
    return len(found.arrays["finals"])


@pytest.mark.parametrize("order", range(1, 8))
@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_tables_equal_transducer(tmp_path, monkeypatch, order, piece_bytes):
    monkeypatch.setattr(arpa_reader, "_PIECE_BYTES", piece_bytes)
    for seed in range(6):
        write_random(tmp_path / "lm.arpa.gz", seed, order, 60)
        check_as_transducer(tmp_path / "lm.arpa.gz", WORDS)


def test_costs_of_skipped_states_equal_transducer(tmp_path):
    """Each longer history only backs off for this word, so five states are skipped at once."""
    names = ["<s>", "</s>", "a", "b"]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        ids = [np.arange(4)[:, None], *(np.full((1, n), 2) for n in range(2, 8))]
        columns = [
            (row.astype(np.int32), -rng.random(len(row)), rng.standard_normal(len(row)) * (len(row[0]) < 7))
            for row in ids
        ]
        write_arpa(tmp_path / "lm.arpa", Arpa(names, [NgramTable(*column) for column in columns]))
        assert (
            check_as_transducer(
                tmp_path / "lm.arpa", SymbolTable.of(["<eps>", "a", "b", "#0", "<s>", "</s>"])
            )
            < 10
        )


GOOD = ["\\data\\", "ngram 1=4", "ngram 2=4", "", "\\1-grams:", "-99 <s> -0.3", "-0.7 </s>", "-0.5 a -0.25",
        "-0.1 b", "", "\\2-grams:", "-0.2 <s> a", "-0.1 a b", "-0.3 b </s>", "-0.4 b a", "", "\\end\\",
        ""]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (15, "-0.1 a b", r":15: the 2-gram 'a b' occurs twice, first on line 13; remove one"),
        (12, "-0.1 b </s>", r":14: the 2-gram 'b </s>' occurs twice, first on line 12; remove one"),
        (9, "-0.1 a", r":9: the unigram 'a' occurs twice, first on line 8; remove one"),
        (13, "-0.1 a c", r":13: a word without a unigram in the 2-gram '-0.1 a c'"),
        (13, "0.1 a b", r":13: the 2-gram number 2 has the log10 probability 0.1, greater than 0"),
        (13, "-0.1 a b -0.2", r":13: the wrong number of columns"),
        (13, "", r":11: 3 2-grams, but the header promises 4"),
        (3, "ngram 2=123456789012345", r":11: 4 2-grams, but the header promises 123456789012345"),
        (17, "", r":18: no \\end\\ after the 2-grams"),
        (13, "-0.1 a \xff", r":13: not UTF-8"),
    ],
)
def test_invalid_file_is_reported_with_line(tmp_path, monkeypatch, line, text, message):
    monkeypatch.setattr(arpa_reader, "_PIECE_BYTES", 20)
    lines = [*GOOD[: line - 1], text, *GOOD[line:]]
    (tmp_path / "lm.arpa").write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(UserError, match="lm.arpa" + message):
        BackoffLm.read(tmp_path / "lm.arpa", SymbolTable.of(["<eps>", "a", "b", "#0", "<s>", "</s>"]))


def test_memory_of_creating_tables(tmp_path, monkeypatch):
    """At most 1.5 times the tables, in addition to a piece of the file; at most 40 bytes per n-gram."""
    rng, names = np.random.default_rng(0), [f"w{i}" for i in range(150)]
    pairs = np.stack(np.divmod(np.arange(150**2), 150), 1)
    ids = [np.arange(152)[:, None], pairs + 2, np.unique(rng.integers(2, 152, (80_000, 3)), axis=0)]
    tables = [NgramTable(row.astype(np.int32), -rng.random(len(row)), np.zeros(len(row))) for row in ids]
    write_arpa(tmp_path / "lm.arpa", Arpa(["<s>", "</s>", *names], tables))
    words = SymbolTable.of(["<eps>", *names, "#0", "<s>", "</s>"])
    BackoffLm.read(tmp_path / "lm.arpa", words)  # compiles
    monkeypatch.setattr(arpa_reader, "_PIECE_BYTES", 1 << 14)
    tracemalloc.start()
    try:
        tables = tables_of_arpa(tmp_path / "lm.arpa", words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size, num_ngrams = sum(array.nbytes for array in tables.arrays.values()), sum(map(len, ids))
    assert size < 40 * num_ngrams and peak < 1.5 * size + 400_000


@pytest.mark.parametrize("name", ["lm.arpa", "G.fst"])
def test_tables_of_large_files_are_mapped(tmp_path, monkeypatch, name):
    write_random(tmp_path / "lm.arpa", 0, 3, 60)
    write_fst(tmp_path / "G.fst", arpa_to_fst(read_arpa(tmp_path / "lm.arpa"), WORDS)[0])
    expected = BackoffLm.read(tmp_path / name, WORDS).cost([1, 2, 3])
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    BackoffLm.read(tmp_path / name, WORDS)
    assert len(list(tmp_path.glob(f".{name}.ngrams.*"))) == 1
    monkeypatch.setattr("pyasr.lang.grammars.backoff_lm.tables_of_arpa", None)
    monkeypatch.setattr("pyasr.lang.grammars.backoff_lm.read_fst", None)
    found = BackoffLm.read(tmp_path / name, WORDS, oov_cost=3.0)
    assert (
        found.cost([1, 2, 3]) == expected
        and found.tables.oov_cost == 3.0
        and found.known.tolist() == [1, 2, 3, 4, 5]
    )
    monkeypatch.undo()
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    other = SymbolTable.of(["<eps>", *SPOKEN, "more", "#0", "<s>", "</s>"])
    assert BackoffLm.read(tmp_path / name, other).missing(np.array([6])).tolist() == [6]
