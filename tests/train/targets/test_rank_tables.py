"""Ranks load only the part of the corpus tables that they need."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_dbn
from toy_jobs import NUM_PDFS, with_options
from training_corpora import make_alignments, make_data

from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.feats.packed_tables import save_tables
from pyasr.nn.networks.acoustic import load_model
from pyasr.parallel.communication.rank_threads import run_threads
from pyasr.train.objectives.dnn_training import TrainSpec
from pyasr.train.objectives.rank_training import train_rank
from pyasr.train.targets import dealing
from pyasr.train.targets.dealing import dealt_to
from pyasr.train.targets.pdf_targets import TARGETS_FILE, Targets, save_targets
from pyasr.train.targets.prepare_targets import TargetOptions, prepare_targets
from pyasr.train.targets.rank_reader import FEATURES_FILE, are_prepared, rank_reader


def one_by_one(lengths: np.ndarray, among: np.ndarray, num_ranks: int) -> np.ndarray:
    """The rank of each utterance, -1 for utterances outside `among`."""
    owner, load = np.full(len(lengths), -1), np.zeros(num_ranks, np.int64)
    for utterance in np.argsort(-lengths, kind="stable"):
        if among[utterance]:
            owner[utterance] = load.argmin()
            load[owner[utterance]] += lengths[utterance]
    return owner


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize("most", [2, 5, 50, 10**5])
def test_batch_distribution_equals_single_one(block, most, monkeypatch):
    """With empty utterances, many utterances of equal length, and utterances sorted in one block."""
    monkeypatch.setattr(dealing, "_BLOCK", block)
    rng = np.random.default_rng(most)
    for _ in range(20):
        num_ranks, number = int(rng.integers(1, 9)), int(rng.integers(0, 150))
        lengths, among = rng.integers(0, most, number).astype(np.int32), rng.random(number) < 0.8
        expected = one_by_one(lengths, among, num_ranks)
        for rank in range(num_ranks):
            assert np.array_equal(dealt_to(rank, num_ranks, lengths, among), expected == rank)


def test_memory_of_rank_is_bounded(tmp_path):
    """With 100,000 utterances and 100 ranks, a rank takes 60 bytes per utterance while it selects its own,
    and less afterwards. A table of all names would take 14 MB."""
    number = 100_000
    lengths = np.random.default_rng(1).integers(50, 2000, number)
    keys = [f"speaker{i // 50:05d}-utterance-{i:07d}" for i in range(number)]
    offsets = np.append(0, np.cumsum(lengths))
    save_targets(tmp_path / TARGETS_FILE, keys, offsets, [], np.arange(number) % 40 == 0, 10)
    places = {key: f"/corpus/feats/raw_mfcc.{i % 30}.ark:{1000 * i}" for i, key in enumerate(keys)}
    speakers = {key: key[:12] for key in keys}
    save_tables(
        tmp_path / FEATURES_FILE,
        keys,
        places,
        speakers,
        lengths,
        dict.fromkeys(speakers.values(), "/corpus/cmvn.ark:9"),
        40,
    )
    tracemalloc.start()
    targets = Targets.load(tmp_path / TARGETS_FILE)
    parts = targets.parts((7, 100), 7, 100)
    reader = rank_reader(tmp_path, Path("data"), InputOptions(), targets, [*parts[0], *parts[1]])
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(parts[0]) == 975 and all(
        reader.has(key) and reader.num_frames(key) == lengths[keys.index(key)] for key in parts[0][:5]
    )
    assert kept < 2_500_000 and most < 6_000_000


def test_memory_of_preparation_is_bounded_by_largest_archive(tmp_path, monkeypatch):
    """Four times as many archives of the same size take no more memory, except for the data kept for each
    utterance."""
    monkeypatch.setattr("pyasr.train.targets.pdf_targets._BLOCK", 1 << 14)
    monkeypatch.setattr("pyasr.train.targets.prepare_targets.NUM_CHECKED", 2)

    def peak(num_jobs: int) -> int:
        path = tmp_path / str(num_jobs)
        targets = make_data(path / "data", {f"{i:03d}-a": 4000 for i in range(50 * num_jobs)}, 4)
        make_alignments(path / "ali", targets, num_jobs)
        (path / "out").mkdir()
        tracemalloc.start()
        prepare_targets(path / "data", path / "ali", path / "out", TargetOptions())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert np.array_equal(Targets.load(path / "out" / TARGETS_FILE).pdfs, targets.pdfs)
        return most

    assert peak(8) < 1.3 * peak(2)


def test_ranks_read_no_table_of_data_directory(tmp_path, monkeypatch):
    """The model is bit-identical to one trained with the tables of the data directory."""
    targets = make_data(
        tmp_path / "data", {f"{speaker}-{i}": 60 + i for speaker in "abcdef" for i in range(6)}, NUM_PDFS
    )
    make_alignments(tmp_path / "ali", targets)
    models = []
    for name in ("packed", "whole"):
        out = tmp_path / name
        out.mkdir()
        prepare_targets(tmp_path / "data", tmp_path / "ali", out, TargetOptions(heldout_share=0.2))
        assert are_prepared(out / TARGETS_FILE, out / FEATURES_FILE)
        read = []
        monkeypatch.setattr(FeatureReader, "_read_tables", counted(FeatureReader._read_tables, read))
        if name == "whole":
            (out / FEATURES_FILE).unlink()
        spec = TrainSpec(
            tmp_path / "data", out, InputOptions(cmvn="none"), with_options(schedule=dict(num_epochs=1))
        )
        run_threads(2, lambda comm: train_rank(spec, comm))
        assert bool(read) == (name == "whole")
        models.append(load_model(out / "final.nnet").network.state_dict())
    assert models[0].keys() == models[1].keys() and all(
        torch.equal(models[0][name], models[1][name]) for name in models[0]
    )


def test_pretraining_ranks_read_no_table_of_data_directory(tmp_path, monkeypatch):
    spec = toy_dbn.spec_of(toy_dbn.make_toy(tmp_path), tmp_path / "out")
    monkeypatch.setattr(
        FeatureReader, "_read_tables", lambda reader: pytest.fail(f"{reader.data} is read as a whole")
    )
    assert (
        len(run_threads(2, lambda comm: toy_dbn.pretrained(spec, comm))[0].rbms)
        == spec.training.hidden.hidden_layers
    )


def counted(function, calls: list):
    return lambda *arguments: calls.append(1) or function(*arguments)
