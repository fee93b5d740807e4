"""steps/train_ctc.py on synthetic speech, ranks in threads: networks learn to spell, and errors are reported
by name."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest
import torch
from schemes import KINDS_OF_SCHEMES, SCHEME_FLAGS, fitting, initial_objective, ranks_for
from steps_here import run_here, step_of
from toy_jobs import power_cut
from training_corpora import write_table

from pyasr.base.cli.options import HelpRequested, parse
from pyasr.base.errors import UserError
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.lang.lang_dirs.subwords import Subwords
from pyasr.nn.networks.acoustic import load_model
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.train.compute import ComputeOptions
from pyasr.train.minibatches.padded_utterances import PaddedUtterances
from pyasr.train.objectives.ctc_training import Ctc
from pyasr.train.sgd.learner import Learner
from pyasr.train.steps.ctc_step import CtcStep
from pyasr.train.steps.loss import Loss
from pyasr.train.targets.pdf_targets import Targets

DIM, LETTERS = 8, "abcdef"
NETWORK = "tdnn splice=-1..1 dim=32\ntdnn splice=-1..1 dim=32 stride=2\nblstm cells=16"


def write_corpus(path, num_utterances=60, seed=1):
    """Words of letters. Each letter, and the pause before a word, is a feature vector that lasts 4 to 7
    frames."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(9).standard_normal((len(LETTERS) + 1, DIM))
    texts, frames = {}, {}
    for i in range(num_utterances):
        words = ["".join(rng.choice(list(LETTERS), rng.integers(2, 5))) for _ in range(rng.integers(1, 4))]
        letters = [(LETTERS + " ").index(letter) for letter in " " + " ".join(words)]
        times = rng.integers(4, 8, len(letters))
        key = f"{'wxyz'[i % 4]}-{i:02d}"
        texts[key] = " ".join(words)
        frames[key] = (
            centres[np.repeat(letters, times)] + 0.3 * rng.standard_normal((times.sum(), DIM))
        ).astype(np.float32)
    path.mkdir(parents=True)
    with ArkWriter(path / "f.ark", path / "feats.scp") as writer:
        for key in sorted(frames):
            writer.write(key, frames[key])
    write_table(path / "utt2spk", {key: key[0] for key in sorted(frames)})
    write_table(path / "utt2num_frames", {key: len(frames[key]) for key in sorted(frames)})
    write_table(path / "text", dict(sorted(texts.items())))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("ctc")
    write_corpus(path / "data")
    run_here("train_subwords.py", "--num-units", 9, path / "data", path / "units", folder="utils")
    (path / "network.net").write_text(NETWORK)
    return path


def train(corpus, out, *flags, data=None, num_ranks=2):
    run_here("train_ctc.py", "--num-ranks", num_ranks, "--cmvn", "none", "--precision", "float32",
             "--minibatch", 300, "--heldout-share", 0.1, "--heldout-by", "utterance", *flags,
             data or corpus / "data", corpus / "units", corpus / "network.net", out,
             threads=True)  # fmt: skip
    return out


def epochs(out) -> list[dict]:
    return [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "heldout_objective" in line
    ]


def spelled(corpus, out) -> float:
    """Share of utterances whose best path is spelled correctly."""
    model = load_model(out / "final.nnet")
    reader = FeatureReader(corpus / "data", InputOptions.load(out))
    subwords = Subwords.read(out / "units")
    texts, right = dict(line.split(" ", 1) for line in (corpus / "data" / "text").read_text().splitlines()), 0
    for key in reader.keys:
        best = [
            int(unit) for unit, _ in itertools.groupby(model.log_posteriors(reader[key]).argmax(1)) if unit
        ]
        right += best == subwords.encode(texts[key]).tolist()
    return right / len(reader.keys)


def test_network_learns_to_spell(corpus, tmp_path):
    flags = [
        "--natural-gradient",
        "online",
        "--ng-rank-in",
        4,
        "--ng-rank-out",
        4,
        "--num-epochs",
        30,
        "--final-factor",
        0.1,
    ]
    out = train(
        corpus, tmp_path / "out", *flags, "--learning-rate", 0.8, "--max-change", 2.0, "--period-frames", 300
    )
    ends = epochs(out)
    assert ends[-1]["heldout_objective"] > -0.3 > ends[0]["heldout_objective"]
    assert spelled(corpus, out) > 0.5  # doubled letters cannot be heard


