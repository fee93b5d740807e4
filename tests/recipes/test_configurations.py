"""Option files of all recipes, and networks of the Amazon Queen recipe: steps accept them, and published
networks have the published structure."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from steps_here import step_of
from training_corpora import make_data

from pyasr.base.cli.option_flags import positionals_of
from pyasr.base.cli.options import parse
from pyasr.feats.inputs import FeatureReader
from pyasr.nn.networks.acoustic import MODEL_FILE, load_model
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.parallel.communication.comm import SoloComm
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.targets.pdf_targets import TARGETS_FILE

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs" / "amazon_queen" / "s5"
CONFS = [
    (recipe, path.relative_to(recipe))
    for recipe in sorted((ROOT / "egs").glob("*/s5"))
    for path in sorted((recipe / "conf").rglob("*.conf"))
]
NETWORKS = sorted((RECIPE / "conf").glob("*/*.net"))
STEPS = {"dbn_512": "pretrain_dbn", "dbn_quick": "pretrain_dbn", "chain": "train_lfmmi",
         "chain_mini": "train_lfmmi", "ctc": "train_ctc", "dbn": "pretrain_dbn",
         "decode_fmllr": "decode_fmllr", "fbank": "make_fbank", "ivector": "train_ivector_extractor",
         "mfcc": "make_mfcc", "mfcc_hires": "make_mfcc", "pitch": "make_mfcc", "plp": "make_plp",
         "smbr": "train_smbr", "mmi": "train_smbr", "toy_dbn": "pretrain_dbn",
         "toy_ivector": "train_ivector_extractor", "toy_lda_mllt": "train_lda_mllt",
         "toy_sat": "train_sat"}  # fmt: skip
# options of toy_network.conf in addition to its base
BASES = {"fisher_english": "conf/pnorm.conf", "fisher_swbd": "conf/ibm.conf"}
INPUT_DIMS = {"blstm": 200, "cnn": 120, "cnn_16": 120, "cnn_512": 120, "ibm": 260}  # of others, 40
OUTPUTS = {"ibm": 32_000, "tc_dnn_blstm_dnn": 3431, "tdnn_7q": 6034}  # of others, 2000
LSTMP = 4 * 1024 * (512 + 256 + 1) + 3 * 1024 + 1024 * (256 + 256)  # gates, peepholes, projections
PARAMETERS = {
    # "more than 43 M", arXiv:1904.04956
    "ibm": 2 * 4 * 512 * (260 + 512 + 1 + 5 * (1024 + 512 + 1)) + 256 * 1025 + 32_000 * 257,
    "lstmp": 512 * (5 * 40 + 1) + 3 * LSTMP + 2000 * 513,
    "published/lstmp": 512 * (5 * 40 + 1) + 3 * (LSTMP + 512) + 2000 * 513,  # and biases of projections
    # as in Kaldi, without i-vectors and the cross-entropy branch
    "tdnn_7q": 21_356_836 - 1536 * 100 - 1536 * (257 + 256) - 6034 * 257,
    "tc_dnn_blstm_dnn": 2048 * (41 + 2049) + 2 * 4 * 128 * (2048 + 128) + 2048 * (257 + 2049) + 3431 * 2049,
}


@pytest.mark.parametrize(
    "recipe, conf", CONFS, ids=[f"{recipe.parent.name} {conf}" for recipe, conf in CONFS]
)
def test_steps_accept_their_configurations(recipe, conf, monkeypatch):
    monkeypatch.chdir(recipe)
    _, cls = step_of(f"{STEPS.get(conf.stem, 'train_dnn')}.py")
    base = ["--config", BASES[recipe.parent.name]] if conf.stem == "toy_network" else []
    options, _ = parse(cls, [*base, "--config", str(conf), *("x" for _ in positionals_of(cls))])
    training = getattr(options, "training", None)
    if training is not None and hasattr(training, "schedule"):
        training.schedule.check()
        training.learner.check()


@pytest.mark.parametrize(
    "conf, scheme",
    [
        ("ibm", "gradient"),
        ("lstmp", "kaldi"),
        ("tdnn_b", "kaldi"),
        ("tc_dnn_blstm_dnn", "asgd"),
        ("chain", "kaldi"),
    ],
)
def test_published_schemes_have_published_options(conf, scheme, monkeypatch):
    """Minibatches over all ranks, iterations of Kaldi's scripts, a parameter server; on normalised
    features."""
    monkeypatch.chdir(RECIPE)
    _, cls = step_of(f"{STEPS.get(conf, 'train_dnn')}.py")
    options, _ = parse(cls, ["--config", f"conf/published/{conf}.conf", *("x" for _ in positionals_of(cls))])
    assert (options.training.mixing.parallel, options.input.cmvn) == (scheme, "none")


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_networks_have_published_sizes(path):
    """They can be created for the recipe's features. The number of parameters is the published one, or
    follows from the published sizes."""
    with torch.device("meta"):
        network = LayeredNetwork(
            read_network(path), INPUT_DIMS.get(path.stem, 40), OUTPUTS.get(path.stem, 2000)
        )
    name = path.stem if path.parent.name == "network" else f"{path.parent.name}/{path.stem}"
    if name in PARAMETERS:
        assert sum(parameter.numel() for parameter in network.parameters()) == PARAMETERS[name]


def test_plain_lstm_learns_with_its_configuration(tmp_path, monkeypatch):
    """With few cells and rows, without projections, with carried state: from data to a model that
    distinguishes pdfs."""
    monkeypatch.chdir(RECIPE)
    lines = read_network(RECIPE / "conf" / "network" / "lstm.net")
    (tmp_path / "lstm.net").write_text("\n".join(lines).replace("cells=384", "cells=16"))
    words = [
        "--config",
        "conf/lstm.conf",
        "--network",
        str(tmp_path / "lstm.net"),
        "--minibatch",
        "100",
        "--device",
        "cpu",
    ]
    options, _ = parse(step_of("train_dnn.py")[1], [*words, *"xxxx"])
    input = replace(options.input, splice_left=0, splice_right=0)
    assert options.training.over_time.carry_state and "recurrent" not in " ".join(lines)
    targets = make_data(tmp_path / "data", {f"a-{i:02d}": 45 + i for i in range(24)}, 5)
    targets.heldout[:6] = True
    targets.save(tmp_path / TARGETS_FILE)
    train_rank(TrainSpec(tmp_path / "data", tmp_path, input, options.training), SoloComm())
    model, reader = load_model(tmp_path / MODEL_FILE), FeatureReader(tmp_path / "data", input)
    right = np.concatenate(
        [model.log_posteriors(reader[key]).argmax(1) == targets.pdfs_of(key) for key in targets.keys[:6]]
    )
    assert right.mean() > 0.6, right.mean()


def test_unknown_model_is_refused_before_any_work():
    done = subprocess.run(
        [RECIPE / "run_models.sh", "--models", "dnn lstmpp,cnn"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and done.stdout == ""
    assert (
        done.stderr.startswith("run_models.sh: error: --models: 'lstmpp,cnn' is not one of dnn dnn_sp ")
        and done.stderr.count("\n") == 1
    )


def test_models_have_stages_in_order():
    script = (RECIPE / "run_models.sh").read_text()
    stages = re.findall(r'stage (\d+) "', script)
    assert stages == [str(number) for number in range(1, len(stages) + 1)]
    models = re.search(r'^models="([^"]*)"', script, re.M).group(1).split()
    wanted = {
        name for names in re.findall(r"^if wanted ([a-z_ ]+) &&", script, re.M) for name in names.split()
    }
    assert wanted == set(models)


def test_all_layers_of_chan_network_learn():
    """With initial values of the published variance: once the output layer is not 0, every matrix has a
    significant gradient."""
    network = LayeredNetwork(read_network(RECIPE / "conf" / "network" / "tc_dnn_blstm_dnn.net"), 40, 100)
    random = torch.Generator().manual_seed(1)
    network.initialise(random)
    x, pdfs = torch.randn(8, 21, 40, generator=random), torch.randint(100, (8,), generator=random)
    for _ in range(2):
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(x)[:, 0], pdfs).backward()
        gradients = {
            name: parameter.grad.norm().item()
            for name, parameter in network.named_parameters()
            if parameter.dim() > 1
        }
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= 0.1 * parameter.grad
    assert min(gradients.values()) > 1e-6, gradients
