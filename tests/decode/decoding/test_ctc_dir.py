"""From transcripts to word errors with synthetic CTC posteriors: units, lang directory, graph, three
searches, scoring."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from steps_here import run_here
from toy_language import random_ngrams, write_arpa_text

from pyasr.base.cli.options import save
from pyasr.base.errors import UserError
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.decode.ctc.ctc_hypotheses import CtcHypothesis
from pyasr.decode.ctc.ctc_lists import list_lattice
from pyasr.decode.ctc.ctc_prefix import PrefixDecoder
from pyasr.decode.decoding.ctc_dir import (
    GREEDY,
    PREFIX,
    SEARCHES,
    WFST,
    CtcDecodeSpec,
    decode_shard,
    load_network,
)
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import best_path, sweep
from pyasr.decode.lattices.lattice_io import read_either
from pyasr.decode.lattices.nbest import n_best
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import OPTIONS_FILE, FbankOptions, MfccOptions
from pyasr.feats.origin import keep_origin
from pyasr.hmm.model.model_file import SUBSAMPLING, write_subsampling
from pyasr.io.ark import ArkWriter, load_matrix, read_scp
from pyasr.io.text_tables import read_table, write_table
from pyasr.lang.lang_dirs.subwords import BOUNDARY, Subwords
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.nn.scales import ACOUSTIC_FACTOR

TEXT = {
    "a-1": "the cat sat on the mat",
    "a-2": "a bat",
    "b-1": "the rat and the cat",
    "b-2": "on a mat a cat sat",
    "b-3": "cat cat cat",
}


def spoken(units: np.ndarray, num_units: int, rng) -> np.ndarray:
    """Log posteriors, float32 (T, num_units), for units of one to three frames with blanks between most of
    them."""
    path = [0]
    for unit in units:
        path += [0] * int(unit == path[-1] or rng.integers(0, 2)) + [unit] * int(rng.integers(1, 4))
    logits = 6 * np.eye(num_units)[path] + rng.standard_normal((len(path), num_units))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """Data, units, language model, lang directory and graph; log posteriors in a table."""
    root, rng = tmp_path_factory.mktemp("ctc"), np.random.default_rng(0)
    (root / "data").mkdir()
    write_table(root / "data/text", TEXT)
    write_table(root / "data/utt2spk", {utt: utt[0] for utt in TEXT})
    run_here("train_subwords.py", "--num-units", 17, root / "data", root / "units", folder="utils")
    run_here(
        "train_lm.py", "--order", 2, root / "data/text", root / "units/words.txt", root / "lm", folder="utils"
    )
    run_here(
        "prepare_ctc_lang.py",
        "--num-spellings",
        2,
        root / "units",
        root / "units/words.txt",
        root / "lang",
        folder="utils",
    )
    run_here("make_grammar.py", root / "lang", root / "lm/lm.arpa.gz", root / "lang_test", folder="utils")
    run_here("make_ctc_graph.py", root / "lang_test", root / "graph", folder="utils")
    subwords = Subwords.read(root / "units")
    with ArkWriter(root / "post.ark", root / "post.scp") as writer:
        for utt, text in TEXT.items():
            writer.write(utt, spoken(subwords.encode(text), len(subwords), rng))
    return root


def decode(exp, name: str, *options) -> None:
    run_here(
        "decode_ctc.py",
        "--nj",
        2,
        "--units-dir",
        exp / "units",
        "--posteriors",
        exp / "post.scp",
        *options,
        exp / "data",
        exp,
        exp / name,
    )


def hypotheses(path) -> dict[str, str]:
    return {utt: words for job in (1, 2) for utt, words in read_table(path / f"hyp.{job}.txt").items()}


def wer(exp, name: str, *, mbr: str = "false", lang: str = "") -> float:
    run_here(
        "score.py",
        "--nj",
        1,
        "--min-lmwt",
        9,
        "--max-lmwt",
        11,
        "--decode-mbr",
        mbr,
        exp / "data",
        exp / (lang or name),
        exp / name,
    )
    folder = "scoring_mbr" if mbr == "true" else "scoring"
    return json.loads((exp / name / folder / "summary.json").read_text())["chosen"]["wer"]


def test_greedy_search_recovers_texts(exp):
    decode(exp, "greedy", "--search", "greedy")
    assert hypotheses(exp / "greedy") == TEXT and wer(exp, "greedy") == 0


def test_prefix_search_with_language_model_writes_nbest_lists_and_lattices(exp):
    decode(exp, "prefix", "--search", "prefix", "--lm", exp / "lm/lm.arpa.gz", "--num-best", 5)
    assert (
        hypotheses(exp / "prefix") == TEXT and wer(exp, "prefix") == 0 and wer(exp, "prefix", mbr="true") == 0
    )
    rows = [line.split() for line in (exp / "prefix/nbest.1.txt").read_text().splitlines()]
    words = SymbolTable.read(exp / "prefix/words.txt")
    for utt, lattice in read_either(exp / "prefix/lat.1.gz"):
        mine = [row for row in rows if row[0] == utt]
        assert isinstance(lattice, CompactLattice) and 1 < len(mine) <= 5
        paths = {tuple(words.symbol(word) for word in path.words): path for path in n_best(lattice, 10, 0.1)}
        assert paths.keys() == {tuple(row[3:]) for row in mine}
        for _, ctc_cost, lm_cost, *text in mine:
            path = paths[tuple(text)]
            assert (path.acoustic_cost, path.graph_cost) == pytest.approx(
                (10 * float(ctc_cost), float(lm_cost)), abs=0.02
            )


def test_threads_give_same_nbest_lists(exp, tmp_path, monkeypatch):
    """Two utterances are decoded at once, with the result of a single thread."""
    together, search, calls = threading.Barrier(2, timeout=30), PrefixDecoder.decode, itertools.count()

    def search_together(self, log_posteriors, utt):
        if next(calls) < 2:
            together.wait()
        return search(self, log_posteriors, utt)

    for num_threads in (1, 2):
        (tmp_path / str(num_threads)).mkdir()
        decode_shard(
            CtcDecodeSpec(
                PREFIX,
                exp / "data",
                exp,
                exp / "units",
                tmp_path / str(num_threads),
                1,
                num_threads,
                exp / "post.scp",
            ),
            1,
        )
        monkeypatch.setattr(PrefixDecoder, "decode", search_together)
    assert (tmp_path / "1/nbest.1.txt").read_text() == (tmp_path / "2/nbest.1.txt").read_text() != ""


def test_graph_search_with_scoring_rescoring_and_nbest_lists(exp):
    decode(exp, "wfst", "--search", "wfst", "--graph-dir", exp / "graph")
    assert hypotheses(exp / "wfst") == TEXT and wer(exp, "wfst") == 0 and wer(exp, "wfst", mbr="true") == 0
    assert json.loads((exp / "wfst/totals.json").read_text())["not_final"] == []
    run_here(
        "lm_rescore.py",
        "--nj",
        1,
        exp / "lang_test",
        exp / "lm/lm.arpa.gz",
        exp / "data",
        exp / "wfst",
        exp / "wfst_rescored",
    )
    assert wer(exp, "wfst_rescored", lang="lang_test") == 0
    run_here(
        "get_nbest.py",
        "--nj",
        1,
        "--num-best",
        3,
        "--lmwt",
        10,
        exp / "data",
        exp / "lang_test",
        exp / "wfst_rescored",
        exp / "nbest",
    )
    listed = read_table(exp / "nbest/text")
    assert {utt: listed[f"{utt}-1"] for utt in TEXT} == TEXT


def test_words_have_times_and_confidences(exp):
    """Times are those of the most likely unit of each frame: a word extends from its first unit's first frame
    to its last unit's end."""
    decode(exp, "timed", "--search", "wfst", "--graph-dir", exp / "graph")
    run_here(
        "get_ctm.py", "--nj", 1, "--lmwt", 10, exp / "data", exp / "lang_test", exp / "timed", exp / "ctm"
    )
    found = [CtmLine.parse(line) for line in (exp / "ctm/ctm").read_text().splitlines()]
    units, posteriors = Subwords.read(exp / "units").units, read_scp(exp / "post.scp")
    for utt, text in TEXT.items():
        expected, frame = [], 0
        for label, run in itertools.groupby(load_matrix(posteriors[utt]).argmax(1)):
            begin, frame = frame, frame + len(list(run))
            if label and units[label].startswith(BOUNDARY):
                expected.append([begin, frame])
            elif label:
                expected[-1][1] = frame
        lines = [line for line in found if line.file == utt]
        assert [line.word for line in lines] == text.split() and all(
            0.5 < line.confidence <= 1 for line in lines
        )
        times = np.array([[line.begin_s, line.begin_s + line.duration_s] for line in lines])
        np.testing.assert_allclose(times, 0.01 * np.array(expected), atol=0.0151)