def test_default_rate_learns(corpus, tmp_path, capsys):
    out = train(corpus, tmp_path / "out", "--num-epochs", 10, num_ranks=1)
    assert epochs(out)[-1]["heldout_objective"] > 0.7 * initial_objective(capsys.readouterr().out)


def test_mean_convention_divides_by_units(corpus, tmp_path, capsys):
    """The rate for the mean, and for the sum the rate divided by the mean number of units, give the same
    network."""
    flags = ["--num-epochs", 1, "--heldout-share", 0]
    train(corpus, tmp_path / "mean", *flags, "--learning-rate", 0.2, num_ranks=1)
    said = float(re.search(r"mean over minibatches of ([\d.]+)\)", capsys.readouterr().out)[1])
    train(
        corpus, tmp_path / "sum", *flags, "--lr-convention", "sum", "--learning-rate", 0.2 / said, num_ranks=1
    )
    for mean, total in zip(
        *(load_model(tmp_path / name / "final.nnet").network.parameters() for name in ("mean", "sum"))
    ):
        torch.testing.assert_close(mean, total)


def test_utt2uniq_may_be_added_later(corpus, tmp_path, capsys):
    """Copies are held out together, so a model is out of date once utt2uniq is written."""
    shutil.copytree(corpus / "data", tmp_path / "data")
    for message in (None, "is up to date", "out of date: "):
        if message == "out of date: ":
            write_table(
                tmp_path / "data" / "utt2uniq",
                dict.fromkeys(FeatureReader(corpus / "data", InputOptions(cmvn="none")).keys[:2], "x"),
            )
        train(corpus, tmp_path / "out", "--num-epochs", 1, data=tmp_path / "data", num_ranks=1)
        assert message is None or message in capsys.readouterr().out


class Doubled(Ctc):
    def loss(self, *arguments):
        loss, sums = super().loss(*arguments)
        return 2 * loss, sums * torch.tensor([2.0, 1.0, 1.0])


