"""steps/lm_rescore.py, get_nbest.py and oracle_wer.py on small decode directories."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from rescoring_toys import SPOKEN, UTTERANCES, WORDS, make_experiment, make_lang, read_all
from steps_here import run_here
from toy_language import random_ngrams, sentence_log10, write_arpa_text
from word_graphs import compact_paths

from pyasr.base.errors import UserError
from pyasr.data.tables.datadir import write_data_dir
from pyasr.decode.lattice_jobs.rescore_dir import (
    RescoreOptions,
    RescoreSpec,
    check_models,
    rescore_shard,
    rewrite_shard,
)
from pyasr.decode.lattices.compact_lattice import compact_from_arcs
from pyasr.decode.lattices.lattice_io import read_compact_lattices, write_lattices
from pyasr.io.int_vectors import read_int_vectors
from pyasr.io.mapped_files import mapped
from pyasr.io.openfst import write_fst
from pyasr.io.text_tables import read_table
from pyasr.lang.grammars.backoff_lm import BackoffLm
from pyasr.lang.grammars.grammar import arpa_to_fst
from pyasr.lang.ngrams.arpa import read_arpa
from pyasr.lang.symbols import SymbolTable


@pytest.fixture
def exp(tmp_path):
    return tmp_path, make_experiment(tmp_path)


@pytest.mark.parametrize("new", ["lang4", "lang4/arpa"])
def test_rescored_lattices_have_costs_of_new_model_only(exp, new, capsys):
    root, bare = exp
    run_here(
        "lm_rescore.py", "--nj", 2, root / "lang", root / new, root / "data", root / "decode", root / "new"
    )
    assert "not in it" not in capsys.readouterr().out
    assert (root / "new/words.txt").read_text() == (root / "lang/words.txt").read_text()
    found, ngrams = read_all(root / "new"), random_ngrams(1, SPOKEN, (0, 12, 20, 30))
    assert found.keys() == bare.keys() and found["b-3"].empty
    for utt, lattice in found.items():
        for (_, words, graph, acoustic), (_, _, before, same) in zip(
            compact_paths(lattice), compact_paths(bare[utt])
        ):
            expected = before - math.log(10) * sentence_log10(ngrams, [WORDS.symbol(word) for word in words])
            assert (graph, acoustic) == (pytest.approx(expected, abs=1e-3), pytest.approx(same, abs=1e-3))


def test_words_missing_in_new_model_are_named(exp, capsys):
    root, _ = exp
    write_arpa_text(root / "small.arpa", random_ngrams(3, SPOKEN[:-1], (0, 8)))
    run_here(
        "lm_rescore.py",
        "--nj",
        1,
        "--oov-cost",
        9,
        root / "lang",
        root / "small.arpa",
        root / "data",
        root / "decode",
        root / "new",
    )
    output = capsys.readouterr().out
    assert "1 word(s) of" in output and "(w3); each costs --oov-cost 9 in addition to the back-off" in output


def test_rescoring_without_effect_gives_warning(exp, caplog):
    root, _ = exp
    for new in ("lang", "lang4"):
        caplog.clear()
        run_here(
            "lm_rescore.py",
            "--nj",
            2,
            root / "lang",
            root / new,
            root / "data",
            root / "decode",
            root / f"new_{new}",
        )
        assert ("identical to the language model of the lattices" in caplog.text) == (new == "lang")


def test_nbest_lists_with_single_paths_give_warning(exp, caplog):
    root, _ = exp
    flags = ("--nj", 1, "--lmwt", 10, root / "data", root / "lang")
    run_here("get_nbest.py", *flags, root / "decode", root / "several")
    run_here("get_nbest.py", "--num-best", 1, *flags, root / "decode", root / "one")
    assert "every list holds one path" not in caplog.text
    strings, none = (np.arange(2), np.array([1], np.int32)), (np.zeros(3, np.int64), np.zeros(0, np.int32))
    lattice = compact_from_arcs(
        0, [0], [1], [1], [0.5], [4.0], strings, [np.inf, 0], [np.inf, 0], final_strings=none
    )
    (root / "decode/num_jobs").write_text("1\n")
    write_lattices(root / "decode/lat.1.gz", [("a-1", lattice)])
    run_here("get_nbest.py", *flags, root / "decode", root / "single")
    assert (
        "every list has one path, because the lattices have no other; decode with a larger --lattice-beam"
        in caplog.text
    )


def test_rescored_lattices_are_not_rescored_again(exp):
    """Lattices that were rescored no longer contain the costs of the old model."""
    root, _ = exp
    run_here(
        "lm_rescore.py",
        "--nj",
        2,
        root / "lang",
        root / "lang4",
        root / "data",
        root / "decode",
        root / "new",
    )
    for old, new in (("lang", "lang4"), ("lang4", "lang")):
        report = (
            "new: rescoring has replaced the costs of the decoding graph .* by those of .*/lang4/G.fst; "
            "rescore the original lattices"
        )
        with pytest.raises(UserError, match=report):
            run_here(
                "lm_rescore.py",
                "--nj",
                2,
                root / old,
                root / new,
                root / "data",
                root / "new",
                root / "again",
            )
        assert not (root / "again").exists()


def spoil_words(root: Path) -> None:
    write_arpa_text(root / "lang4/arpa", random_ngrams(3, ["x", "y"], (0, 2)))
    (root / "lang4/G.fst").unlink()


@pytest.mark.parametrize(
    ("spoil", "new", "message"),
    [
        (
            lambda root: SymbolTable.of(["<eps>", "w1", "w0", *WORDS.symbols[3:]]).write(
                root / "lang4/words.txt"
            ),
            "lang4",
            "the word 'w0' does not have the same id as in",
        ),
        (
            lambda root: SymbolTable.of(["<eps>", "w1", "w0"]).write(root / "decode/words.txt"),
            "lang4",
            (
                "decode/words.txt: the word 'w0' does not have the same id as in .*lang/words.txt .2 and 1.; "
                "give the lang directory"
            ),
        ),
        (spoil_words, "lang4/arpa", "contains none of the words of"),
        (lambda root: write_data_dir(root / "data", {"utt2spk": {"a-1": "a"}}), "lang4", "is not in"),
        (lambda root: make_lang(root / "lang" / "x", 0, 1), "nowhere", "nowhere: no such file"),
        (lambda root: (root / "lang4/G.fst").unlink(), "lang4", "neither G.fst nor lm.arpa.gz in it"),
        (
            lambda root: (root / "decode/num_jobs").write_text("many\n"),
            "lang4",
            "decode/num_jobs: missing or not a number; decode with steps/decode.py",
        ),
        (
            lambda root: (root / "decode/num_jobs").write_text("9999999999\n"),
            "lang4",
            "decode/num_jobs: not a number from 1 to 100000; decode with",
        ),
        (
            lambda root: write_fst(root / "lang/G.fst", poor_grammar(root)),
            "lang4",
            "whose costs the lattice should contain",
        ),
    ],
)
def test_invalid_input_of_rescoring_gives_one_sentence(exp, spoil, new, message):
    root, _ = exp
    spoil(root)
    with pytest.raises(UserError, match=message):
        run_here(
            "lm_rescore.py",
            "--nj",
            2,
            root / "lang",
            root / new,
            root / "data",
            root / "decode",
            root / "new",
        )
    assert not (root / "new").exists()


def poor_grammar(root: Path):
    """A model of only two of the words."""
    write_arpa_text(root / "poor", random_ngrams(3, SPOKEN[:2], (0, 2)))
    return arpa_to_fst(read_arpa(root / "poor"), WORDS)[0]


def test_nbest_lists_are_written(exp, capsys):
    root, _ = exp
    run_here(
        "get_nbest.py",
        "--nj",
        2,
        "--num-best",
        3,
        "--lmwt",
        10,
        root / "data",
        root / "lang",
        root / "decode",
        root / "nbest",
    )
    assert "at LM weight 10, word insertion penalty 0.0" in capsys.readouterr().out
    text, lm, ac = (
        dict(read_table(root / "nbest" / name).items()) for name in ("text", "lm_cost", "ac_cost")
    )
    alignments = read_int_vectors(root / "nbest/ali.1.gz") | read_int_vectors(root / "nbest/ali.2.gz")
    assert text.keys() == lm.keys() == ac.keys() == alignments.keys()
    for utt, lattice in read_all(root / "decode").items():
        best: dict = {}
        for tids, words, graph, acoustic in compact_paths(lattice):
            best[words] = min(best.get(words, (np.inf,)), (graph + acoustic / 10, graph, acoustic, tids))
        for rank, (words, (_, graph, acoustic, tids)) in enumerate(
            sorted(best.items(), key=lambda item: item[1])[:3], 1
        ):
            key = f"{utt}-{rank}"
            assert text[key].split() == [WORDS.symbol(word) for word in words] and alignments[
                key
            ].tolist() == list(tids)
            assert (float(lm[key]), float(ac[key])) == (
                pytest.approx(graph, abs=1e-3),
                pytest.approx(acoustic, abs=1e-2),
            )
        assert f"{utt}-{min(len(best), 3) + 1}" not in text


def test_nbest_costs_of_long_recording_keep_precision(exp):
    root, _ = exp
    strings, none = (np.arange(3), np.array([1, 2], np.int32)), (np.zeros(3, np.int64), np.zeros(0, np.int32))
    lattice = compact_from_arcs(
        0,
        [0, 0],
        [1, 1],
        [1, 2],
        [0.5, 0.25],
        [1234567.5, 1234568.125],
        strings,
        [np.inf, 0],
        [np.inf, 0],
        final_strings=none,
    )
    (root / "decode/num_jobs").write_text("1\n")
    write_lattices(root / "decode/lat.1.gz", [("a-1", lattice)])
    run_here(
        "get_nbest.py", "--nj", 1, "--lmwt", 10, root / "data", root / "lang", root / "decode", root / "nbest"
    )
    assert read_table(root / "nbest/ac_cost") == {"a-1-1": "1234568.125", "a-1-2": "1234567.5"}


def test_nbest_lists_require_lm_weight_or_scores(exp):
    root, _ = exp
    with pytest.raises(UserError, match="score that directory first with steps/score.py, or give --lmwt"):
        run_here("get_nbest.py", root / "data", root / "lang", root / "decode", root / "nbest")


def test_oracle_wer_is_computed(exp, capsys):
    """Case is folded as in scoring; empty lattices delete their words."""
    root, _ = exp
    run_here("oracle_wer.py", "--nj", 2, root / "data", root / "lang", root / "decode")
    output = capsys.readouterr().out
    assert "%WER" in output and "(oracle) wer|case:lower" in output
    hypotheses = read_table(root / "decode/oracle/hyp.txt")
    assert hypotheses.keys() == set(UTTERANCES) and hypotheses["b-3"] == ""
    for utt, lattice in read_all(root / "decode").items():
        if not lattice.empty:
            assert tuple(WORDS[word] for word in hypotheses[utt].split()) in {
                words for _, words, _, _ in compact_paths(lattice)
            }
    run_here("oracle_wer.py", "--nj", 2, root / "data", root / "lang", root / "decode")
    assert "up to date" in capsys.readouterr().out


def test_oracle_requires_decoded_data_directory(exp):
    root, _ = exp
    write_data_dir(root / "data", {"utt2spk": {"a-1": "a"}})
    with pytest.raises(UserError, match="give the data directory that was decoded"):
        run_here("oracle_wer.py", root / "data", root / "lang", root / "decode")


def test_memory_per_lattice_does_not_grow_with_vocabulary(exp):
    """The vocabulary is not copied or sorted for each lattice, which would take longer than the rescoring."""
    root, bare = exp
    size, first = 60_000, UTTERANCES[0]
    SymbolTable.of(["<eps>", *SPOKEN, *(f"x{i}" for i in range(size)), "#0", "<s>", "</s>"]).write(
        root / "many.txt"
    )
    (root / "decode/num_jobs").write_text("1\n")
    write_lattices(root / "decode/lat.1.gz", ((utt, bare[first]) for utt in UTTERANCES))
    (root / "out").mkdir()
    spec = RescoreSpec(
        root / "decode",
        root / "data",
        root / "many.txt",
        root / "lang",
        root / "lang4",
        root / "out",
        1,
        RescoreOptions(),
    )
    every = BackoffLm(BackoffLm.read(root / "lang", WORDS).tables, np.arange(1, size), "every word")
    peaks = []

    def change(lattices):
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.start()
        tracemalloc.reset_peak()
        return list(lattices)

    try:
        rewrite_shard(spec, 1, every, every, change)
    finally:
        tracemalloc.stop()
    assert len(peaks) == len(UTTERANCES) and max(peaks[1:-1]) < size


def test_tables_of_large_models_are_shared_by_jobs(exp, monkeypatch):
    """Tables are next to the models or, if that directory cannot be written, in the output until the step
    ends."""
    root, _ = exp
    models = root / "lang/G.fst", root / "lang4/arpa"
    run_here(
        "lm_rescore.py",
        "--nj",
        1,
        root / "lang",
        models[1],
        root / "data",
        root / "decode",
        root / "expected",
    )
    monkeypatch.setattr(mapped, "MIN_BYTES", 0)
    for places in (["lang", "lang4"], ["out/.tables"] * 2):
        (root / "out").mkdir(exist_ok=True)
        spec = RescoreSpec(
            root / "decode",
            root / "data",
            root / "lang/words.txt",
            *models,
            root / "out",
            3,
            RescoreOptions(),
        )
        check_models(spec)
        rescore_shard(spec, 1)
        tables = [
            next((root / place).glob(f".{model.name}*.ngrams.*")) for place, model in zip(places, models)
        ]
        with monkeypatch.context() as patched:
            patched.setattr("pyasr.lang.grammars.backoff_lm.tables_of_arpa", None)
            patched.setattr("pyasr.lang.grammars.backoff_lm.read_fst", None)
            for job in (2, 3):
                rescore_shard(spec, job)
        found = {
            utt: lattice
            for job in (1, 2, 3)
            for utt, lattice in read_compact_lattices(root / f"out/lat.{job}.gz")
        }
        expected = read_all(root / "expected")
        assert found.keys() == expected.keys()
        assert all(
            found[utt].graph_costs.tobytes() == expected[utt].graph_costs.tobytes() for utt in expected
        )
        spec.end()
        assert not (root / "out/.tables").exists()
        for table in tables[: 2 * (places[0] == "lang")]:
            table.unlink()
            table.with_name(f"{table.name}.lock").mkdir()  # so that root cannot write there either
