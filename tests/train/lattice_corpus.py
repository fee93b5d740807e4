"""A corpus of separable frames, a network that classifies them badly, and its lattices: the input of
lattice-based training."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from training_corpora import DIM, make_alignments, make_data

from pyasr.decode.lattice_jobs.lattice_dir import write_num_jobs
from pyasr.decode.lattices.determinize import determinize
from pyasr.decode.lattices.lattice_io import write_lattices
from pyasr.decode.search.beam_search import Decoder
from pyasr.decode.search.decode_options import DecodeOptions
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io.openfst import Fst
from pyasr.nn.networks.acoustic import AcousticModel, load_scorer
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, initialise

NUM_PDFS, SCALE = 6, 0.3
SILENCES = (5, 6)  # phones; phone p has pdf p - 1
LENGTHS = {f"{speaker}-{i:02d}": 24 + 5 * i for speaker in "abcd" for i in range(4)}


def write_lattice_corpus(path: Path, lengths: dict[str, int] = LENGTHS) -> Path:
    """PATH/{data,lang,ali,dnn,denlats}."""
    targets = make_data(path / "data", lengths, NUM_PDFS)
    make_alignments(path / "ali", targets)
    (path / "lang" / "phones").mkdir(parents=True)
    (path / "lang" / "phones.txt").write_text(
        "<eps> 0\n" + "".join(f"p{phone} {phone}\n" for phone in range(1, NUM_PDFS + 1))
    )
    (path / "lang" / "phones" / "silence.int").write_text("".join(f"{phone}\n" for phone in SILENCES))
    (path / "dnn").mkdir()
    for name in ("final.mdl", "tree"):
        shutil.copy(path / "ali" / name, path / "dnn")
    InputOptions(cmvn="none", splice_left=1, splice_right=1).save(path / "dnn")
    weak_network().save(path / "dnn" / "final.nnet")
    write_denlats(path)
    return path


def weak_network() -> AcousticModel:
    """A random network, shifted a little towards the centres of the pdfs' frames."""
    random, rng = torch.Generator().manual_seed(3), np.random.default_rng(5)
    options = DnnOptions(hidden_layers=1, hidden_dim=2 * DIM)
    network = FeedForward(options, 3 * DIM, NUM_PDFS)
    initialise(network, options, random)
    hidden, output = network.affine_layers
    centres = torch.from_numpy(2.0 * np.random.default_rng(99).standard_normal((NUM_PDFS, DIM))).float()
    with torch.no_grad():
        hidden.weight.zero_()
        hidden.weight[:, DIM : 2 * DIM] = torch.cat([torch.eye(DIM), -torch.eye(DIM)])
        hidden.weight += 0.1 * torch.randn(hidden.weight.shape, generator=random)
        output.weight.copy_(
            0.3 * torch.cat([centres, -centres], 1) + 0.3 * torch.randn(output.weight.shape, generator=random)
        )
    mean = torch.from_numpy(rng.uniform(-0.1, 0.1, DIM)).float().repeat(3)
    priors = torch.from_numpy(rng.uniform(-2, -1, NUM_PDFS)).float()
    return AcousticModel(network.eval(), mean, torch.full((3 * DIM,), 0.9), priors)


def write_denlats(path: Path) -> None:
    """Two archives of lattices of any phone sequence, one determinised, one as written by the search."""
    reader, scorer = FeatureReader(path / "data", InputOptions.load(path / "dnn")), load_scorer(path / "dnn")
    options = DecodeOptions(beam=30.0, lattice_beam=5.0, acoustic_scale=SCALE)
    decoder = Decoder(phone_loop(), read_transitions(path / "dnn" / "final.mdl").tid2pdf, options)
    (path / "denlats").mkdir()
    raw = {key: decoder.decode(scorer.log_likelihoods(reader[key])) for key in reader.keys}
    write_lattices(path / "denlats" / "lat.1.gz", [(key, raw[key]) for key in reader.keys[::2]])
    write_lattices(
        path / "denlats" / "lat.2.gz",
        [(key, determinize(raw[key], 5.0, SCALE)[0]) for key in reader.keys[1::2]],
    )
    write_num_jobs(path / "denlats", 2)


def phone_loop() -> Fst:
    """Entering a phone's state, its self-loop, and the arc back."""
    arcs = [
        arc
        for k in range(NUM_PDFS)
        for arc in (
            (0, 2 * k + 2, k + 1, 1.1, k + 1),
            (k + 1, 2 * k + 1, 0, 0.1, k + 1),
            (k + 1, 0, 0, 0.5, 0),
        )
    ]
    sources, ilabels, olabels, weights, targets = zip(*arcs)
    return Fst.from_arcs(NUM_PDFS + 1, 0, sources, ilabels, olabels, weights, targets, {0: 0.0})
