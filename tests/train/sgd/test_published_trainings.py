"""The trainings of conf/published with steps/train_dnn.py on toy data, ranks in threads. With small networks,
small minibatches and suitable learning rates, but otherwise published options, they learn by the published
scheme. tests/train/sgd/test_train_lfmmi.py does the same for LF-MMI."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from schemes import initial_objective
from steps_here import run_here, step_of
from training_corpora import make_alignments, make_data

from pyasr.base.cli.options import parse, to_json
from pyasr.base.outputs.fingerprint import read_done
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.layered import read_network
from pyasr.train.job.trainer import Trainer
from pyasr.train.sgd.learner import Learner

CONF = Path(__file__).parents[3] / "egs" / "amazon_queen" / "s5" / "conf"
NUM_PDFS = 4
FLAGS = [
    "--device",
    "cpu",
    "--precision",
    "float32",
    "--heldout-by",
    "utterance",
    "--heldout-share",
    0.1,
    "--log-frames",
    500,
]
TOYS = {
    "data",
    "lang",
    "ali_dir",
    "out",
    "network",
    "num_ranks",
    "device",
    "precision",
    "heldout_by",
    "heldout_share",
    "log_frames",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """1,620 frames, in which pdfs last longer than the delay of the LSTMP."""
    return make_corpus(tmp_path_factory.mktemp("corpus"), 40)


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory):
    """710 frames."""
    return make_corpus(tmp_path_factory.mktemp("small"), 18)


def make_corpus(path: Path, num_utterances: int) -> Path:
    lengths = {f"{'ab'[i % 2]}-{i:02d}": 31 + i % 20 for i in range(num_utterances)}
    make_alignments(path / "ali", make_data(path / "data", lengths, NUM_PDFS, stay=12))
    (path / "lang").mkdir()
    (path / "lang" / "phones.txt").write_text("<eps> 0\n")
    return path


@pytest.fixture
def learned(monkeypatch) -> dict[Learner, list[tuple[int, float]]]:
    """(frames, rate) of the minibatches of each learning rank, in order; the rate is that for summed
    gradients."""
    step, seen = Learner.step, defaultdict(list)

    def watched(self, x, pdfs, rate, *others):
        seen[self].append((pdfs.numel(), rate))
        return step(self, x, pdfs, rate, *others)

    monkeypatch.setattr(Learner, "step", watched)
    monkeypatch.setattr(Trainer, "single_rank_speed", lambda self: 0.0)
    return seen


def train(
    corpus: Path, out: Path, conf: str, network: str, num_ranks: int, sizes: dict[str, float], **of_layers
) -> None:
    """Train with conf/published/CONF.conf, except `sizes`, and with a layer file of conf, except the values
    `of_layers`.

    No other option differs from the published ones."""
    layers, config = out.with_name("small.net"), CONF / "published" / f"{conf}.conf"
    layers.write_text(smaller("\n".join(read_network(CONF / network)), of_layers))
    flags = [word for name, value in sizes.items() for word in ("--" + name.replace("_", "-"), value)]
    places = [corpus / name for name in ("data", "lang", "ali")]
    run_here(
        "train_dnn.py",
        "--num-ranks",
        num_ranks,
        "--config",
        config,
        "--network",
        layers,
        *FLAGS,
        *flags,
        *places,
        out,
        threads=True,
    )
    published = flat(to_json(parse(step_of("train_dnn.py")[1], ["--config", str(config), *"xxxx"])[0]))
    assert {
        name for name, value in flat(read_done(out)["options"]).items() if value != published[name]
    } - TOYS == set(sizes)


def smaller(lines: str, values: dict) -> str:
    """A layer file with other values of some options."""
    return re.sub(
        r"\b([a-z]+)=\S+",
        lambda found: f"{found[1]}={values[found[1]]}" if found[1] in values else found[0],
        lines,
    )


def flat(options: dict) -> dict:
    """Options of all groups by name."""
    found = {}
    for name, value in options.items():
        found |= flat(value) if isinstance(value, dict) else {name: value}
    return found


def gain(out: Path, log: str) -> float:
    """Fraction of the initial held-out cross-entropy that the training has removed."""
    report = [
        line
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "heldout_objective" in line
    ]
    return 1 - report[-1]["heldout_objective"] / initial_objective(log)


KALDIS = [
    # frames per minibatch, learning rate, more sizes, values of the layers' options
    ("tdnn_b", "network/tdnn_b.net", 32, 0.2, dict(num_epochs=3), dict(dim=32)),
    (
        "lstmp",
        "published/lstmp.net",
        80,
        0.015,
        dict(num_epochs=6, shrink_value_period_frames=1000),
        dict(dim=24, cells=32, recurrent=16, nonrecurrent=16),
    ),
]


@pytest.mark.parametrize(
    "conf, network, minibatch, rate, more, of_layers", KALDIS, ids=[conf for conf, *_ in KALDIS]
)
def test_kaldi_networks(conf, network, minibatch, rate, more, of_layers, corpus, tmp_path, learned, capsys):
    """One rank learns at the beginning and three at the end. The first iteration has half minibatches and no
    averaging. The effective rate falls to a tenth, times the number of learning ranks. The last models are
    averaged. The LSTMP has an output delay and is shrunk."""
    sizes = dict(
        minibatch=minibatch,
        learning_rate=rate,
        initial_ranks=1,
        period_frames=160,
        sample_frames=300,
        combine_period_frames=160,
        **more,
    )
    train(corpus, tmp_path / "out", conf, network, 3, sizes, **of_layers)
    log, (first, *others) = capsys.readouterr().out, sorted(learned.values(), key=len, reverse=True)
    assert gain(tmp_path / "out", log) > 0.25
    (frames, rates), num_halves = zip(*first), 2 * 160 // minibatch
    assert set(frames[:num_halves]) == {minibatch // 2} and frames[num_halves] == minibatch
    assert len(others) == 2 and len(others[1]) < len(others[0]) < len(first)
    assert rates[0] == pytest.approx(rate) and rates[-1] == pytest.approx(3 * 0.1 * rate, rel=0.25)
    assert "all ranks take the parameters of rank 0" in log and f"effective {rate:g} x 3 = " in log
    assert (
        re.search(r"average of the last \d+ of \d\d models: ", log)
        and "combined model: held-out objective" in log
    )
    assert ("saturation of units " in log) == (conf == "lstmp")
    network = load_scorer(tmp_path / "out").network
    assert (network.left, network.right) == ((42, 7) if conf == "lstmp" else (15, 15))


def test_ibm_network(small_corpus, tmp_path, learned, capsys):
    """Both ranks apply the same updates. The rate is for the minibatch of both; it rises by a factor of ten
    in ten epochs, then falls by a factor of the square root of two per epoch."""
    minibatch = 2 * 21
    train(
        small_corpus,
        tmp_path / "out",
        "ibm",
        "network/ibm.net",
        2,
        dict(minibatch=minibatch),
        cells=8,
        dim=8,
        repeat=2,
    )
    assert gain(tmp_path / "out", capsys.readouterr().out) > 0.25
    assert all(learner.gradient_sum is not None for learner in learned)
    for minibatches in learned.values():
        rates = [rate * minibatch for _, rate in minibatches]
        assert (
            rates[0] == 1.0
            and max(rates) == pytest.approx(10, rel=0.05)
            and rates[-1] == pytest.approx(10 * 0.5 ** (6 / 2))
        )


def test_chan_network(corpus, tmp_path, learned, capsys):
    """Three shards learn and a server does not. The rate is halved after every epoch, which may end while a
    shard is still learning."""
    sizes, name = dict(minibatch=16, learning_rate=0.5, num_epochs=4), "tc_dnn_blstm_dnn"
    train(
        corpus,
        tmp_path / "out",
        name,
        f"network/{name}.net",
        4,
        sizes,
        dim=24,
        cells=8,
        left=3,
        right=3,
        init=0.3,
    )
    assert gain(tmp_path / "out", capsys.readouterr().out) > 0.25
    rates = sorted({rate * 16 for minibatches in learned.values() for _, rate in minibatches}, reverse=True)
    assert len(learned) == 3 and rates[:4] == pytest.approx([0.5, 0.25, 0.125, 0.0625]) and len(rates) <= 5
