"""Decoding of utterances of 1 to 10,000 frames with sequence networks, against exact searches, and errors for
too long utterances."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from lattice_corpus import NUM_PDFS, phone_loop
from steps_here import run_here
from training_corpora import DIM, make_alignments, make_data

from pyasr.base.errors import UserError
from pyasr.decode.lattices.lattice import best_path
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.openfst import Fst, write_fst
from pyasr.lang.grammars.ctc_graph import GRAPH, ctc_graph
from pyasr.lang.lang_dirs.subwords import BLANK, BOUNDARY, UNKNOWN, read_units, words_of
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.scales import ACOUSTIC_FACTOR

LENGTHS = {"a-0": 1, "a-1": 2, "a-2": 10_000, "a-3": 3, "a-4": 40}
SCALE, WORD_COST, STAY_COST, LEAVE_COST = 0.3, 1.1, 0.1, 0.5  # the last three of `phone_loop`
NETWORKS = {
    "BLSTM of whole utterances": (["tdnn splice=-1..1 dim=8", "blstm cells=6"], 0),
    "BLSTM of chunks": (["tdnn splice=-1..1 dim=8", "blstm cells=6"], 20),
    "LSTM whose state is carried": (["tdnn splice=-1..1 dim=8", "lstm cells=6 delay=3", "delay frames=2"], 0),
}
WORDS = [f"w{k}" for k in range(1, NUM_PDFS + 1)]


def save_network(path, lines: list[str], chunk: int, is_ctc: bool = False) -> None:
    """A random network; each output is the maximum in some frames. A CTC network has equal priors."""
    num_outputs, factor = (NUM_PDFS + 2, ACOUSTIC_FACTOR) if is_ctc else (NUM_PDFS, 1.0)
    network, random = LayeredNetwork(lines, DIM, num_outputs, chunk), torch.Generator().manual_seed(2)
    network.initialise(random)
    torch.nn.init.normal_(network.output.weight, std=8.0, generator=random)
    with torch.no_grad():
        network.output.bias.sub_(network(2 * torch.randn(1, 1000, DIM, generator=random)).mean((0, 1)))
    AcousticModel(network, torch.zeros(DIM), torch.ones(DIM), torch.zeros(num_outputs), factor).save(
        path / "final.nnet"
    )
    InputOptions(cmvn="none").save(path)


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """EXP/{data,model,hmm,ctc}: a model to copy, a graph with one phone per word, and a graph with one unit
    per word."""
    path = tmp_path_factory.mktemp("lengths")
    make_alignments(path / "model", make_data(path / "data", LENGTHS, NUM_PDFS))
    symbols = SymbolTable.of(["<eps>", *WORDS])
    for name in ("hmm", "ctc"):
        (path / name).mkdir()
        symbols.write(path / name / "words.txt")
    write_fst(path / "hmm/HCLG.fst", phone_loop())
    units = [BLANK, UNKNOWN, *(BOUNDARY + word for word in WORDS)]
    SymbolTable.of(units).write(path / "ctc/units.txt")
    SymbolTable.of(["<eps>", *units]).write(path / "ctc/phones.txt")
    loop = [0] * NUM_PDFS
    numbers = np.arange(1, NUM_PDFS + 1)
    write_fst(
        path / "ctc" / GRAPH,
        ctc_graph(Fst.from_arcs(1, 0, loop, numbers + 2, numbers, [WORD_COST] * NUM_PDFS, loop, {0: 0.0})),
    )
    return path


def best_words(costs: np.ndarray, enter: np.ndarray, first: np.ndarray, is_word) -> tuple[float, list[int]]:
    """(cost, words) of the best path by Viterbi's recursion; a word begins where the state changes. Costs:
    `costs` (T, S) of frames, `enter` (S, S) from state to state, `first` (S) into the first state."""
    best, back = first + costs[0], []
    for cost in costs[1:]:
        ways = best[:, None] + enter
        back.append(ways.argmin(0))
        best = ways.min(0) + cost
    path = [int(best.argmin())]
    for sources in reversed(back):
        path.append(int(sources[path[-1]]))
    path.reverse()
    words = [state for before, state in zip([None, *path], path) if state != before and is_word(state)]
    return float(best.min()), words


def hmm_reference(scorer, features) -> tuple[float, list[int]]:
    """Exact (cost, words) in `phone_loop`, where staying in a word is cheaper than entering it again."""
    enter = np.full((NUM_PDFS, NUM_PDFS), LEAVE_COST + WORD_COST)
    np.fill_diagonal(enter, STAY_COST)
    costs = -SCALE * scorer.log_likelihoods(features).astype(np.float64)
    cost, words = best_words(costs, enter, np.full(NUM_PDFS, WORD_COST), lambda state: True)
    return cost + LEAVE_COST, [word + 1 for word in words]


def ctc_reference(scorer, features) -> tuple[float, list[int]]:
    """Exact (cost, words) of the best alignment; the second unit, <unk>, is not in the graph."""
    size = NUM_PDFS + 2
    enter = np.full((size, size), WORD_COST)
    enter[:, 0], enter[:, 1] = 0.0, np.inf
    np.fill_diagonal(enter, 0.0)
    costs, first = -scorer.log_posteriors(features).astype(np.float64), np.full(size, WORD_COST)
    first[0], first[1] = 0.0, np.inf
    cost, words = best_words(costs, enter, first, lambda state: state > 0)
    return cost, [word - 1 for word in words]


def check(exp, model, out, reference, scale: float) -> None:
    """All frames were decoded, and words and costs of the lattices at the acoustic scale are those of the
    reference."""
    scorer, reader = load_scorer(model), FeatureReader(exp / "data", InputOptions(cmvn="none"))
    found = {key: best_path(lattice, scale) for key, lattice in read_either(out / "lat.1.gz")}
    assert found.keys() == LENGTHS.keys()
    for key, path in found.items():
        cost, words = reference(scorer, reader[key])
        assert path.words == words, key
        assert path.graph_cost + scale * path.acoustic_cost == pytest.approx(cost, rel=1e-4, abs=0.02), key
    assert len(found["a-2"].words) > 100 and len(set(found["a-2"].words)) > 2
    totals = json.loads((out / "totals.json").read_text())
    assert (
        totals["num_frames"] == sum(LENGTHS.values()) and not totals["not_final"] and not totals["cut_short"]
    )


def copy_of_model(exp, path):
    path.mkdir()
    for name in ("final.mdl", "tree"):
        (path / name).symlink_to(exp / "model" / name)
    return path


@pytest.mark.parametrize("lines, chunk", NETWORKS.values(), ids=list(NETWORKS))
def test_hmm_graph_search_equals_exact_search(exp, tmp_path, lines, chunk):
    model = copy_of_model(exp, tmp_path / "model")
    save_network(model, lines, chunk)
    run_here(
        "decode.py",
        "--nj",
        1,
        "--acoustic-scale",
        SCALE,
        "--lattice-beam",
        1,
        "--model-dir",
        model,
        exp / "hmm",
        exp / "data",
        tmp_path / "out",
    )
    check(exp, model, tmp_path / "out", hmm_reference, SCALE)


@pytest.mark.parametrize("lines, chunk", NETWORKS.values(), ids=list(NETWORKS))
def test_ctc_graph_search_equals_exact_search(exp, tmp_path, lines, chunk):
    save_network(tmp_path, lines, chunk, is_ctc=True)
    run_here(
        "decode_ctc.py",
        "--nj",
        1,
        "--search",
        "wfst",
        "--lattice-beam",
        1,
        "--graph-dir",
        exp / "ctc",
        "--units-dir",
        exp / "ctc",
        exp / "data",
        tmp_path,
        tmp_path / "out",
    )
    check(exp, tmp_path, tmp_path / "out", ctc_reference, 0.1)


def test_greedy_and_prefix_search_equal_exact_search(exp, tmp_path):
    """The greedy path has the best unit of each frame; prefix search sums over this and other paths."""
    save_network(tmp_path, *NETWORKS["BLSTM of whole utterances"], is_ctc=True)
    for search in ("greedy", "prefix"):
        run_here(
            "decode_ctc.py",
            "--nj",
            1,
            "--search",
            search,
            "--units-dir",
            exp / "ctc",
            exp / "data",
            tmp_path,
            tmp_path / search,
        )
    best = [
        {
            row[0]: row
            for row in map(str.split, reversed((tmp_path / search / "nbest.1.txt").read_text().splitlines()))
        }
        for search in ("greedy", "prefix")
    ]
    scorer = load_scorer(tmp_path)
    reader = FeatureReader(exp / "data", InputOptions(cmvn="none"))
    units = read_units(exp / "ctc")
    for key in LENGTHS:
        posteriors = scorer.log_posteriors(reader[key]).astype(np.float64)
        labels = posteriors.argmax(1)
        said = [label for before, label in zip([0, *labels], labels) if label not in (0, before)]
        assert best[0][key][3:] == words_of(units[label] for label in said)
        assert float(best[0][key][1]) == pytest.approx(-posteriors.max(1).sum(), rel=1e-5, abs=1e-4)
        assert float(best[1][key][1]) < float(best[0][key][1]) + 1e-4


def fails_beyond(most: int, monkeypatch) -> None:
    """Make sequence networks allocate more memory than any host has for utterances longer than `most`
    frames."""
    compute = LayeredNetwork.log_posteriors
    monkeypatch.setattr(
        LayeredNetwork,
        "log_posteriors",
        lambda self, x: compute(self, x) if len(x) <= most else torch.empty(10**15),
    )


TOO_LONG = (
    "^a-2: memory is not enough for its 10000 frames: .*allocate.*; cut it into shorter utterances, "
    "or leave it out$"
)


@pytest.mark.parametrize("search", ["hmm", "greedy", "prefix", "wfst"])
def test_utterance_too_long_for_memory_is_named(exp, tmp_path, monkeypatch, search):
    """No complete output file remains."""
    model = copy_of_model(exp, tmp_path / "model")
    save_network(model, *NETWORKS["BLSTM of whole utterances"], is_ctc=search != "hmm")
    fails_beyond(5000, monkeypatch)
    with pytest.raises(UserError, match=TOO_LONG):
        if search == "hmm":
            run_here(
                "decode.py",
                "--nj",
                1,
                "--num-threads",
                2,
                "--model-dir",
                model,
                exp / "hmm",
                exp / "data",
                tmp_path / "out",
            )
        else:
            graph = ["--graph-dir", exp / "ctc"] if search == "wfst" else []
            run_here(
                "decode_ctc.py",
                "--nj",
                1,
                "--search",
                search,
                *graph,
                "--units-dir",
                exp / "ctc",
                exp / "data",
                model,
                tmp_path / "out",
            )
    left = {path.name for path in (tmp_path / "out.tmp").iterdir()}
    assert not (tmp_path / "out").exists() and not left & {
        "lat.1.gz",
        "hyp.1.txt",
        "nbest.1.txt",
        "shard.1.json",
        "totals.json",
    }
