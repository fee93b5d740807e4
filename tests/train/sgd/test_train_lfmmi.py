"""steps/build_chain_tree.py and train_lfmmi.py on a small language, ranks in threads, and decoding with the
trained model."""

import importlib
import itertools
import json
import shutil
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from chain_corpus import write_alignments, write_chain_corpus, write_features
from schemes import KINDS_OF_SCHEMES, SCHEME_FLAGS, fitting, initial_objective, ranks_for
from steps_here import run_here

from pyasr.base.errors import UserError
from pyasr.data.transcripts.ctm import CtmLine
from pyasr.hmm.model.model_file import read_subsampling, read_transitions, read_tree
from pyasr.io.ark import ArkReader, ArkWriter, read_scp
from pyasr.io.int_vectors import read_int_vectors, write_int_vectors
from pyasr.io.text_tables import read_table
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.sequence.lfmmi import leaky_hmm
from pyasr.sequence.lfmmi.chain import AlignedPhones
from pyasr.train.sgd.learner import Learner

NETWORK = "tdnn splice=-1..1 dim=32\ntdnn splice=-1..1 dim=32 stride=3\ntdnn splice=-1..1 dim=32"
FLAGS = ["--cmvn", "none", "--precision", "float32", "--chunk", 60, "--minibatch", 80, "--lr-scaling", "none",
         "--heldout-by", "utterance", "--heldout-share", 0.1, "--period-frames", 80, "--log-frames", 600,
         "--num-extra-lm-states", 20]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = write_chain_corpus(tmp_path_factory.mktemp("chain"))
    (path / "network.net").write_text(NETWORK)
    run_here(
        "build_chain_tree.py",
        "--nj",
        2,
        "--num-leaves",
        24,
        "--split-thresh",
        1,
        "--cluster-thresh",
        0,
        *(path / name for name in ("data", "lang", "ali", "tree")),
    )
    return path


@pytest.fixture
def copy(corpus, tmp_path):
    """A corpus that a test may change."""
    return shutil.copytree(corpus, tmp_path / "corpus")


def train(path, out, *flags, num_ranks=2):
    run_here(
        "train_lfmmi.py",
        "--num-ranks",
        num_ranks,
        "--network",
        path / "network.net",
        *fitting([*FLAGS, *flags]),
        *(path / name for name in ("data", "ali", "tree")),
        out,
        threads=True,
    )
    return out


def test_published_training_at_small_size(corpus, tmp_path):
    """Kaldi's recipe for Switchboard, with all options except sizes and rate, on two ranks: factorised layers
    with dropout, averaged ranks."""
    conf = Path(__file__).parents[3] / "egs/amazon_queen/s5/conf/published/chain.conf"
    (tmp_path / "network.net").write_text(
        "tdnn splice=-1..1 dim=32 layer-norm=true dropout-per-dim=true\ntdnnf dim=32 bottleneck-dim=8 "
        "time-stride=0 stride=3\ntdnnf dim=32 bottleneck-dim=8\nlinear dim=16 semi-orthogonal=true "
        "layer-norm=true"
    )
    flags = [
        "--network",
        tmp_path / "network.net",
        "--initial-ranks",
        1,
        "--learning-rate",
        0.004,
        "--num-epochs",
        6,
    ]
    ends = epochs(train(corpus, tmp_path / "out", "--config", conf, *FLAGS, *flags))
    assert ends[-1]["heldout_objective"] > 0.6 * ends[0]["heldout_objective"]