def test_nbest_lists_use_recognised_words_not_ids(exp, tmp_path):
    """The words have different ids in the lang directory."""
    data, out = tmp_path / "data", tmp_path / "greedy"
    data.mkdir()
    write_table(data / "text", {"a-2": TEXT["a-2"]})
    write_table(data / "utt2spk", {"a-2": "a"})
    run_here(
        "decode_ctc.py",
        "--nj",
        1,
        "--search",
        "greedy",
        "--units-dir",
        exp / "units",
        "--posteriors",
        exp / "post.scp",
        data,
        exp,
        out,
    )
    own, of_lang = (SymbolTable.read(path / "words.txt") for path in (out, exp / "lang_test"))
    assert own["bat"] != of_lang["bat"]
    run_here("score.py", "--nj", 1, data, exp / "lang_test", out)
    assert json.loads((out / "scoring/summary.json").read_text())["chosen"]["wer"] == 0
    run_here("get_nbest.py", "--nj", 1, "--lmwt", 10, data, exp / "lang_test", out, tmp_path / "nbest")
    assert read_table(tmp_path / "nbest/text") == {"a-2-1": TEXT["a-2"]}
    run_here("oracle_wer.py", "--nj", 1, data, exp / "lang_test", out)
    assert read_table(out / "oracle/hyp.txt") == {"a-2": TEXT["a-2"]}


