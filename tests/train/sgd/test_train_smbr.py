"""steps/train_smbr.py on lattices decoded by a weak network, ranks in threads: objectives rise, and errors
are reported by name."""

import contextlib
import json
import shutil
from dataclasses import replace

import pytest
import torch
from lattice_corpus import LENGTHS, NUM_PDFS, SCALE, SILENCES, write_lattice_corpus
from schemes import KINDS_OF_SCHEMES, fitting
from steps_here import run_here, step_of
from toy_jobs import power_cut
from training_corpora import DIM, transition_model

from pyasr.base.cli.options import HelpRequested, parse, to_json
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import DONE
from pyasr.decode.lattices.compact_lattice import to_compact
from pyasr.decode.lattices.lattice import Lattice
from pyasr.decode.lattices.lattice_io import read_either, write_lattices
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io.int_vectors import read_int_vectors, read_job_archives, write_int_vectors
from pyasr.io.kaldi_objects import KaldiWriter
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.sequence.lattices.hypotheses import hypotheses_of
from pyasr.sequence.lattices.lattice_criteria import CriterionOptions, evaluate
from pyasr.sequence.lattices.tid_classes import TidClasses
from pyasr.train.sgd.learner import Learner

FLAGS = [
    "--acoustic-scale",
    SCALE,
    "--learning-rate",
    0.004,
    "--lr-scaling",
    "none",
    "--precision",
    "float32",
    "--heldout-share",
    0.2,
    "--period-frames",
    60,
    "--log-frames",
    200,
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_lattice_corpus(tmp_path_factory.mktemp("lattices"))


@pytest.fixture
def copy(corpus, tmp_path):
    """A corpus that a test may change."""
    return shutil.copytree(corpus, tmp_path / "corpus")


def train(path, out, *flags, num_ranks=2):
    places = [path / name for name in ("data", "lang", "ali", "denlats", "dnn")]
    run_here(
        "train_smbr.py", "--num-ranks", num_ranks, *fitting([*FLAGS, *flags]), *places, out, threads=True
    )
    return out


def lattices(path) -> dict:
    return {
        key: lattice for job in (1, 2) for key, lattice in read_either(path / "denlats" / f"lat.{job}.gz")
    }


def objective(path, model_dir, options: CriterionOptions) -> float:
    """Objective per frame over the whole corpus, computed from the files."""
    reader, scorer = FeatureReader(path / "data", InputOptions.load(model_dir)), load_scorer(model_dir)
    references = read_job_archives(path / "ali")
    trans = read_transitions(model_dir / "final.mdl")
    classes = TidClasses.of(trans, list(SILENCES))
    values = [
        evaluate(
            scorer.log_likelihoods(reader[key]),
            hypotheses_of(lattice, trans.num_tids),
            references[key],
            classes,
            options,
        )
        for key, lattice in lattices(path).items()
    ]
    return sum(value.objective for value in values) / sum(LENGTHS.values())


def parameters(out) -> torch.Tensor:
    return torch.cat([value.flatten() for value in load_scorer(out).network.parameters()])


@pytest.mark.parametrize(
    "flags, gain",
    [
        ({"criterion": "smbr"}, 0.05),
        ({"criterion": "mpfe", "one_silence_class": False}, 0.05),
        ({"criterion": "mmi"}, 0.05),
        ({"criterion": "mmi", "boost": 0.1}, 0.05),
    ],
)
def test_training_raises_objective(corpus, tmp_path, flags, gain):
    words = [
        word for name, value in flags.items() for word in ("--" + name.replace("_", "-"), str(value).lower())
    ]
    out, options = train(corpus, tmp_path / "out", *words), CriterionOptions(acoustic_scale=SCALE, **flags)
    assert objective(corpus, out, options) > objective(corpus, corpus / "dnn", options) + gain
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    heldout = [line["heldout_objective"] for line in lines if "heldout_objective" in line]
    assert len(heldout) == 4 and heldout[-1] > heldout[0]
    before, after = load_scorer(corpus / "dnn"), load_scorer(out)
    assert all(
        torch.equal(getattr(before, name), getattr(after, name))
        for name in ("mean", "inverse_std", "log_priors")
    )
    assert InputOptions.load(out) == InputOptions.load(corpus / "dnn")
    assert {path.name for path in out.iterdir()} >= {
        "final.nnet",
        "final.mdl",
        "tree",
        "input.json",
        "phones.txt",
        "metrics.jsonl",
    }
    assert not list(out.glob("*.npz*")) and not list(out.glob("*.npy")) and not (out / "checkpoint").exists()


def test_reported_objective_equals_that_of_files(corpus, tmp_path):
    """Without learning, and without a held-out set."""
    out = train(
        corpus, tmp_path / "out", "--learning-rate", 0, "--num-epochs", 1, "--heldout-share", 0, num_ranks=1
    )
    (line,) = [
        json.loads(line)
        for line in (out / "metrics.jsonl").read_text().splitlines()
        if "train_objective" in line
    ]
    assert line["train_objective"] == pytest.approx(
        objective(corpus, out, CriterionOptions(acoustic_scale=SCALE)), abs=1e-5
    )
    assert torch.equal(parameters(out), parameters(corpus / "dnn"))


def test_fraction_of_rejected_frames_is_reported(corpus, tmp_path, capsys):
    """In the log and the metrics, as a share of all frames, without learning. A frame is rejected if no path
    of the lattice has the reference's state."""
    references = read_job_archives(corpus / "ali")
    pdfs = read_transitions(corpus / "dnn" / "final.mdl").tid2pdf
    num_absent = sum(
        sum(pdfs[reference[t]] not in states for t, states in enumerate(states_of(lattice, pdfs)))
        for key, lattice in lattices(corpus).items()
        for reference in [references[key]]
    )
    share = num_absent / sum(LENGTHS.values())
    flags = ["--criterion", "mmi", "--learning-rate", 0, "--num-epochs", 1, "--heldout-share", 0]
    report = []
    for drop_frames in ("true", "false"):
        out = train(corpus, tmp_path / drop_frames, *flags, "--drop-frames", drop_frames, num_ranks=1)
        metrics = (out / "metrics.jsonl").read_text().splitlines()
        report += [json.loads(line)["train_rejected"] for line in metrics if "train_rejected" in line]
        assert (f"{share:.2%} of the frames rejected" in capsys.readouterr().out) == (drop_frames == "true")
    assert report == [pytest.approx(share, abs=1e-6), 0] and 0 < share < 0.5


def states_of(lattice, pdfs) -> list[set]:
    """Pdfs at each frame, of all paths."""
    one = hypotheses_of(lattice, len(pdfs) - 1)
    return [set(pdfs[one.tids[one.frames == t]]) for t in range(one.num_frames)]


@pytest.mark.parametrize(
    "flags",
    [["--parallel", name] for name in KINDS_OF_SCHEMES]
    + [["--first-mixing", "best"], ["--minibatch", 80], ["--data-assignment", "all"]],
    ids=lambda flags: flags[-1],
)
def test_schemes_and_minibatches_raise_objective(corpus, tmp_path, flags):
    options = CriterionOptions(acoustic_scale=SCALE)
    out = train(corpus, tmp_path / "out", "--num-epochs", 2, *flags, num_ranks=3 if "asgd" in flags else 2)
    assert objective(corpus, out, options) > objective(corpus, corpus / "dnn", options) + 0.02


@pytest.mark.parametrize(
    "minibatch, mean", [(1, sum(LENGTHS.values()) / len(LENGTHS)), (10**6, sum(LENGTHS.values()))]
)
def test_learning_rate_conventions_are_equivalent(minibatch, mean, corpus, tmp_path, capsys):
    """The divisor of --lr-convention mean is the average number of frames per minibatch."""
    flags = ["--num-epochs", 1, "--minibatch", minibatch, "--heldout-share", 0]
    summed = parameters(train(corpus, tmp_path / "sum", *flags, num_ranks=1))
    out = train(
        corpus,
        tmp_path / "mean",
        *flags,
        "--lr-convention",
        "mean",
        "--learning-rate",
        0.004 * mean,
        num_ranks=1,
    )
    torch.testing.assert_close(parameters(out), summed, rtol=1e-5, atol=1e-7)
    assert f"(mean over minibatches of {mean:.6g})" in capsys.readouterr().out


def test_minibatches_are_whole_utterances(corpus, tmp_path, monkeypatch):
    learn, seen = Learner.step, []

    def watched(self, x, supervision, *arguments):
        assert len(x) == len(supervision) == supervision.numel()
        seen.append([len(reference) for reference in supervision.references])
        return learn(self, x, supervision, *arguments)

    monkeypatch.setattr(Learner, "step", watched)
    train(corpus, tmp_path / "out", "--num-epochs", 2, "--minibatch", 64, "--heldout-share", 0, num_ranks=1)
    assert sorted(sum(seen, [])) == sorted(2 * list(LENGTHS.values())) and max(map(len, seen)) == 2
    assert all(len(lengths) == 1 or sum(lengths) <= 64 for lengths in seen)


def test_interrupted_training_resumes(corpus, tmp_path):
    flags = ["--checkpoint-frames", 150, "--momentum", 0.5, "--num-epochs", 2]
    whole = train(corpus, tmp_path / "whole", *flags, num_ranks=1)
    with power_cut(Learner, 19):
        train(corpus, tmp_path / "cut", *flags, num_ranks=1)
    assert not (tmp_path / "cut").exists()
    assert torch.equal(parameters(train(corpus, tmp_path / "cut", *flags, num_ranks=1)), parameters(whole))


def test_other_number_of_ranks_resumes(corpus, tmp_path, capsys):
    """Both continue within the epoch; only utterances at a boundary may be trained on twice or skipped."""
    flags = ["--checkpoint-frames", 150, "--num-epochs", 2]
    with power_cut(Learner, 8):
        train(corpus, tmp_path / "out", *flags, num_ranks=1)
    train(corpus, tmp_path / "out", *flags)
    assert "epoch 1, with 2 ranks instead of 1" in capsys.readouterr().out
    one, two = [
        json.loads(line)["frames"]
        for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
        if "accepted" in line
    ]
    assert abs(two - 2 * one) <= 2 * max(LENGTHS.values())


def test_utterances_without_matching_lattice_are_named(copy, tmp_path, capsys):
    found = lattices(copy)
    found["b-01"] = found["a-00"]
    del found["c-02"]
    for job in (1, 2):
        write_lattices(copy / "denlats" / f"lat.{job}.gz", list(found.items())[job - 1 :: 2])
    with pytest.raises(
        UserError,
        match=r"2 of 16 utterances have to be left out: 1: the lattice has another number of .* \(b-01\)",
    ):
        train(copy, tmp_path / "out")
    train(copy, tmp_path / "out", "--max-missing", 0.2, "--num-epochs", 1, "--heldout-share", 0)
    output = capsys.readouterr().out
    assert (
        "1 utterances left out: the lattice has another number of frames than the alignment: b-01" in output
    )
    assert "1 utterances left out: there is no lattice: c-02" in output
    (frames,) = [
        json.loads(line)["frames"]
        for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
        if "accepted" in line
    ]
    assert frames == sum(LENGTHS.values()) - LENGTHS["b-01"] - LENGTHS["c-02"]


@pytest.mark.parametrize("theirs, message", [(1 / 12, True), (SCALE, False), (0.2999, False)])
def test_lattices_of_other_scale_are_reported(copy, tmp_path, capsys, theirs, message):
    """The scale is read from the options that steps/decode.py saves."""
    options, _ = parse(step_of("decode.py")[1], ["--acoustic-scale", str(theirs), "graph", "data", "denlats"])
    (copy / "denlats" / DONE).write_text(json.dumps({"options": to_json(options), "inputs": {}}))
    train(copy, tmp_path / "out", "--num-epochs", 1, num_ranks=1)
    chosen = "the lattices were decoded at --acoustic-scale 0.0833333, which determined their paths"
    assert (
        f"denlats: {chosen}, but the training uses 0.3; give both steps the same scale"
        in capsys.readouterr().out
    ) == message


CRITERIA = [
    (["--criterion", "smbr"], True),
    (["--criterion", "mpfe"], True),
    (["--criterion", "mmi", "--boost", 0.1], True),
    (["--criterion", "mmi"], False),
]


@pytest.mark.parametrize(
    "flags, goes_by_silence",
    CRITERIA,
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_invalid_silence_lists_are_refused(copy, tmp_path, capsys, flags, goes_by_silence):
    """A criterion that does not use the list accepts any list."""
    flags = [*flags, "--num-epochs", 1, "--heldout-share", 0]
    (copy / "lang/phones/silence.int").write_text("")
    train(copy, tmp_path / "empty", *flags, num_ranks=1)
    report = (
        f"silence.int: the list is empty, so --criterion {flags[1]} treats all phones as speech; list "
        "the silence phones"
    )
    assert (report in capsys.readouterr().out) == goes_by_silence
    (copy / "lang/phones/silence.int").write_text("5\n77\n")
    report = (
        r"silence.int: phone 77 is not in \S*dnn/final.mdl; give the lang directory that the model was "
        r"trained with"
    )
    with pytest.raises(UserError, match=report) if goes_by_silence else contextlib.nullcontext():
        train(copy, tmp_path / "foreign", *flags, num_ranks=1)
    assert (tmp_path / "foreign").exists() != goes_by_silence


def with_dropout(path, share: float) -> None:
    """Give the network's only hidden layer dropout."""
    plain, options = load_scorer(path / "dnn"), DnnOptions(hidden_layers=1, hidden_dim=2 * DIM, dropout=share)
    network = FeedForward(options, 3 * DIM, NUM_PDFS)
    with torch.no_grad():
        for ours, theirs in zip(network.parameters(), plain.network.parameters(), strict=True):
            ours.copy_(theirs)
    replace(plain, network=network).save(path / "dnn" / "final.nnet")


def test_gradients_without_dropout_use_whole_network(copy, tmp_path, capsys):
    flags = ["--num-epochs", 1, "--heldout-share", 0]
    whole = parameters(train(copy, tmp_path / "whole", *flags, num_ranks=1))
    with_dropout(copy, 0.5)
    assert torch.equal(
        parameters(train(copy, tmp_path / "off", *flags, "--dropout-schedule", "0,0", num_ranks=1)), whole
    )
    assert not torch.equal(parameters(train(copy, tmp_path / "on", *flags, num_ranks=1)), whole)
    module, cls = step_of("train_smbr.py")
    with pytest.raises(HelpRequested) as caught:
        parse(cls, ["--help"], module.__doc__)
    assert (
        "stays active, also for posteriors and derivatives; --dropout-schedule 0,0 turns it off"
        in " ".join(str(caught.value).split())
    )


def test_lattices_of_other_model_are_refused(copy, tmp_path):
    """Even if the model has all their transition-ids."""
    num_tids = read_transitions(copy / "dnn" / "final.mdl").num_tids
    other = {
        key: to_compact(lattice) if isinstance(lattice, Lattice) else lattice
        for key, lattice in lattices(copy).items()
    }
    other = {key: replace(lattice, tids=lattice.tids % num_tids + 1) for key, lattice in other.items()}
    write_lattices(copy / "denlats" / "lat.1.gz", list(other.items()))
    report = (
        "denlats/lat.1.gz: a-00: not a path through the phones' HMMs around frame .*; give lattices that were"
    )
    with pytest.raises(UserError, match=report):
        train(copy, tmp_path / "out")


def test_incompatible_options_give_one_sentence(copy, tmp_path):
    with pytest.raises(UserError, match="--schedule newbob: it depends on the frame-level cross-entropy"):
        train(copy, tmp_path / "out", "--schedule", "newbob")
    file = copy / "ali" / "ali.1.gz"
    alignments = read_int_vectors(file)
    write_int_vectors(file, {key: vector[:-1] for key, vector in alignments.items()})
    with pytest.raises(UserError, match="does not match"):
        train(copy, tmp_path / "out")
    write_int_vectors(file, alignments)
    with KaldiWriter(copy / "ali" / "final.mdl") as writer:
        transition_model(7)[0].write(writer)
    with pytest.raises(UserError, match="different transition models; align with the network"):
        train(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def have_network_over_time(path) -> None:
    """Replace the network of a corpus by one whose first layer splices."""
    InputOptions(cmvn="none").save(path / "dnn")
    weak, network = load_scorer(path / "dnn"), LayeredNetwork(["tdnn dim=12 splice=-1..1"], DIM, NUM_PDFS)
    with torch.no_grad():
        for ours, theirs in zip(network.parameters(), weak.network.parameters(), strict=True):
            ours.copy_(theirs)
    assert torch.equal(weak.mean[:DIM].repeat(3), weak.mean)
    AcousticModel(network, weak.mean[:DIM], weak.inverse_std[:DIM], weak.log_priors).save(
        path / "dnn" / "final.nnet"
    )


@pytest.mark.parametrize("scheme", ["allreduce", "gradient"])
def test_splicing_layer_equals_spliced_frames(copy, tmp_path, scheme):
    """A network whose first layer splices learns the same as one on spliced frames, also with several
    utterances per minibatch."""
    flags = ["--minibatch", 100, "--num-epochs", 2, "--parallel", scheme]
    spliced = train(copy, tmp_path / "spliced", *flags)
    have_network_over_time(copy)
    over_time = train(copy, tmp_path / "over_time", *flags)
    assert (parameters(spliced) - parameters(copy / "dnn")).abs().max() > 0.01
    torch.testing.assert_close(parameters(over_time), parameters(spliced), atol=1e-4, rtol=1e-4)


def test_natural_gradient_sums_over_utterances(copy, tmp_path):
    """Natural gradient sums the gradients of a layer over the utterances of a minibatch one by one, before
    ranks sum theirs."""
    have_network_over_time(copy)
    flags = [
        "--parallel",
        "gradient",
        "--minibatch",
        100,
        "--num-epochs",
        2,
        "--max-change",
        1,
        "--natural-gradient",
        "online",
    ]
    out, options = train(copy, tmp_path / "out", *flags), CriterionOptions(acoustic_scale=SCALE)
    assert objective(copy, out, options) > objective(copy, copy / "dnn", options) + 0.02


def test_score_factor_is_kept(copy, tmp_path):
    """Only the product of the factor and the acoustic scale matters."""
    plain = train(copy, tmp_path / "plain", "--num-epochs", 2, "--frame-smoothing", 0.1)
    replace(load_scorer(copy / "dnn"), factor=10.0).save(copy / "dnn" / "final.nnet")
    scaled = train(
        copy, tmp_path / "scaled", "--num-epochs", 2, "--frame-smoothing", 0.1, "--acoustic-scale", SCALE / 10
    )
    assert (
        load_scorer(scaled).factor == 10 and (parameters(plain) - parameters(copy / "dnn")).abs().max() > 0.01
    )
    torch.testing.assert_close(parameters(scaled), parameters(plain), atol=1e-4, rtol=1e-4)


def test_features_of_other_kind_are_refused(copy, tmp_path):
    InputOptions(cmvn="none", splice_left=1, splice_right=2).save(copy / "dnn")
    with pytest.raises(
        UserError, match="the model 18 columns; give the features that the model was trained on"
    ):
        train(copy, tmp_path / "out", num_ranks=1)
