"""Networks in Kaldi's forms: their text computed in float64 as Kaldi documents it, and Kaldi's own nnet3, in
vosk, on the whole file."""

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from export_toys import FIXED, model_of, with_random_parameters
from kaldi_networks_by_text import Nnet3, nnet1_outputs
from training_corpora import transition_model

from pyasr.base.errors import UserError
from pyasr.export.kaldi_dir import write_kaldi_dir
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import FrameOptions, MfccOptions
from pyasr.hmm.model.model_file import read_transitions
from pyasr.io.kaldi_objects import KaldiReader, KaldiWriter
from pyasr.io.openfst import Fst, write_fst
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts
from pyasr.nn.networks.layered import LayeredNetwork

RANDOM = np.random.default_rng(6)
NUM_PDFS = 4
SPLICED = InputOptions(splice_left=1, splice_right=2)
TDNNS = {
    "tdnn": ["tdnn splice=-2..2 dim=8 normalize=true",
             "tdnn splice=-1,2 dim=6 activation=pnorm pnorm-group=3", "linear dim=5", "delay frames=1",
             "tdnn splice=-1,0 dim=5 activation=tanh", "affine dim=4 activation=sigmoid dropout=0.2"],
    "lf-mmi": ["tdnn splice=-1..1 dim=8", "tdnn splice=-1..1 dim=8 stride=3 normalize=true",
               "tdnn splice=-1,1 dim=7"],
    "tdnnf": ["affine dim=8", "tdnnf dim=8 bottleneck-dim=3", "delay frames=2",
              "tdnnf dim=8 bottleneck-dim=4 time-stride=0 stride=3",
              "tdnnf dim=8 bottleneck-dim=3 time-stride=2", "tdnnf dim=6 bottleneck-dim=3 bypass-scale=0"],
}  # fmt: skip


