"""steps/decode.py on a data directory with a model of three one-state phones, each a word."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from steps_here import run_here

from pyasr.base.cli.options import save
from pyasr.base.errors import UserError
from pyasr.decode.decoding.decode_dir import start_output
from pyasr.decode.lattice_jobs.lattice_dir import read_deterministic
from pyasr.decode.lattices.compact_lattice import CompactLattice
from pyasr.decode.lattices.lattice import Lattice, best_path, from_arcs, sweep
from pyasr.decode.lattices.lattice_io import LatticeWriter, read_either, read_lattices
from pyasr.decode.lattices.nbest import n_best
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import OPTIONS_FILE, MfccOptions
from pyasr.feats.origin import keep_origin
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import write_model, write_subsampling
from pyasr.hmm.model.topology import Topology, left_to_right
from pyasr.hmm.model.transitions import TransitionModel
from pyasr.io.ark import ArkReader, ArkWriter, read_scp
from pyasr.io.openfst import Fst, write_fst
from pyasr.io.text_tables import write_table
from pyasr.lang.symbols import SymbolTable
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward

ROOT = Path(__file__).resolve().parents[3]
SCALE = 1 / 12
WORDS = ["one", "two", "three"]
TRUTH = {"a-1": [0, 2, 1], "a-2": [2], "b-1": [1, 0, 1, 0], "b-2": [0, 1]}


@pytest.fixture
def exp(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    (tmp_path / "model" / "graph").mkdir(parents=True)
    with ArkWriter(tmp_path / "data/f.ark", tmp_path / "data/feats.scp") as writer:
        for utt, words in TRUTH.items():
            writer.write(
                utt,
                (np.repeat(6 * np.eye(3)[words], 8, 0) + rng.standard_normal((8 * len(words), 3))).astype(
                    np.float32
                ),
            )
    write_table(tmp_path / "data/utt2spk", {utt: utt[0] for utt in TRUTH})
    transitions = TransitionModel(
        Topology([left_to_right(1)], {1: 0, 2: 0, 3: 0}), [(1, 0, 0), (2, 0, 1), (3, 0, 2)]
    )
    write_model(
        tmp_path / "model/final.mdl",
        transitions,
        AmDiagGmm.from_moments(range(4), np.ones(3), 6 * np.eye(3), np.ones((3, 3))),
    )
    InputOptions(cmvn="none").save(tmp_path / "model")
    make_graph(tmp_path / "model" / "graph")
    return tmp_path


def make_graph(graph: Path) -> None:
    """A graph of any sequence of words: the phone's exit transition into its state, then its self-loop, then
    back to the start."""
    arcs = [
        arc
        for k in range(3)
        for arc in (
            (0, 2 * k + 2, k + 1, 1.1, k + 1),
            (k + 1, 2 * k + 1, 0, 0.1, k + 1),
            (k + 1, 0, 0, 0.5, 0),
        )
    ]
    sources, ilabels, olabels, weights, targets = zip(*arcs)
    write_fst(graph / "HCLG.fst", Fst.from_arcs(4, 0, sources, ilabels, olabels, weights, targets, {0: 0.0}))
    (graph / "num_pdfs").write_text("3\n")
    (graph / "words.txt").write_text(
        "<eps> 0\n" + "".join(f"{word} {k}\n" for k, word in enumerate(WORDS, 1))
    )


def network_of(num_pdfs: int) -> AcousticModel:
    network = FeedForward(DnnOptions(hidden_layers=1, hidden_dim=2), 3, num_pdfs)
    return AcousticModel(network, torch.zeros(3), torch.ones(3), torch.zeros(num_pdfs))


def decode(exp: Path, *arguments: str):
    """Run the step as a process and return it when it has ended."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, ROOT / "steps/decode.py", *arguments, "model/graph", "data", "model/decode"]
    return subprocess.run(words, cwd=exp, env=environment, capture_output=True, text=True)