def test_nbest_lists_have_no_times(exp):
    """The ids of their words also differ from those of the lang directory."""
    decode(exp, "untimed", "--search", "greedy")
    for message in (
        (
            "does not have the same id as in .*greedy and prefix search .* have no graph, decode with "
            "--search wfst"
        ),
        "words without transition-ids, so their times are unknown; decode with --search wfst",
    ):
        with pytest.raises(UserError, match=message):
            run_here(
                "get_ctm.py",
                "--nj",
                1,
                "--lmwt",
                10,
                exp / "data",
                exp / "lang_test",
                exp / "untimed",
                exp / "no_ctm",
            )
        (exp / "untimed/words.txt").unlink(missing_ok=True)


def test_ctm_requires_model_or_units(exp, tmp_path):
    decode(exp, "of_elsewhere", "--search", "wfst", "--graph-dir", exp / "graph")
    flags = (
        "--nj",
        1,
        "--model-dir",
        tmp_path,
        exp / "data",
        exp / "lang_test",
        exp / "of_elsewhere",
        tmp_path / "out",
    )
    report = (
        f"{tmp_path}: no acoustic model, neither final.mdl nor a CTC network's units/units.txt; give the "
        "directory of the model of the lattices"
    )
    for step in (("get_ctm.py", "--lmwt", 10), ("align_lattices.py",)):
        with pytest.raises(UserError, match=report):
            run_here(*step, *flags)