def write_model_dir(path, model, options):
    """A model directory as training leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    model.save(path / "final.nnet")
    options.save(path)
    transitions, tree = transition_model(model.num_pdfs)
    with KaldiWriter(path / "final.mdl") as writer:
        transitions.write(writer)
    tree.write(path / "tree")
    (path / "phones.txt").write_text("<eps> 0\n")
    return path


def exported(tmp_path, model, options, form):
    out = tmp_path / form
    out.mkdir()
    write_kaldi_dir(write_model_dir(tmp_path / "model", model, options), out, form)
    return out


def dnn(activation, fixed=FixedParts(), normalize=False):
    options = DnnOptions(
        hidden_layers=2, hidden_dim=8, activation=activation, pnorm_group=3, normalize=normalize, dropout=0.1
    )
    return with_random_parameters(FeedForward(options, 12, NUM_PDFS, fixed))


def nnet3_of(path):
    """The network behind the transition model, which is read as ours is."""
    reader = KaldiReader(path)
    transitions = read_transitions(path)
    assert transitions.num_pdfs == NUM_PDFS and not reader.binary
    return Nnet3("<Nnet3>" + path.read_text().partition("<Nnet3>")[2].replace(" \n", "\n"))


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "pnorm"])
@pytest.mark.parametrize(
    "fixed", [FixedParts(), FixedParts(FIXED.transform, FIXED.prior_scales)], ids=["plain", "fixed parts"]
)
def test_feed_forward_networks_as_nnet3(tmp_path, activation, fixed):
    model = model_of(dnn(activation, fixed, normalize=activation == "relu"), 12)
    network = nnet3_of(exported(tmp_path, model, SPLICED, "nnet3") / "final.mdl")
    features = RANDOM.standard_normal((7, 3)).astype(np.float32)
    np.testing.assert_allclose(
        network.outputs(features, range(7)), model.log_likelihoods(SPLICED.extend(features)), atol=1e-4
    )
    assert (network.left, network.right) == (1, 2)


@pytest.mark.parametrize("kind", TDNNS)
def test_layers_over_time_as_nnet3(tmp_path, kind):
    """Contexts too, and that a decoder which asks for every third frame has the outputs there."""
    network = with_random_parameters(LayeredNetwork(TDNNS[kind], 6, NUM_PDFS, 12))
    model, features = model_of(network, 6), RANDOM.standard_normal((10, 6)).astype(np.float32)
    out = exported(tmp_path, model, InputOptions(), "nnet3")
    theirs = nnet3_of(out / "final.mdl")
    times = range(0, 10, model.subsampling)
    tolerance = 5e-3 if kind == "tdnnf" else 1e-4  # pyasr adds 1e-5 to the variance of frames
    np.testing.assert_allclose(
        theirs.outputs(features, times), model.log_likelihoods(features), atol=tolerance
    )
    theirs.outputs(features, [0])
    assert (theirs.left, theirs.right) == (-min(theirs.seen), max(theirs.seen))
    assert (out / "frame_subsampling_factor").exists() == (model.subsampling > 1)


def test_deltas_are_part_of_nnet3_network(tmp_path):
    """Between the ends, where Kaldi repeats features and not their derivatives."""
    options = InputOptions(deltas=2, splice_left=1, splice_right=1)
    network = with_random_parameters(FeedForward(DnnOptions(1, 8), 18, NUM_PDFS))
    model, features = model_of(network, 18), RANDOM.standard_normal((14, 2)).astype(np.float32)
    theirs = nnet3_of(exported(tmp_path, model, options, "nnet3") / "final.mdl")
    np.testing.assert_allclose(
        theirs.outputs(features, range(5, 9)), model.log_likelihoods(options.extend(features))[5:9], atol=1e-4
    )
    assert (theirs.left, theirs.right) == (5, 5)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
@pytest.mark.parametrize(
    "fixed", [FixedParts(), FixedParts(FIXED.transform, FIXED.prior_scales)], ids=["plain", "fixed parts"]
)
def test_feed_forward_networks_as_nnet1(tmp_path, activation, fixed):
    model = model_of(dnn(activation, fixed), 12)
    out = exported(tmp_path, model, SPLICED, "nnet1")
    features = RANDOM.standard_normal((7, 3)).astype(np.float32)
    transformed = nnet1_outputs((out / "final.feature_transform").read_text(), features)
    posteriors = nnet1_outputs((out / "final.nnet").read_text(), transformed)
    counts = np.array((out / "ali_train_pdf.counts").read_text().split()[1:-1], float)
    found = np.log(posteriors) - np.log(counts / counts.sum())
    np.testing.assert_allclose(found, model.log_likelihoods(SPLICED.extend(features)), atol=1e-4)
    assert read_transitions(out / "final.mdl").num_pdfs == NUM_PDFS


def test_option_files_for_kaldi_scripts(tmp_path):
    options = InputOptions(cmvn="speaker", norm_vars=True, deltas=1)
    model = model_of(with_random_parameters(FeedForward(DnnOptions(1, 8), 12, NUM_PDFS)), 12)
    out = exported(tmp_path, model, options, "nnet1")
    assert (out / "cmvn_opts").read_text() == "--norm-means=true --norm-vars=true\n"
    assert (out / "delta_opts").read_text() == "--delta-order=1\n"
    assert nnet1_outputs((out / "final.feature_transform").read_text(), np.zeros((1, 12))).shape == (1, 12)


@pytest.mark.parametrize("network, form, message", [
    (dnn("relu", FIXED), "nnet3", "several outputs of the network belong to one pdf"),
    (dnn("pnorm"), "nnet1", "has p-norm units, which nnet1 does not support; use --form nnet3"),
    (dnn("relu", normalize=True), "nnet1", "normalised to root mean square 1, which nnet1 does not support"),
    (LayeredNetwork(TDNNS["lf-mmi"], 12, NUM_PDFS), "nnet1", "splices frames, which nnet1 does not support"),
    (LayeredNetwork(["affine dim=8 stride=3"], 12, NUM_PDFS), "nnet1",
     "has one output per 3 frames, which nnet1 does not support; use"),
    (LayeredNetwork(["blstm cells=4"], 12, NUM_PDFS), "nnet3",
     "layers of type Recurrent cannot be written in Kaldi's format"),
])  # fmt: skip
def test_unsupported_networks_are_refused(tmp_path, network, form, message):
    with pytest.raises(UserError, match=message):
        exported(tmp_path, model_of(network, 12), InputOptions(), form)


def test_matrix_before_the_network_is_refused(tmp_path):
    model_dir = write_model_dir(tmp_path / "model", model_of(dnn("relu"), 12), InputOptions())
    (model_dir / "final.mat").touch()
    with pytest.raises(UserError, match="final.mat: a matrix before the network cannot be exported"):
        write_kaldi_dir(model_dir, tmp_path, "nnet3")


def test_export_step(tmp_path, root):
    """Up to date when asked again; nothing is left of what is refused."""
    model_dir = write_model_dir(tmp_path / "model", model_of(dnn("pnorm"), 12), SPLICED)
    run = functools.partial(subprocess.run, cwd=root, capture_output=True, text=True)
    done = run(["utils/export_kaldi.py", model_dir, tmp_path / "out"])
    assert done.returncode == 0, done.stderr
    assert nnet3_of(tmp_path / "out" / "final.mdl").right == 2 and (tmp_path / "out" / "tree").exists()
    done = run(["utils/export_kaldi.py", "--form", "nnet1", model_dir, tmp_path / "other"])
    assert (
        done.returncode == 1
        and done.stderr.count("\n") == 1
        and "p-norm" in done.stderr
        and not (tmp_path / "other").exists()
    )


def vosk_dir(path, model_dir, num_pdfs, num_ceps, subsampling):
    """A directory for vosk: a graph in which any pdf may follow any other, each frame a word."""
    for name in ("am", "graph", "conf"):
        (path / name).mkdir(parents=True)
    (model_dir / "final.mdl").rename(path / "am" / "final.mdl")
    transitions = read_transitions(path / "am" / "final.mdl")
    tids = [int(np.flatnonzero(transitions.tid2pdf == pdf)[0]) for pdf in range(num_pdfs)]
    zeros, words = np.zeros(num_pdfs), np.arange(1, num_pdfs + 1)
    write_fst(path / "graph" / "HCLG.fst", Fst.from_arcs(1, 0, zeros, tids, words, zeros, zeros, {0: 0.0}))
    (path / "graph" / "words.txt").write_text(
        "".join(f"{word} {number}\n" for number, word in enumerate(["<eps>", *"abcdefgh"[:num_pdfs]]))
    )
    (path / "conf" / "mfcc.conf").write_text(
        f"--dither=0\n--sample-frequency=8000\n--num-mel-bins=23\n--num-ceps={num_ceps}\n--use-energy=false\n"
    )
    options = {
        "beam": 20,
        "lattice-beam": 0.1,
        "acoustic-scale": 1,
        "frame-subsampling-factor": subsampling,
        "endpoint.silence-phones": 1,
    }
    (path / "conf" / "model.conf").write_text(
        "".join(f"--{name}={value}\n" for name, value in options.items())
    )
    return path


VOSK = """
import ctypes, json, pathlib, sys
vosk, model, samples = ctypes.CDLL(sys.argv[1]), sys.argv[2].encode(), pathlib.Path(sys.argv[3]).read_bytes()
vosk.vosk_model_new.restype = vosk.vosk_recognizer_new.restype = ctypes.c_void_p
vosk.vosk_recognizer_final_result.restype = ctypes.c_char_p
vosk.vosk_set_log_level(-1)
loaded = ctypes.c_void_p(vosk.vosk_model_new(model))
recognizer = ctypes.c_void_p(vosk.vosk_recognizer_new(loaded, ctypes.c_float(8000)))
vosk.vosk_recognizer_accept_waveform(recognizer, samples, len(samples))
print(json.loads(vosk.vosk_recognizer_final_result(recognizer))["text"])
"""


def words_by_kaldi(path, samples):
    """By the library in vosk's wheel, in a process of its own, which Kaldi ends where it does not like a
    model."""
    found = importlib.util.find_spec("vosk")
    if found is None:
        pytest.skip("no vosk; pip install --no-deps vosk")
    library = Path(found.submodule_search_locations[0]) / "libvosk.so"
    (path / "samples").write_bytes(samples.astype("<i2").tobytes())
    done = subprocess.run(
        [sys.executable, "-c", VOSK, library, path, path / "samples"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("kind", ["dnn", "pnorm", "tdnn", "tdnnf"])
def test_kaldi_decodes_with_exported_network(tmp_path, kind):
    """The best pdf of each frame of noise, by features that are Kaldi's own too; a frame in which two are as
    good may differ."""
    num_pdfs, dim, options = 8, 6, InputOptions() if kind in TDNNS else SPLICED
    networks = {
        "dnn": lambda: FeedForward(DnnOptions(2, 16, "sigmoid"), 24, num_pdfs),
        **{name: lambda: LayeredNetwork(TDNNS[kind], dim, num_pdfs) for name in TDNNS},
        "pnorm": lambda: FeedForward(DnnOptions(2, 8, "pnorm"), 24, num_pdfs),
    }
    model = model_of(with_random_parameters(networks[kind](), 1.0), options.dim(dim), num_pdfs)
    samples = (1000 * RANDOM.standard_normal(8000) * np.sin(np.arange(8000) / 700)).round().astype(np.float32)
    features = Extractor(
        MfccOptions(FrameOptions(sample_frequency=8000.0, dither=0.0), num_ceps=dim, use_energy=False)
    )([samples])[0]
    inputs = torch.from_numpy(options.extend(features))
    model.mean, model.inverse_std = inputs.mean(0), 1 / inputs.std(0)
    # so that every pdf is the best sometimes
    model.log_priors = torch.from_numpy(model.log_posteriors(inputs.numpy()).mean(0))
    best = model.log_likelihoods(inputs.numpy()).argmax(1)
    assert len(set(best.tolist())) >= 4
    out = exported(tmp_path, model, options, "nnet3")
    found = words_by_kaldi(vosk_dir(tmp_path / "vosk", out, num_pdfs, dim, model.subsampling), samples)
    assert len(found) == len(best)
    assert np.mean(np.array(found) != np.array(list("abcdefgh"))[best]) < 0.03