def hypotheses(exp: Path) -> dict[str, list[str]]:
    lines = [
        line.split()
        for path in (exp / "model/decode").glob("hyp.*.txt")
        for line in path.read_text().splitlines()
    ]
    return {utt: words for utt, *words in lines}


def test_decoding_writes_words_lattices_and_report(exp):
    run = decode(exp, "--nj", "2", "--num-threads", "2")
    assert run.returncode == 0, run.stdout + run.stderr
    assert hypotheses(exp) == {utt: [WORDS[k] for k in words] for utt, words in TRUTH.items()}
    assert (exp / "model/decode/num_jobs").read_text() == "2\n"
    found = {
        utt: lattice for job in (1, 2) for utt, lattice in read_lattices(exp / f"model/decode/lat.{job}.gz")
    }
    swept = {utt: sweep(lattice, [12], [0.0])[12, 0.0] for utt, lattice in found.items()}
    assert swept == {utt: [k + 1 for k in words] for utt, words in TRUTH.items()}
    totals = json.loads((exp / "model/decode/totals.json").read_text())
    assert (totals["num_utterances"], totals["num_frames"], totals["not_final"]) == (4, 8 * 10, [])
    assert "real-time factor" in run.stdout and "peak memory" in run.stdout
    assert "a-1: log-like per frame" in "".join(
        path.read_text() for path in (exp / "model/decode/log").glob("decode.*.log")
    )
    again = decode(exp, "--nj", "1")
    assert again.returncode == 0 and "up to date" in again.stdout


def test_decoding_is_up_to_date_with_or_without_model_option(exp, caplog):
    words = ["--nj", 1, exp / "model/graph", exp / "data", exp / "model/decode"]
    run_here("decode.py", *words)
    for flags in ((), ("--model-dir", exp / "model")):
        caplog.clear()
        run_here("decode.py", *flags, *words)
        assert "decode is up to date" in caplog.text


@pytest.mark.parametrize("num_threads, num_cores", [(1, 3), (2, 1)])
def test_decoding_threads_use_one_core_each(exp, monkeypatch, num_threads, num_cores):
    network_of(3).save(exp / "model/final.nnet")
    before, compute, seen = torch.get_num_threads(), AcousticModel.log_likelihoods, []
    monkeypatch.setattr(
        AcousticModel,
        "log_likelihoods",
        lambda *words: seen.append(torch.get_num_threads()) or compute(*words),
    )
    torch.set_num_threads(3)
    try:
        run_here(
            "decode.py",
            "--nj",
            1,
            "--num-threads",
            num_threads,
            exp / "model/graph",
            exp / "data",
            exp / "model/decode",
        )
    finally:
        torch.set_num_threads(before)
    assert seen == [num_cores] * len(TRUTH)


def test_changed_word_ids_in_lang_do_not_change_words(exp):
    """A word was added to the language directory after the graph was created."""
    write_table(exp / "data/text", {utt: " ".join(WORDS[k] for k in words) for utt, words in TRUTH.items()})
    (exp / "lang").mkdir()
    SymbolTable.of(["<eps>", "newcomer", *WORDS]).write(exp / "lang/words.txt")
    run_here("decode.py", "--nj", 1, exp / "model/graph", exp / "data", exp / "model/decode")
    run_here("score.py", "--nj", 1, exp / "data", exp / "lang", exp / "model/decode")
    assert json.loads((exp / "model/decode/scoring/summary.json").read_text())["chosen"]["wer"] == 0