def test_benchmark_time_includes_submitted_gpu_work(monkeypatch):
    """The wall time includes work that was only submitted to the GPU, 5 s at a time."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    with patch.dict(sys.modules):
        for name in ("train_dnn", "train_lfmmi"):
            sys.modules.pop(name, None)  # steps have the same names
        clock = importlib.import_module("train_lfmmi").Clock("cuda")
    now, to_do = [0.0], [0.0]

    def give():
        to_do[0] += 5.0

    def wait():
        now[0], to_do[0] = now[0] + to_do[0], 0.0

    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "synchronize", wait)
        patched.setattr(time, "perf_counter", lambda: now[0])
        for _ in range(2):
            clock.timed("work", give)()
    assert clock.spent == {"work": 10.0}


def epochs(out) -> list[dict]:
    return [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "heldout_objective" in line
    ]


def parameters(out) -> torch.Tensor:
    return torch.cat([value.flatten() for value in load_scorer(out).network.parameters()])


def test_tree_has_left_biphones(corpus):
    trans = read_transitions(corpus / "tree" / "final.mdl")
    tree = read_tree(corpus / "tree" / "tree", trans)
    assert (
        (tree.context_width, tree.central_position) == (2, 1)
        and 12 < tree.num_pdfs <= 24
        and read_subsampling(corpus / "tree") == 3
    )
    phones = LangDir(corpus / "lang").phones
    after_m, after_d = (
        int(tree.pdfs(np.array([[phones[left], phones["A"]]]), np.array([0]))[0]) for left in "MD"
    )
    assert after_m != after_d
    assert all(trans.topology.num_pdf_classes(phone) == 2 for phone in LangDir(corpus / "lang").real_phones)
    assert not (corpus / "tree" / "stats").exists()


def test_alignments_of_other_data_are_refused(copy, tmp_path):
    archive = copy / "ali" / "ali.1.gz"
    write_int_vectors(archive, dict(list(read_int_vectors(archive).items())[::2]))
    with pytest.raises(UserError, match="ali does not match .*data: "):
        run_here(
            "build_chain_tree.py",
            "--nj",
            1,
            *(copy / name for name in ("data", "lang", "ali")),
            tmp_path / "tree",
        )
    assert not (tmp_path / "tree").exists()


def test_missing_data_are_counted_and_named(copy, tmp_path, capsys):
    """Also if a job has no usable data."""
    alignments = read_int_vectors(copy / "ali" / "ali.1.gz")
    places = [copy / name for name in ("data", "lang", "ali")]
    write_int_vectors(
        copy / "ali" / "ali.1.gz", {key: of for key, of in alignments.items() if not key.startswith("w")}
    )
    flags = ["--nj", 4, "--num-leaves", 24, "--split-thresh", 1, "--cluster-thresh", 0, "--max-missing", 0.3]
    run_here("build_chain_tree.py", *flags, *places, tmp_path / "tree")
    assert "only features:          10 (w-00, w-04, w-08, ...)" in capsys.readouterr().out
    with pytest.raises(
        UserError,
        match=r"to be left out: \d+: it has more phones than frames at 1/50 .*; lower --frame-subsamp",
    ):
        run_here("build_chain_tree.py", *flags, "--frame-subsampling-factor", 50, *places, tmp_path / "none")


@pytest.mark.parametrize(("flags", "message"), [([], True), (["--self-loop-scale", 1.0], False)])
def test_graph_requires_self_loop_scale_of_training(corpus, tmp_path, capsys, flags, message):
    run_here(
        "make_graph.py", *flags, corpus / "lang_test", corpus / "tree", tmp_path / "graph", folder="utils"
    )
    assert ("give --self-loop-scale 1.0, not 0.1" in capsys.readouterr().out) == message


def test_network_learns_to_recognise_words(corpus, tmp_path):
    """Two ranks with natural gradient and combination of models; decoded with the graph of its own tree,
    scored and timed."""
    flags = ["--natural-gradient", "online", "--ng-rank-in", 4, "--ng-rank-out", 4, "--num-epochs", 5,
             "--learning-rate", 1, "--combine", "weights", "--combine-period-frames", 400,
             "--combine-iterations", 3, "--sample-frames", 200]  # fmt: skip
    out = train(corpus, tmp_path / "chain", *flags)
    report = epochs(out)
    assert (
        report[-1]["heldout_objective"] > max(-0.05, report[0]["heldout_objective"])
        and report[-1]["heldout_cross_entropy"] < 1.5
    )
    model = load_scorer(out)
    assert type(model.network) is LayeredNetwork and model.factor == 10.0 and not model.log_priors.any()
    made = {"final.mdl", "tree", "input.json", "phones.txt", "phone_lm.fst", "frame_subsampling_factor"}
    assert {path.name for path in out.iterdir()} >= made
    assert not list(out.glob("*.np*")) and not (out / "checkpoint").exists() and not (out / "models").exists()
    run_here(
        "make_graph.py", "--self-loop-scale", 1.0, corpus / "lang_test", out, out / "graph", folder="utils"
    )
    run_here("decode.py", "--nj", 1, "--acoustic-scale", 0.1, out / "graph", corpus / "data", out / "decode")
    texts, found = read_table(corpus / "data" / "text"), read_table(out / "decode" / "hyp.1.txt")
    assert np.mean([texts[key] == found[key] for key in texts]) > 0.9
    frames = {key: int(number) for key, number in read_table(corpus / "data" / "utt2num_frames").items()}
    totals = json.loads((out / "decode" / "totals.json").read_text())
    assert totals["audio_s"] == pytest.approx(sum(frames.values()) / 100, rel=0.03) and totals[
        "num_frames"
    ] < 0.4 * sum(frames.values())
    run_here(
        "get_ctm.py", "--nj", 1, "--lmwt", 10, corpus / "data", corpus / "lang", out / "decode", out / "ctm"
    )
    lines = [CtmLine.parse(line) for line in (out / "ctm" / "ctm").read_text().splitlines()]
    ends = {line.file: line.begin_s + line.duration_s for line in lines}
    assert all(
        0.6 * frames[key] / 100 < end <= frames[key] / 100 + 0.03 for key, end in ends.items()
    ) and len(ends) == len(frames)


@pytest.mark.parametrize(
    "flags",
    [
        ["--parallel", "bmuf", "--first-mixing", "best"],
        ["--parallel", "gradient", "--data-assignment", "all"],
        ["--xent-regularize", 0, "--shift-frames", "false"],
    ],
    ids=lambda flags: flags[1],
)
def test_options_are_applied(corpus, tmp_path, flags):
    report = epochs(train(corpus, tmp_path / "out", "--num-epochs", 2, *flags))
    assert -0.5 < report[-1]["heldout_objective"] < 0 and report[-1]["heldout_cross_entropy"] < 3


@pytest.mark.parametrize("scheme", KINDS_OF_SCHEMES)
def test_each_kind_of_scheme_learns(corpus, tmp_path, capsys, scheme):
    flags = [
        "--parallel",
        scheme,
        *SCHEME_FLAGS.get(scheme, []),
        "--period-frames",
        160,
        "--num-epochs",
        2,
        "--learning-rate",
        1,
    ]
    out = train(corpus, tmp_path / "out", *flags, num_ranks=ranks_for(scheme))
    begun = initial_objective(capsys.readouterr().out)
    assert epochs(out)[-1]["heldout_objective"] > 0.7 * begun


def test_interrupted_training_resumes(corpus, tmp_path, monkeypatch):
    flags = ["--checkpoint-frames", 240, "--momentum", 0.5, "--num-epochs", 2, "--combine", "average",
             "--combine-period-frames", 300, "--natural-gradient", "online", "--ng-rank-in", 4,
             "--ng-rank-out", 4]  # fmt: skip
    whole = train(corpus, tmp_path / "whole", *flags, num_ranks=1)
    learn, steps = Learner.step, []

    def dying(*arguments):
        steps.append(1)
        if len(steps) > 16:
            raise RuntimeError("power cut")
        return learn(*arguments)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="power cut"):
        patched.setattr(Learner, "step", dying)
        train(corpus, tmp_path / "cut", *flags, num_ranks=1)
    assert (
        not (tmp_path / "cut").exists() and (tmp_path / "cut.tmp" / "checkpoint" / "checkpoint.json").exists()
    )
    assert torch.equal(parameters(train(corpus, tmp_path / "cut", *flags, num_ranks=1)), parameters(whole))


def test_chunks_without_likelihood_are_counted(corpus, tmp_path, capsys, monkeypatch):
    """One in every second minibatch. Checkpoints keep the count, and too many end the training."""
    learn, answer, steps, poisoned = Learner.step, leaky_hmm.forward_backward, itertools.count(), []

    def step(self, *arguments):
        poisoned[:] = [0] * (next(steps) % 2)
        return learn(self, *arguments)

    def forward_backward(*arguments):
        log_likes, posteriors = answer(*arguments)
        log_likes[poisoned[:1]] = float("nan")
        poisoned.clear()
        return log_likes, posteriors

    monkeypatch.setattr(Learner, "step", step)
    monkeypatch.setattr(leaky_hmm, "forward_backward", forward_backward)
    flags = ["--max-skipped", 12, "--num-epochs", 2, "--checkpoint-frames", 240]
    with pytest.raises(
        UserError,
        match="13 chunks were skipped, more than --max-skipped 12: .* not finite, last at step 26 of rank 0",
    ):
        train(corpus, tmp_path / "out", *flags, num_ranks=1)
    assert (
        capsys.readouterr().out.count("LF-MMI: 1 of 4 sequences have no finite likelihood and are skipped:")
        == 13
    )
    again = next(steps)
    with pytest.raises(UserError, match="13 chunks were skipped"):
        train(corpus, tmp_path / "out", *flags, num_ranks=1)
    assert next(steps) - again < 24


def test_gradients_summed_over_ranks_equal_single_rank(copy, tmp_path):
    """Eight utterances with two chunks each: one rank learns all sixteen chunks per minibatch, each of two
    ranks eight."""
    rng, phones = np.random.default_rng(3), LangDir(copy / "lang").phones
    spelled = [phones[phone] for phone in "SIL D A B SIL M A D SIL B A D SIL".split()]
    lengths = rng.permutation(np.tile([8, 9, 10], 5)[:13])
    phones_of_all = AlignedPhones(np.array(spelled, np.int32), np.r_[0, np.cumsum(lengths)])
    aligned = {f"{speaker}-{i}": phones_of_all for speaker in "ab" for i in range(4)}
    for name in ("data", "ali"):
        shutil.rmtree(copy / name)
    write_features(copy / "data", aligned, rng)
    write_alignments(copy / "ali", LangDir(copy / "lang"), aligned)
    flags = ["--heldout-share", 0, "--num-epochs", 3, "--learning-rate", 0.5, "--max-change", 0]
    one = train(copy, tmp_path / "one", *flags, "--minibatch", 320, num_ranks=1)
    two = train(copy, tmp_path / "two", *flags, "--minibatch", 160, "--parallel", "gradient")
    torch.testing.assert_close(parameters(two), parameters(one), atol=1e-4, rtol=1e-3)
    assert load_scorer(one).network.output.weight.abs().max() > 0.01


def test_utterances_too_short_for_their_phones_are_named(copy, tmp_path, capsys):
    lang = LangDir(copy / "lang")
    reader, places = ArkReader(), read_scp(copy / "data" / "feats.scp")
    crowded = {
        key: AlignedPhones(
            np.array(4 * lang.nonsilence_phones[:4], np.int32)[:30],
            np.r_[0:16, len(reader.load(places[key]))],
        )
        for key in ("w-00", "x-01")
    }
    write_alignments(copy / "two", lang, crowded)
    archive = copy / "ali" / "ali.1.gz"
    write_int_vectors(archive, read_int_vectors(archive) | read_int_vectors(copy / "two" / "ali.1.gz"))
    tolerances = ["--left-tolerance", 0, "--right-tolerance", 0, "--num-epochs", 1]
    with pytest.raises(
        UserError, match=r"2 of 40 utterances have to be left out: 2: it has more phones than"
    ):
        train(copy, tmp_path / "out", *tolerances)
    train(copy, tmp_path / "out", *tolerances, "--max-missing", 0.1, num_ranks=1)
    assert (
        "2 utterances left out: it has more phones than outputs, or too many in a short time: w-00 x-01"
        in capsys.readouterr().out
    )


def test_non_finite_features_are_named(copy, tmp_path):
    reader, places = ArkReader(), read_scp(copy / "data" / "feats.scp")
    with ArkWriter(copy / "data" / "g.ark", copy / "data" / "feats.scp") as writer:
        for key, place in places.items():
            features = np.array(reader.load(place))
            features[5, 2] = np.nan if key == "y-02" else features[5, 2]
            writer.write(key, features)
    with pytest.raises(UserError, match="y-02 has features that are not finite .*frame 5, column 2"):
        train(copy, tmp_path / "out", "--heldout-share", 0)
    with pytest.raises(UserError, match="y-02 has features that are not finite .*frame 5, column 2"):
        run_here(
            "build_chain_tree.py",
            "--nj",
            1,
            *(copy / name for name in ("data", "lang", "ali")),
            tmp_path / "tree",
        )


def test_incompatible_options_give_one_sentence(copy, tmp_path):
    with pytest.raises(UserError, match="--schedule newbob: it depends on the frame-level cross-entropy"):
        train(copy, tmp_path / "out", "--schedule", "newbob")
    with pytest.raises(UserError, match="--network: no network is given; give a file of layers"):
        train(copy, tmp_path / "out", "--network", "none")
    with pytest.raises(UserError, match="--leaky-hmm-coefficient: 0 is below the minimum 1e-06"):
        train(copy, tmp_path / "out", "--leaky-hmm-coefficient", 0)
    (copy / "network.net").write_text("tdnn splice=-1..1 dim=8 stride=2")
    with pytest.raises(
        UserError,
        match="the network has one output per 2 frames, .*/tree was built for one per 3; choose strides",
    ):
        train(copy, tmp_path / "out")
    (copy / "tree" / "phones.txt").write_text("<eps> 0\nSIL 1\n")
    with pytest.raises(UserError, match="phones.txt and .* differ"):
        train(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()
