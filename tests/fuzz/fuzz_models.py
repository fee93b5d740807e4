"""Models and transducers: small valid files and their readers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from fuzz_format import FIXTURES, Format, kaldi_file
from gmm_toys import random_model, random_transitions, triphone_tree
from ivector_toys import random_extractor
from lstm_lm_by_hand import random_lm
from tone_toys import NUM_PDFS, transitions, write_graph

from pyasr.base.cli.options import save
from pyasr.decode.decoding.decode_fmllr import AdaptOptions
from pyasr.decode.lattices.determinize import DeterminizeOptions
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.extraction.pasted import PasteOptions
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import MfccOptions
from pyasr.feats.transforms import read_matrix
from pyasr.hmm.model.model_file import read_model, read_transitions, write_model
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.tree import ContextTree
from pyasr.hmm.transforms.fmllr import FmllrOptions
from pyasr.io.fst_archive import read_fsts
from pyasr.io.mapped_files.arrays import load_arrays, save_arrays
from pyasr.io.openfst import read_fst
from pyasr.ivector.extract_ivectors import ExtractDirOptions
from pyasr.ivector.ivector_extractor import read_extractor, write_extractor
from pyasr.ivector.online_ivectors import ExtractOptions
from pyasr.ivector.ubm import read_ubm, write_ubm
from pyasr.lang.lang_dirs.subwords import SubwordOptions, Subwords, train_subwords
from pyasr.nn.networks.acoustic import AcousticModel, load_model, log_priors
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.nn.networks.layered import LayeredNetwork, read_network
from pyasr.nn.networks.lstm_lm import load_lm
from pyasr.parallel.communication.comm import SoloComm
from pyasr.recognition.features.adaptation import FirstPasses
from pyasr.recognition.features.pasting import PastedStream, PastedVectors, Pasting
from pyasr.recognition.packed import ModelInfo, PackedFile, files_of, write_info
from pyasr.recognition.system import System
from pyasr.train.job.checkpoints import load_checkpoint, save_checkpoint

NETWORK = (
    "# a network\ntdnn splice=-1..1 dim=4\nlstm cells=4 recurrent=2 delay=1 repeat=2\naffine dim=3\n"
    "delay frames=2\n"
)


def _gmm(path: Path, binary: bool) -> None:
    trans = random_transitions(triphone_tree())
    write_model(path, trans, random_model(trans.num_pdfs, 2, 3), binary)


def _acoustic(path: Path, network) -> None:
    AcousticModel(network, torch.zeros(3), torch.ones(3), log_priors(np.arange(4))).save(path)


def _feed_forward(path: Path) -> None:
    _acoustic(path, FeedForward(DnnOptions(hidden_layers=1, hidden_dim=4), 3, 4))


def _layered(path: Path) -> None:
    _acoustic(path, LayeredNetwork(["tdnn splice=-1..1 dim=4", "lstm cells=4 recurrent=2"], 3, 4))


def _units(path: Path) -> None:
    train_subwords(["a man a plan a canal", "panama an ape"] * 3, SubwordOptions(12), "text").write(
        path.parent, ["a"]
    )


def _read_units(path: Path) -> tuple:
    subwords = Subwords.read(path.parent)
    return subwords.units, subwords.begins_word, subwords.encode("a plan")


def _checkpoint(path: Path) -> None:
    save_checkpoint(path.parent, SoloComm(), {"state": torch.arange(5)}, {"number": 3}, 100)


def _read_checkpoint(path: Path):
    return load_checkpoint(path.parent, SoloComm())


def _packed(path: Path) -> None:
    """A packed GMM system on features after fMLLR with i-vectors, so that model.json has all its entries."""
    model = path.parent
    write_graph(model / "graph")
    for folder, dim in (
        (model, 6),
        (model / "streams/1", None),
        (model / "streams/1/first", 3),
        (model / "vectors", None),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        InputOptions(cmvn="none").save(folder)
        if dim:
            write_model(folder / "final.mdl", transitions(), random_model(NUM_PDFS, 1, dim))
        else:
            save(folder / "features.json", MfccOptions(num_ceps=3))
    write_ubm(model / "vectors/final.dubm", random_model(1, 4, 3))
    write_extractor(model / "vectors/final.ie", random_extractor())
    first = FirstPasses("graph", DecodeOptions(), DeterminizeOptions(), AdaptOptions(), FmllrOptions())
    vectors = PastedVectors(True, ExtractOptions(), ExtractDirOptions(), None)
    pasting = Pasting(PasteOptions(), (PastedStream(first),), vectors)
    files = tuple(PackedFile.of(model, name) for name in files_of(model))
    info = ModelInfo(
        "gmm", 10, 0.5, DecodeOptions(), DeterminizeOptions(), None, "exp/tri4/decode", files, pasting=pasting
    )
    write_info(model, info)


def _read_packed(path: Path):
    return System(path.parent).decoder.decode(-30 * np.random.default_rng(0).random((10, NUM_PDFS)))


def _experiment(name: str):
    """Function that copies a file of Kaldi's toy experiment."""
    return lambda path: shutil.copy(FIXTURES / "exp/tri1" / name, path)


MODEL_FORMATS = [
    Format("final.mdl", lambda path: _gmm(path, True), read_model),
    Format("final.mdl.txt", lambda path: _gmm(path, False), read_model),
    Format("kaldi.mdl", _experiment("final.mdl"), read_transitions),
    Format("tree", lambda path: triphone_tree().write(path), ContextTree.read),
    Format("tree.txt", lambda path: triphone_tree().write(path, binary=False), ContextTree.read),
    kaldi_file("tree_tables.binary", ContextTree.read),
    kaldi_file("tree_tables.text", ContextTree.read),
    kaldi_file("topo.binary", Topology.read),
    kaldi_file("topo.text", Topology.read),
    Format("final.mat", lambda path: shutil.copy(FIXTURES / "exp/tri4_ali/final.mat", path), read_matrix),
    Format("final.dubm", lambda path: write_ubm(path, random_model(1, 3, 2)), read_ubm),
    Format("final.ie", lambda path: write_extractor(path, random_extractor()), read_extractor),
    kaldi_file("vector.fst", read_fst),
    kaldi_file("const.fst", read_fst),
    kaldi_file("const_symbols.fst", read_fst),
    kaldi_file("fsts.ark", read_fsts),
    kaldi_file("fsts.txt", read_fsts),
    Format("final.nnet", _feed_forward, load_model),
    Format("layers.nnet", _layered, load_model),
    Format("lstm.lm", lambda path: random_lm(["a", "b"]).save(path), load_lm),
    Format("000001.rank-0.pt", _checkpoint, _read_checkpoint),
    Format("checkpoint.json", _checkpoint, _read_checkpoint),
    Format(
        "arrays.npz",
        lambda path: save_arrays(path, a=np.arange(6.0).reshape(2, 3), b=np.array(["x", "yy"])),
        load_arrays,
    ),
    Format("network.net", lambda path: path.write_text(NETWORK), read_network),
    Format("units.model", _units, _read_units),
    Format("packed/model.json", _packed, _read_packed),
]