def test_lattices_are_compact_unless_raw_is_requested(exp):
    assert decode(exp, "--nj", "1").returncode == 0
    (exp / "model/decode").rename(exp / "model/compact")
    write_subsampling(exp / "model", 3)
    assert decode(exp, "--nj", "1", "--determinize", "false").returncode == 0
    seconds = [
        json.loads((exp / "model" / name / "totals.json").read_text())["audio_s"]
        for name in ("compact", "decode")
    ]
    assert seconds == pytest.approx([0.8, 2.4])  # the model determines the frame shift of the lattices
    raw, compact = (dict(read_either(exp / "model" / name / "lat.1.gz")) for name in ("decode", "compact"))
    for utt in TRUTH:
        assert isinstance(raw[utt], Lattice) and isinstance(compact[utt], CompactLattice)
        one, other = best_path(raw[utt], SCALE), best_path(compact[utt], SCALE)
        assert one.words == other.words and np.array_equal(one.tids, other.tids)
        assert compact[utt].num_arcs < raw[utt].num_arcs
    assert json.loads((exp / "model/compact/totals.json").read_text())["narrowed"] == []


def test_interrupted_run_resumes_with_incomplete_jobs(exp):
    words = exp / "model/graph/words.txt"
    whole = words.read_text()
    words.write_text(whole.replace("three 3\n", ""))
    failed = decode(exp, "--nj", "2")
    assert failed.returncode == 1 and not (exp / "model/decode").exists()
    words.write_text(whole)
    assert decode(exp, "--nj", "2").returncode == 0
    assert len(hypotheses(exp)) == 4


def test_shards_of_other_number_of_jobs_are_discarded(exp):
    scratch = exp / "model/decode.tmp"
    assert decode(exp, "--nj", "2").returncode == 0
    (exp / "model/decode").rename(scratch)
    done = json.loads((scratch / ".done.json").read_text())
    (scratch / ".done.json").unlink()
    (scratch / ".started.json").write_text(json.dumps({key: done[key] for key in ("options", "inputs")}))
    run = decode(exp, "--nj", "1")
    assert run.returncode == 0 and "resuming" in run.stdout
    assert sorted(path.name for path in (exp / "model/decode").glob("lat.*")) == ["lat.1.gz"]
    assert len(hypotheses(exp)) == 4


def test_shards_of_other_data_parts_are_discarded(exp, tmp_path):
    """Parts depend on durations, which may have become known since; results of unchanged parts are kept."""
    out = tmp_path / "out"
    out.mkdir()
    for durations, is_kept in ((None, False), (None, True), ([9, 1, 1, 1], False), ([9, 1, 1, 1], True)):
        if durations:
            write_table(exp / "data/utt2dur", dict(zip(sorted(TRUTH), durations)))
        start_output(out, exp / "data", 2)
        assert (out / "shard.1.json").exists() == is_kept and (out / "num_jobs").read_text() == "2\n"
        (out / "shard.1.json").touch()


@pytest.mark.parametrize(
    "flags, num_paths", [(["--lattice-beam", "8"], 2), (["--lattice-beam", "3"], 1), (None, 1)]
)
def test_raw_lattices_keep_acoustic_scale_of_decoding(exp, flags, num_paths):
    """The costs of two words differ by 6.75 at the decoding's scale, by 15 at the reader's. The default
    scale, without a record, is 0.1."""
    assert decode(exp, "--nj", "1", "--determinize", "false", *(flags or [])).returncode == 0
    archive, done = exp / "model/decode/lat.1.gz", exp / "model/decode/.done.json"
    content = json.loads(done.read_text())
    content["options"]["decode"]["acoustic_scale"] = 0.045
    done.write_text(json.dumps(content)) if flags else done.unlink()
    arcs = dict(
        sources=[0, 0],
        targets=[1, 1],
        ilabels=[1, 3],
        olabels=[1, 2],
        graph_costs=[0, 0],
        acoustic_costs=[1000, 1150],
    )
    with LatticeWriter(archive) as writer:
        writer.write(
            "utt",
            from_arcs(
                0, **{name: np.array(column) for name, column in arcs.items()}, final_graph=[np.inf, 0.0]
            ),
        )
    ((_, lattice),) = read_deterministic(archive)
    assert len(n_best(lattice, 10, 0.045)) == num_paths