def test_step_may_use_another_loss(corpus, tmp_path, monkeypatch):
    """Twice the loss at half the rate gives a bit-identical result, and the reported loss is doubled."""
    flags = ["--num-epochs", 1, "--learning-rate"]
    train(corpus, tmp_path / "ctc", *flags, 0.25, num_ranks=1)
    monkeypatch.setattr(CtcStep, "loss", property(lambda step: Loss(f"{__name__}:Doubled")))
    train(corpus, tmp_path / "doubled", *flags, 0.125, num_ranks=1)
    one, other = (
        load_model(tmp_path / name / "final.nnet").network.state_dict() for name in ("ctc", "doubled")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert epochs(tmp_path / "doubled")[0]["heldout_objective"] == pytest.approx(
        2 * epochs(tmp_path / "ctc")[0]["heldout_objective"], abs=2e-6
    )


def test_priors_equal_those_of_transcripts(corpus, tmp_path):
    """A blank before every unit and after the last; one is added to all counts. Held-out utterances count
    too."""
    model = load_model(train(corpus, tmp_path / "out", "--num-epochs", 1, num_ranks=1) / "final.nnet")
    subwords = Subwords.read(corpus / "units")
    said = [
        subwords.encode(line.split(" ", 1)[1]).tolist()
        for line in (corpus / "data/text").read_text().splitlines()
    ]
    labels = [label for units in said for unit in units for label in (0, unit)] + [0] * len(said)
    counts = np.array([labels.count(unit) + 1 for unit in range(len(subwords))])
    np.testing.assert_allclose(model.log_priors.exp().numpy(), counts / counts.sum(), rtol=1e-5)
    assert model.factor == 10


@pytest.mark.parametrize("scheme", KINDS_OF_SCHEMES)
def test_each_kind_of_scheme_learns(corpus, tmp_path, capsys, scheme):
    # these move further than the mean
    rate = 0.08 if scheme in ("asgd", "bmuf", "bmuf-classical", "diloco", "slowmo") else 0.4
    flags = fitting(
        [
            "--parallel",
            scheme,
            *SCHEME_FLAGS.get(scheme, []),
            "--period-frames",
            600,
            "--num-epochs",
            2,
            "--learning-rate",
            rate,
        ]
    )
    out = train(
        corpus,
        tmp_path / "out",
        *flags,
        "--max-change",
        2,
        "--lr-scaling",
        "none",
        num_ranks=ranks_for(scheme),
    )
    begun = initial_objective(capsys.readouterr().out)
    assert epochs(out)[-1]["heldout_objective"] > 0.85 * begun


def test_ranks_that_draw_from_all_data_learn(corpus, tmp_path, capsys):
    """Each rank has all utterances and draws half of them in an epoch."""
    flags = [
        "--parallel",
        "gradient",
        "--data-assignment",
        "all",
        "--num-epochs",
        2,
        "--learning-rate",
        0.4,
        "--max-change",
        2,
    ]
    out = train(corpus, tmp_path / "out", *flags, "--lr-scaling", "none")
    said = capsys.readouterr().out
    assert epochs(out)[-1]["heldout_objective"] > 0.85 * initial_objective(said)
    whole, drawn = map(
        int,
        re.search(r"in (\d+) utterances, read from disk in each epoch, (\d+) of them drawn", said).groups(),
    )
    assert drawn == whole // 2 > 20


def test_other_number_of_ranks_resumes(corpus, tmp_path, capsys):
    flags = ["--checkpoint-frames", 600, "--period-frames", 300, "--num-epochs", 2, "--learning-rate", 0.2]
    with power_cut(Learner, 8):
        train(corpus, tmp_path / "out", *flags, num_ranks=1)
    train(corpus, tmp_path / "out", *flags)
    assert "epoch 1, with 2 ranks instead of 1" in capsys.readouterr().out
    one, two = [line["frames"] for line in epochs(tmp_path / "out")]
    assert abs(two - 2 * one) <= 2 * 300  # up to one minibatch per rank


def test_utterances_in_minibatch_are_independent(corpus):
    """The outputs for each utterance equal those of decoding it alone. Each utterance occurs once per epoch,
    in a minibatch with utterances of similar length."""
    reader = FeatureReader(corpus / "data", InputOptions(cmvn="none"))
    targets = Targets(
        reader.keys,
        np.arange(len(reader.keys) + 1),
        np.arange(len(reader.keys), dtype=np.int32) + 1,
        np.zeros(len(reader.keys), bool),
        100,
    )
    utterances = PaddedUtterances(
        reader, targets, reader.keys, ComputeOptions(minibatch=200, device="cpu", precision="float64"), 5, 0
    )
    network = LayeredNetwork(["blstm cells=8", *NETWORK.splitlines()], DIM, 10).double()
    network.initialise(torch.Generator().manual_seed(1))
    torch.nn.init.normal_(network.output.weight)
    utterances.normalise_by(np.zeros(DIM, np.float32), np.ones(DIM, np.float32), network)
    seen = []
    for x, supervision in utterances.minibatches(0, 1):
        assert supervision.numel() <= 200 or len(supervision.names) == 1
        answers = torch.log_softmax(network(x, torch.from_numpy(supervision.lengths)), 2)
        for row, name, frames in zip(answers, supervision.names, supervision.num_frames):
            features = torch.from_numpy(reader[name]).double()
            assert frames == -(-len(features) // 2)
            torch.testing.assert_close(row[:frames], network.log_posteriors(features), rtol=0, atol=1e-12)
            seen.append(name)
    assert sorted(seen) == reader.keys
    whole = list(utterances.minibatches(0, 2))
    done = whole[0][1].numel()
    rest = list(utterances.minibatches(0, 2, done))
    assert [supervision.names for _, supervision in rest] == [
        supervision.names for _, supervision in whole[1:]
    ]


def test_help_leaves_out_splicing_options():
    module, cls = step_of("train_ctc.py")
    with pytest.raises(HelpRequested) as caught:
        parse(cls, ["--help"], module.__doc__)
    assert "which also define the splicing of the input" in str(caught.value)
    assert "--splice" not in str(caught.value)


def spell_otherwise(data, change, num_changed) -> None:
    """Change the texts of the first `num_changed` utterances."""
    rows = [line.split(" ", 1) for line in (data / "text").read_text().splitlines()]
    write_table(
        data / "text", {key: change(text) if n < num_changed else text for n, (key, text) in enumerate(rows)}
    )


@pytest.mark.parametrize("change, letters, advice", [
    (lambda text: "QZ" + text, "Q Z",
     r"train the units on these transcripts \(utils/train_subwords.py\), or raise --max-missing"),
    (str.upper, "A B C D E F",
     "convert these transcripts and the text of the units to one letter case, such as with tr A-Z a-z, or "
     "raise --max-missing"),
    (lambda text: text.upper() + "q", "A B C D E F q",
     r"to one letter case, such as with tr A-Z a-z, train the units on these transcripts \(utils/"),
])  # fmt: skip
def test_letters_without_units_are_named(corpus, tmp_path, capsys, change, letters, advice):
    shutil.copytree(corpus / "data", tmp_path / "data")
    spell_otherwise(tmp_path / "data", change, 30)
    with pytest.raises(
        UserError,
        match=rf"30 of 60 utterances .*its transcript has letters that no unit has: {letters} \(w-.*{advice}",
    ):
        train(corpus, tmp_path / "out", data=tmp_path / "data")
    train(
        corpus, tmp_path / "out", "--max-missing", 0.5, "--num-epochs", 1, data=tmp_path / "data", num_ranks=1
    )
    assert (
        f"30 utterances left out: its transcript has letters that no unit has: {letters}: w-00 "
        in capsys.readouterr().out
    )
    targets = [
        Subwords.read(corpus / "units").encode(line.split(" ", 1)[1])
        for line in (corpus / "data/text").read_text().splitlines()[30:]
    ]
    num_units = sum(map(len, targets))
    prior = load_model(tmp_path / "out" / "final.nnet").log_priors.exp()[1]
    assert prior == pytest.approx(1 / (2 * num_units + 30 + len(Subwords.read(corpus / "units"))), rel=1e-5)


def test_unknown_word_is_learned(corpus, tmp_path):
    """As the unit <unk>."""
    shutil.copytree(corpus / "data", tmp_path / "data")
    spell_otherwise(tmp_path / "data", lambda text: " ".join(["<unk>", *text.split()[1:]]), 30)
    model = load_model(
        train(corpus, tmp_path / "out", "--num-epochs", 1, data=tmp_path / "data", num_ranks=1) / "final.nnet"
    )
    priors, subwords = model.log_priors.exp(), Subwords.read(corpus / "units")
    texts = [line.split(" ", 1)[1] for line in (tmp_path / "data" / "text").read_text().splitlines()]
    num_units = sum(len(subwords.encode(text)) for text in texts)
    assert priors[1] == pytest.approx((30 + 1) / (2 * num_units + len(texts) + len(subwords)), rel=1e-5)


def test_unusable_data_are_refused(corpus, tmp_path):
    write_corpus(tmp_path / "data", 10)
    lines = (tmp_path / "data" / "text").read_text().splitlines()
    lines[0] += " " + " ".join(40 * ["abcdef"])
    (tmp_path / "data" / "text").write_text("\n".join(lines[:9]) + "\n")
    with pytest.raises(
        UserError, match=r"2 of 10 utterances have to be left out: .*lower the stride of the network"
    ):
        train(corpus, tmp_path / "out", data=tmp_path / "data")
    train(
        corpus, tmp_path / "out", "--max-missing", 0.3, "--num-epochs", 1, data=tmp_path / "data", num_ranks=1
    )
    with pytest.raises(UserError, match="--schedule newbob: it depends on the frame-level cross-entropy"):
        train(corpus, tmp_path / "other", "--schedule", "newbob")
