"""Sequence criteria and RBMs on the mock GPU give the models of the CPU."""

import pytest
import torch
from chain_corpus import write_chain_corpus
from gpu_trainings import distance, on_both
from lattice_corpus import SCALE, write_lattice_corpus
from steps_here import run_here
from test_train_ctc import write_corpus as write_spoken_letters
from toy_dbn import make_toy

from pyasr.nn.files import DBN_FILE
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.nn.networks.dbn import load_dbn

PRECISELY = ["--num-ranks", 2, "--cmvn", "none", "--precision", "float32"]


def distance_of(out, train, budget: str) -> float:
    """Distance between the models that `train(out, device)` computes on the mock GPU, with steps within a
    budget, and on the CPU."""

    def parameters(device):
        train(out / device, device)
        return list(load_scorer(out / device).network.state_dict().values())

    host, there = on_both(parameters, budget)
    return distance(there, host)


def step(name, flags, places):
    """Function (out, device) that runs a step with ranks as threads."""
    return lambda out, device: run_here(name, *flags, "--device", device, *places, out, threads=True)


def test_ctc_trains_same_model_as_cpu(tmp_path):
    write_spoken_letters(tmp_path / "data", 12)
    run_here("train_subwords.py", "--num-units", 9, tmp_path / "data", tmp_path / "units", folder="utils")
    (tmp_path / "network.net").write_text("tdnn splice=-1..1 dim=16\ntdnn splice=-1..1 dim=16 stride=2")
    flags = [
        *PRECISELY,
        "--minibatch",
        150,
        "--heldout-share",
        0.1,
        "--heldout-by",
        "utterance",
        "--num-epochs",
        2,
        "--learning-rate",
        0.5,
    ]
    places = [tmp_path / name for name in ("data", "units", "network.net")]
    assert distance_of(tmp_path, step("train_ctc.py", flags, places), "ctc") < 1e-5


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    path = write_chain_corpus(tmp_path_factory.mktemp("chain"), 10)
    (path / "network.net").write_text("tdnn splice=-1..1 dim=16\ntdnn splice=-1..1 dim=16 stride=3")
    run_here(
        "build_chain_tree.py",
        "--nj",
        2,
        "--num-leaves",
        12,
        "--split-thresh",
        1,
        "--cluster-thresh",
        0,
        *(path / name for name in ("data", "lang", "ali", "tree")),
    )
    return path


def test_lfmmi_trains_same_model_as_cpu(chain, tmp_path):
    """The denominator is computed by different code."""
    flags = [*PRECISELY, "--chunk", 60, "--minibatch", 80, "--lr-scaling", "none",
             "--heldout-by", "utterance", "--heldout-share", 0.1, "--num-extra-lm-states", 20,
             "--num-epochs", 1, "--network", chain / "network.net"]  # fmt: skip
    places = [chain / name for name in ("data", "ali", "tree")]
    assert distance_of(tmp_path, step("train_lfmmi.py", flags, places), "lf-mmi") < 1e-5


@pytest.fixture(scope="module")
def lattices(tmp_path_factory):
    return write_lattice_corpus(tmp_path_factory.mktemp("lattices"))


@pytest.mark.parametrize("criterion", ["smbr", "mmi"])
def test_lattice_criteria_train_same_model_as_cpu(lattices, tmp_path, criterion):
    flags = ["--num-ranks", 2, "--precision", "float32", "--criterion", criterion, "--acoustic-scale", SCALE,
             "--learning-rate", 0.004, "--lr-scaling", "none", "--heldout-share", 0.2,
             "--num-epochs", 1]  # fmt: skip
    places = [lattices / name for name in ("data", "lang", "ali", "denlats", "dnn")]
    assert distance_of(tmp_path, step("train_smbr.py", flags, places), criterion) < 1e-6


def test_rbms_train_same_models_as_cpu(tmp_path):
    """A Gaussian RBM and one above it. Samples are drawn on the device."""
    data = make_toy(tmp_path, 8)
    flags = [
        *PRECISELY,
        "--splice-left",
        1,
        "--splice-right",
        1,
        "--hidden-layers",
        2,
        "--hidden-dim",
        16,
        "--rbm-iter",
        1,
    ]

    def parameters(device) -> list[torch.Tensor]:
        run_here("pretrain_dbn.py", *flags, "--device", device, data, tmp_path / device, threads=True)
        return [p for rbm in load_dbn(tmp_path / device / DBN_FILE).rbms for p in rbm.parameters()]

    host, there = on_both(parameters, "rbm")
    assert distance(there, host) < 1e-6