@pytest.mark.parametrize(
    "spoil,message",
    [
        (
            lambda exp: (exp / "model/graph/HCLG.fst").unlink(),
            "model/graph/HCLG.fst: no such file; create it with utils/make_graph.py",
        ),
        (
            lambda exp: (exp / "data/feats.scp").unlink(),
            "data/feats.scp: no such file; create it with steps/make_mfcc.py",
        ),
        (
            lambda exp: (exp / "model/graph/HCLG.fst").write_bytes(b"no graph"),
            "HCLG.fst: not an OpenFst binary file",
        ),
        (
            lambda exp: write_fst(
                exp / "model/graph/HCLG.fst", Fst.from_arcs(2, 0, [0], [99], [1], [0.0], [1], {1: 0.0})
            ),
            "the decoding graph has transition-id 99 but the model has only 6",
        ),
        (lambda exp: (exp / "model/graph/words.txt").write_text("<eps> 0\n"), "has no word"),
        (
            lambda exp: (exp / "model/graph/num_pdfs").write_text("4\n"),
            "num_pdfs: the graph is for a model with 4 pdfs, but this model has 3",
        ),
        (
            lambda exp: network_of(4).save(exp / "model/final.nnet"),
            "final.nnet: the network has 4 outputs, but final.mdl in the same directory has 3 pdfs",
        ),
    ],
)
def test_invalid_input_gives_one_sentence_and_no_output(exp, spoil, message):
    spoil(exp)
    run = decode(exp, "--nj", "2")
    assert run.returncode == 1
    assert message in run.stderr and "Traceback" not in run.stderr
    assert not (exp / "model/decode").exists()


def test_min_active_above_max_active_is_refused(exp):
    run = decode(exp, "--max-active", "100")
    assert (
        run.stderr
        == "decode.py: error: --min-active 200 is above --max-active 100; lower the one or raise the other\n"
    )
    assert run.returncode == 1 and not (exp / "model/decode.tmp").exists()


def test_features_with_nan_name_the_utterance(exp):
    with ArkWriter(exp / "data/f.ark", exp / "data/feats.scp") as writer:
        for utt in TRUTH:
            writer.write(utt, np.full((10, 3), np.nan if utt == "b-1" else 1.0, np.float32))
    run = decode(exp, "--nj", "2")
    assert run.returncode == 1 and "b-1: the log-likelihood of pdf" in run.stderr


def test_empty_features_give_no_words(exp):
    """Kaldi writes empty features for audio shorter than a frame: the utterance is named, and has no
    words."""
    reader, places = ArkReader(), read_scp(exp / "data/feats.scp")
    with ArkWriter(exp / "data/g.ark", exp / "data/feats.scp") as writer:
        for utt, place in places.items():
            writer.write(utt, np.zeros((0, 0), np.float32) if utt == "b-1" else np.array(reader.load(place)))
    decoded = decode(exp, "--nj", "2")
    assert (
        decoded.returncode == 0
        and "1 utterance(s) have no features and are not decoded: b-1" in decoded.stdout
    )
    assert hypotheses(exp)["b-1"] == [] and all(
        words for utt, words in hypotheses(exp).items() if utt != "b-1"
    )