def test_frame_subsampling_is_input_of_graph_search(exp, tmp_path):
    """Real-time factors depend on the frame subsampling."""
    write_subsampling(tmp_path, 3)
    for search in SEARCHES:
        spec = CtcDecodeSpec(
            search, exp / "data", tmp_path, exp / "units", tmp_path, 1, 1, exp / "post.scp", exp / "graph"
        )
        assert (tmp_path / SUBSAMPLING in spec.input_files()) == (search == WFST)


def test_network_gives_same_result_as_its_posteriors(exp):
    """For the search in a graph, posteriors are divided by the priors of the units."""
    num_units, names = len(Subwords.read(exp / "units")), sorted(TEXT)
    network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=16), 3, num_units).eval()
    x = {utt: torch.randn(12, 3, generator=torch.Generator().manual_seed(n)) for n, utt in enumerate(names)}
    (exp / "net").mkdir()
    priors = torch.log_softmax(torch.randn(num_units, generator=torch.Generator().manual_seed(99)), 0)
    AcousticModel(network, torch.zeros(3), torch.full((3,), 4.0), priors, ACOUSTIC_FACTOR).save(
        exp / "net/final.nnet"
    )
    InputOptions(cmvn="none").save(exp / "net")
    with (
        torch.inference_mode(),
        ArkWriter(exp / "net/post.ark", exp / "net/post.scp") as posteriors,
        ArkWriter(exp / "net/divided.ark", exp / "net/divided.scp") as divided,
        ArkWriter(exp / "net/feats.ark", exp / "data/feats.scp") as features,
    ):
        for utt in names:
            features.write(utt, x[utt].numpy())
            said = torch.log_softmax(network(4 * x[utt]), 1)
            posteriors.write(utt, said.numpy())
            divided.write(utt, (said - priors).numpy())
    searches = {"greedy": ("post", []), "wfst": ("divided", ["--graph-dir", exp / "graph"])}
    for search, (table, flags) in searches.items():
        for name, options in (
            (f"{search}_of_net", []),
            (f"{search}_of_table", ["--posteriors", exp / f"net/{table}.scp"]),
        ):
            run_here(
                "decode_ctc.py",
                "--nj",
                1,
                "--search",
                search,
                *flags,
                "--units-dir",
                exp / "units",
                *options,
                exp / "data",
                exp / "net",
                exp / name,
            )
    one, other = (
        [line.split() for line in (exp / name / "nbest.1.txt").read_text().splitlines()]
        for name in ("greedy_of_net", "greedy_of_table")
    )
    assert [row[3:] for row in one] == [row[3:] for row in other] and any(row[3:] for row in one)
    assert [float(row[1]) for row in one] == pytest.approx([float(row[1]) for row in other], abs=1e-4)
    costs = [
        {utt: best_path(lattice, 0.1) for utt, lattice in read_either(exp / name / "lat.1.gz")}
        for name in ("wfst_of_net", "wfst_of_table")
    ]
    assert costs[0].keys() == costs[1].keys() == set(names)
    for utt in names:
        assert costs[0][utt].words == costs[1][utt].words
        assert costs[0][utt].acoustic_cost == pytest.approx(costs[1][utt].acoustic_cost, rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("num_threads, num_cores", [(1, 3), (2, 1)])
def test_decoding_threads_use_one_core_each(exp, tmp_path, monkeypatch, num_threads, num_cores):
    num_units = len(Subwords.read(exp / "units"))
    before = torch.get_num_threads()
    compute = AcousticModel.log_posteriors
    seen = []
    AcousticModel(
        FeedForward(DnnOptions(hidden_dim=4), 3, num_units),
        torch.zeros(3),
        torch.ones(3),
        torch.zeros(num_units),
    ).save(tmp_path / "final.nnet")
    InputOptions(cmvn="none").save(tmp_path)
    (tmp_path / "data").mkdir()
    write_table(tmp_path / "data/utt2spk", {utt: utt[0] for utt in TEXT})
    with ArkWriter(tmp_path / "data/feats.ark", tmp_path / "data/feats.scp") as writer:
        for utt in TEXT:
            writer.write(utt, np.zeros((2, 3), np.float32))
    monkeypatch.setattr(
        AcousticModel,
        "log_posteriors",
        lambda *words: seen.append(torch.get_num_threads()) or compute(*words),
    )
    torch.set_num_threads(3)
    try:
        decode_shard(
            CtcDecodeSpec(GREEDY, tmp_path / "data", tmp_path, exp / "units", tmp_path, 1, num_threads), 1
        )
    finally:
        torch.set_num_threads(before)
    assert seen == [num_cores] * len(TEXT)


def test_networks_without_priors_are_refused_in_graph_search(tmp_path):
    AcousticModel(
        FeedForward(DnnOptions(hidden_dim=4), 3, 5), torch.zeros(3), torch.ones(3), torch.zeros(5)
    ).save(tmp_path / "final.nnet")
    with pytest.raises(
        UserError,
        match=(
            "final.nnet: has no priors of units, which a search in a graph needs; train it again with "
            "steps/train_ctc.py"
        ),
    ):
        load_network(tmp_path, in_graph=True)


def test_changed_inputs_recompute_decoding(tmp_path):
    """Inputs are the network's files and its tables, with cmvn.scp if it uses CMVN; with --posteriors, none
    of these."""
    data, net, units = (tmp_path / name for name in ("data", "net", "units"))
    for path in (
        data / "feats.scp",
        data / "utt2spk",
        data / "cmvn.scp",
        net / "final.nnet",
        net / "final.mat",
        units / "units.txt",
    ):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    spec = CtcDecodeSpec("greedy", data, net, units, tmp_path / "out", 1, 1)
    for cmvn, tables in (
        ("speaker", ["cmvn.scp", "feats.scp", "utt2spk"]),
        ("none", ["feats.scp", "utt2spk"]),
    ):
        InputOptions(cmvn=cmvn).save(net)
        found = sorted(str(path.relative_to(tmp_path)) for path in spec.input_files())
        assert found == [
            *(f"data/{name}" for name in tables),
            "net/final.mat",
            "net/final.nnet",
            "net/input.json",
            "units/units.txt",
        ]
    assert set(replace(spec, posteriors=data / "feats.scp").input_files()) == {
        units / "units.txt",
        data / "utt2spk",
        data / "feats.scp",
    }


def test_features_of_other_kind_than_network_are_refused(tmp_path):
    """With --posteriors, features and network are not compared."""
    for name, options in {
        "train": FbankOptions(),
        "test": MfccOptions(num_ceps=23),
        "net": None,
        "units": None,
    }.items():
        (tmp_path / name).mkdir()
        if options:
            save(tmp_path / name / OPTIONS_FILE, options)
            write_table(tmp_path / name / "feats.scp", {"u": f"{tmp_path / name}/raw.ark:2"})
            write_table(tmp_path / name / "utt2spk", {"u": "s"})
    for path in ("net/final.nnet", "units/units.txt"):
        (tmp_path / path).touch()
    InputOptions(cmvn="none").save(tmp_path / "net")
    keep_origin(tmp_path / "net", tmp_path / "train")
    spec = CtcDecodeSpec(
        "greedy", tmp_path / "test", tmp_path / "net", tmp_path / "units", tmp_path / "out", 1, 1
    )
    sentence = (
        r"test: its features differ from those on which \S*net was trained \(MFCC, not log mel energies\)"
    )
    with pytest.raises(UserError, match=sentence):
        spec.input_files()
    assert (
        replace(spec, data=tmp_path / "train").input_files()
        and replace(spec, posteriors=tmp_path / "test/feats.scp").input_files()
    )


def test_nbest_list_becomes_lattice():
    words = SymbolTable.of(["<eps>", "a", "b"])
    hypotheses = [
        CtcHypothesis(("a", "b"), (), 1.0, 2.0),
        CtcHypothesis((), (), 1.5, 1.0),
        CtcHypothesis(("a",), (), 3.0, 0.5),
    ]
    lattice = list_lattice(hypotheses, words)
    found = {tuple(path.words): (path.acoustic_cost, path.graph_cost) for path in n_best(lattice, 5, 0.1)}
    expected = {(1, 2): (10, 2), (): (15, 1), (1,): (30, 0.5)}
    assert found == {text: pytest.approx(costs, abs=0.01) for text, costs in expected.items()}
    assert sweep(lattice, [10, 1], [0.0]) == {(10, 0.0): [], (1, 0.0): [1, 2]}


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--search", "wfst"],
            "--search wfst needs --graph-dir; create the graph with utils/make_ctc_graph.py",
        ),
        (
            ["--search", "greedy", "--lm", "x", "--num-prefixes", 8],
            (
                "--lm, --num-prefixes cannot be combined with --search greedy; omit them, or give --search "
                "prefix"
            ),
        ),
        (
            ["--search", "prefix", "--graph-dir", "x"],
            "--graph-dir cannot be combined with --search prefix; omit it, or give --search wfst",
        ),
        (
            ["--search", "prefix", "--beam", 8, "--determinize", "true"],
            "--beam, --determinize cannot be combined with --search prefix; omit them",
        ),
        (
            ["--search", "wfst", "--graph-dir", "x", "--word-bonus", 0],
            "--word-bonus cannot be combined with --search wfst; omit it",
        ),
        (
            ["--search", "prefix", "--lm-weight", 0.5, "--oov-cost", 9],
            "--lm-weight, --oov-cost have no effect without --lm; omit them",
        ),
        (
            ["--search", "wfst", "--graph-dir", "/nowhere"],
            "/nowhere/TLG.fst: no such file; create it with utils/make_ctc_graph.py",
        ),
    ],
)
def test_invalid_options_are_refused(exp, options, message):
    with pytest.raises(UserError, match=message):
        decode(exp, "none", *options)
    assert not (exp / "none").exists()