def test_utterances_without_features_count_as_deletions(exp):
    """Decoding and scoring name the utterances; their words count in the denominator and as deletions."""
    write_table(
        exp / "data/feats.scp",
        {utt: rx for utt, rx in read_scp(exp / "data/feats.scp").items() if utt not in ("a-1", "b-1")},
    )
    write_table(exp / "data/text", {utt: " ".join(WORDS[k] for k in words) for utt, words in TRUTH.items()})
    decoded = decode(exp, "--nj", "2")
    assert (
        decoded.returncode == 0
        and "2 utterance(s) have no features and are not decoded: a-1 b-1" in decoded.stdout
    )
    command = [sys.executable, ROOT / "steps/score.py", "--nj", "1", "data", "model/graph", "model/decode"]
    scored = subprocess.run(
        command, cwd=exp, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert scored.returncode == 0, scored.stderr
    assert "2 utterance(s) have no hypothesis and count as deleted: a-1 b-1" in scored.stdout
    chosen = json.loads((exp / "model/decode/scoring/summary.json").read_text())["chosen"]
    assert (chosen["words"], chosen["del"], chosen["errors"], chosen["missing"]) == (10, 7, 7, ["a-1", "b-1"])
    assert (
        (exp / "model/decode/best_wer").read_text().startswith("%WER 70.00 [ 7 / 10, 0 ins, 7 del, 0 sub ]")
    )
    rows = [
        line.split()
        for line in (exp / "model/decode/scoring/per_utt").read_text().splitlines()
        if "#csid" in line
    ]
    assert {row[0]: row[2:] for row in rows if row[0] in ("a-1", "b-1")} == {
        "a-1": list("0003"),
        "b-1": list("0004"),
    }


def test_features_with_other_options_than_model_are_refused(exp):
    save(exp / "data" / OPTIONS_FILE, MfccOptions(num_ceps=3))
    keep_origin(exp / "model", exp / "data")
    assert decode(exp).returncode == 0
    shutil.rmtree(exp / "model/decode")
    save(exp / "data" / OPTIONS_FILE, MfccOptions(num_ceps=3, use_energy=False))
    done = decode(exp)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (exp / "model/decode").exists()
    assert (
        "data: its features differ from those on which model was trained (--use-energy false, not true)"
        in done.stderr
    )
    (exp / "data" / OPTIONS_FILE).unlink()
    assert decode(exp).returncode == 0


def words_at(graph: Path, num: int) -> None:
    """A graph in which only the first `num` phones are words."""
    arcs = [
        arc
        for k in range(3)
        for arc in (
            (0, 2 * k + 2, (k + 1) * (k < num), 1.1, k + 1),
            (k + 1, 2 * k + 1, 0, 0.1, k + 1),
            (k + 1, 0, 0, 0.5, 0),
        )
    ]
    sources, ilabels, olabels, weights, targets = zip(*arcs)
    write_fst(graph / "HCLG.fst", Fst.from_arcs(4, 0, sources, ilabels, olabels, weights, targets, {0: 0.0}))


@pytest.mark.parametrize("num_words, message", [(0, "4 of 4 utterances (a-1 a-2 b-1 b-2)"), (1, None)])
def test_many_empty_hypotheses_give_warning(exp, num_words, message, caplog):
    """If three of four utterances have a word, there is no warning."""
    words_at(exp / "model/graph", num_words)
    run_here("decode.py", "--nj", 2, exp / "model/graph", exp / "data", exp / "model/decode")
    sentence = (
        f"{exp}/data: no word was found in {message}; the usual causes are features that differ from "
        "those of the model"
    )
    assert (sentence in caplog.text) == bool(message) and ("no word was found" in caplog.text) == bool(
        message
    )


def test_data_without_features_is_refused(exp):
    write_table(exp / "data/utt2spk", {"c-1": "c"})
    with pytest.raises(UserError, match="data: no utterance has features, so none was decoded"):
        run_here("decode.py", "--nj", 1, exp / "model/graph", exp / "data", exp / "model/decode")
    assert not (exp / "model/decode").exists()


def test_few_arcs_per_frame_are_not_rounded_to_zero(exp, caplog):
    """A long word has a single arc."""
    with ArkWriter(exp / "data/f.ark", exp / "data/feats.scp") as writer:
        for utt in TRUTH:
            writer.write(utt, np.repeat(6 * np.eye(3, dtype=np.float32)[:1], 400, 0))
    with caplog.at_level("INFO", "pyasr"):
        run_here("decode.py", "--nj", 1, exp / "model/graph", exp / "data", exp / "model/decode")
    num_arcs = json.loads((exp / "model/decode/totals.json").read_text())["num_arcs"]
    assert 0 < num_arcs / 1600 < 0.05
    output = float(re.search(rf"{num_arcs} lattice arcs, ([0-9.]+) per frame", caplog.text)[1])
    assert output == pytest.approx(num_arcs / 1600, rel=0.05)