def test_upper_case_language_model_is_refused_with_hint(exp, tmp_path):
    write_arpa_text(tmp_path / "lm.arpa", random_ngrams(0, ["THE", "CAT"], (0,)))
    with pytest.raises(
        UserError,
        match=f"{tmp_path}/lm.arpa: none of its words can be spelled .*; 2 of them can in another case",
    ):
        decode(exp, "capitals", "--search", "prefix", "--lm", tmp_path / "lm.arpa")


def test_posteriors_and_graphs_of_other_units_are_refused(exp, tmp_path):
    with ArkWriter(tmp_path / "post.ark", tmp_path / "post.scp") as writer:
        writer.write("a-1", np.zeros((3, 4), np.float32))
    with pytest.raises(UserError, match=r"a-1: log posteriors of shape \(3, 4\), expected \(frames, 17\)"):
        run_here(
            "decode_ctc.py",
            "--nj",
            1,
            "--units-dir",
            exp / "units",
            "--posteriors",
            tmp_path / "post.scp",
            exp / "data",
            exp,
            tmp_path / "out",
        )
    run_here("train_subwords.py", "--num-units", 16, exp / "data", tmp_path / "units", folder="utils")
    with pytest.raises(
        UserError, match="phones.txt: the unit '.*' of .* has another id or is missing; create the graph"
    ):
        run_here(
            "decode_ctc.py",
            "--nj",
            1,
            "--search",
            "wfst",
            "--graph-dir",
            exp / "graph",
            "--units-dir",
            tmp_path / "units",
            "--posteriors",
            exp / "post.scp",
            exp / "data",
            exp,
            tmp_path / "out",
        )
