"""ONNX files of models against the models, by onnxruntime in float32; onnx's own checker looks at the
files."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from export_toys import FIXED, model_of, with_random_parameters
from steps_here import run_here

from pyasr.base.cli.options import save, to_json
from pyasr.base.errors import UserError
from pyasr.export.export_formats import ONNX
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import FbankOptions, FrameOptions, MfccOptions
from pyasr.feats.origin import keep_origin, save_origins
from pyasr.io.ark import ArkWriter
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward, FixedParts
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.nn.networks.two_outputs import TwoOutputs

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from pyasr.export import onnx_graph  # noqa: E402
from pyasr.export.onnx_model import acoustic_onnx  # noqa: E402

RANDOM = np.random.default_rng(5)
LAYERS = {
    "tdnn": ["tdnn splice=-2..2 dim=8 normalize=true",
             "tdnn splice=-1,2 dim=6 activation=pnorm pnorm-group=3", "tdnn splice=1 dim=5 activation=tanh"],
    "lf-mmi": ["tdnn splice=-1..1 dim=8", "tdnn splice=-1..1 dim=8 stride=3 normalize=true",
               "tdnn splice=-1,1 dim=7"],
    "tdnnf": ["affine dim=8", "tdnnf dim=8 bottleneck-dim=3",
              "tdnnf dim=8 bottleneck-dim=4 time-stride=0 stride=3", "tdnnf dim=8 bottleneck-dim=3",
              "tdnnf dim=6 bottleneck-dim=3 bypass-scale=0"],
    "cnn": ["conv channels=2 filters=4 time=3 bands=2 pool=2 step=1",
            "conv channels=4 filters=3 time=1 bands=1 pool=1 step=1", "affine dim=6"],
    "cnn of some bands": ["conv channels=2 filters=4 time=3 bands=1 pool=1 step=2", "affine dim=6"],
    "blstm": ["blstm cells=5 repeat=2", "linear dim=4"],
    "lstmp": ["tdnn splice=-1..1 dim=8", "lstm cells=6 recurrent=3 nonrecurrent=2 peepholes=true delay=1",
              "lstm cells=6 recurrent=3 nonrecurrent=1 peepholes=true delay=3 bias=false", "delay frames=2",
              "crop left=4 right=1"],
    "kaldi's lstmp": ["lstm cells=6 recurrent=3 nonrecurrent=2 peepholes=true delay=2 projection-bias=true "
                      "clip-gradient=30 init=kaldi"],
    "blstmp of a biased projection": ["blstm cells=5 recurrent=3 projection-bias=true"],
    "blstmp clipped": ["blstm cells=6 recurrent=4 clip=0.05 delay=2"],
    "window": ["affine dim=5", "window-blstm cells=4 left=2 right=3 clip=0.1 bias=false", "affine dim=4"],
    "ctc": ["tdnn splice=-1..1 dim=6 stride=3", "blstm cells=4"],
    "pyramid": ["blstm cells=4", "affine dim=5 stride=3", "blstm cells=3"],
}  # fmt: skip


def session_of(content):
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def scores_of(session, features):
    (found,) = session.run(None, {"features": np.ascontiguousarray(features, np.float32)})
    assert found.dtype == np.float32
    return found


def check_against_model(model, options, dim, lengths):
    session = session_of(acoustic_onnx(model, options, "utterance"))
    for num_frames in lengths:
        batch = RANDOM.standard_normal((3, num_frames, dim)).astype(np.float32)
        expected = [model.log_likelihoods(options.extend(features)) for features in batch]
        np.testing.assert_allclose(scores_of(session, batch), expected, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "pnorm"])
@pytest.mark.parametrize("fixed", [FixedParts(), FIXED], ids=["plain", "fixed parts"])
def test_feed_forward_networks_equal_onnxruntime(activation, fixed):
    options = DnnOptions(
        hidden_layers=2,
        hidden_dim=8,
        activation=activation,
        pnorm_group=3,
        normalize=activation == "relu",
        dropout=0.2,
    )
    network = with_random_parameters(FeedForward(options, 12, 4, fixed))
    check_against_model(model_of(network, 12), InputOptions(splice_left=1, splice_right=2), 3, [1, 2, 9])


@pytest.mark.parametrize("chunk", [0, 6])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_over_time_equal_onnxruntime(kind, chunk):
    network = with_random_parameters(LayeredNetwork(LAYERS[kind], 6, 4, chunk))
    check_against_model(model_of(network, 6), InputOptions(), 6, [1, 2, 5, 6, 7, 11, 12, 13, 20])


def test_deltas_and_factor_equal_onnxruntime():
    network = with_random_parameters(LayeredNetwork(["tdnn splice=-1..1 dim=5"], 18, 4))
    options = InputOptions(deltas=2, splice_left=1, splice_right=0)
    check_against_model(model_of(network, 18, factor=10.0), options, 3, [1, 3, 9])


def test_outputs_with_extreme_logits():
    """Differences beyond what an exponential in float32 holds."""
    network = with_random_parameters(FeedForward(DnnOptions(1, 8), 12, 4, FIXED), scale=40.0)
    session = session_of(acoustic_onnx(model_of(network, 12), InputOptions(), "utterance"))
    features = RANDOM.standard_normal((1, 5, 12))
    found = scores_of(session, features)
    expected = model_of(network, 12).log_likelihoods(features[0].astype(np.float32))
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["tdnn", "lf-mmi", "cnn", "window"])
def test_chunks_with_context_equal_whole_utterance(kind):
    """Frames of an utterance that is long enough for no end to be in sight."""
    options = InputOptions(deltas=1, splice_left=2, splice_right=1)
    network = with_random_parameters(LayeredNetwork(LAYERS[kind], 16, 4))
    model, features = model_of(network, 16), RANDOM.standard_normal((60, 2)).astype(np.float32)
    session = session_of(acoustic_onnx(model, options, "chunk"))
    metadata = session.get_modelmeta().custom_metadata_map
    left, right, stride = (int(metadata[name]) for name in ("left_context", "right_context", "subsampling"))
    begin, num = 21, 12
    found = scores_of(session, features[None, begin - left : begin + num + right])
    whole = model.log_likelihoods(options.extend(features))
    np.testing.assert_allclose(
        found[0], whole[begin // stride : (begin + num) // stride], atol=3e-5, rtol=1e-5
    )


def test_metadata_of_onnx_file():
    network = LayeredNetwork(LAYERS["lf-mmi"], 6, 4, 12)
    content = acoustic_onnx(
        model_of(network, 6), InputOptions(cmvn="sliding"), "utterance", '{"num_ceps": 6}'
    )
    metadata = session_of(content).get_modelmeta()
    assert metadata.producer_name == "pyasr" and metadata.graph_name == "acoustic model"
    expected = {
        "unit": "utterance",
        "left_context": "5",
        "right_context": "5",
        "subsampling": "3",
        "num_pdfs": "4",
        "chunk": "12",
    }
    assert expected.items() <= metadata.custom_metadata_map.items()
    assert (
        metadata.custom_metadata_map["cmvn"] == "sliding"
        and metadata.custom_metadata_map["cmn_window"] == "600"
    )
    assert json.loads(metadata.custom_metadata_map["feature_options"]) == {"num_ceps": 6}


def test_unsupported_networks_are_refused():
    main = LayeredNetwork(LAYERS["tdnn"], 6, 4)
    with pytest.raises(UserError, match="TwoOutputs is only for training"):
        acoustic_onnx(model_of(TwoOutputs(main, 0.1), 6), InputOptions(), "chunk")
    with pytest.raises(UserError, match="takes 6 columns, which is not a multiple of 4"):
        acoustic_onnx(model_of(main, 6), InputOptions(splice_left=3), "chunk")


def test_too_large_model_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_graph, "_MAX_BYTES", 1000)
    model = model_of(LayeredNetwork(LAYERS["tdnn"], 6, 4), 6)
    with pytest.raises(UserError, match=r"^the model has 0\.0 GB, but an ONNX file has at most 2; export a "):
        acoustic_onnx(model, InputOptions(), "chunk")


def test_missing_library_is_named(tmp_path, root):
    """The sentence names what to install."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['onnx'] = None")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "utils/export_onnx.py", tmp_path, tmp_path / "out" / "model.onnx"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    expected = f"{sys.executable} has no onnx, which writes ONNX files; install it with '{sys.executable} -m"
    assert done.returncode == 1 and done.stderr == f"export_onnx.py: error: {expected} pip install {ONNX}'\n"
    assert not (tmp_path / "out").exists()


def test_export_step(tmp_path, root):
    """A model directory, its file's scores, and what is refused in a sentence, with nothing written."""
    network = with_random_parameters(LayeredNetwork(LAYERS["tdnn"], 6, 4))
    model_of(network, 6).save(tmp_path / "final.nnet")
    InputOptions(cmvn="utterance").save(tmp_path)
    run = functools.partial(subprocess.run, cwd=root, capture_output=True, text=True)
    done = run(["utils/export_onnx.py", tmp_path, tmp_path / "new/folder/model.onnx"])
    assert done.returncode == 0, done.stderr
    features = RANDOM.standard_normal((1, 9, 6)).astype(np.float32)
    found = scores_of(session_of((tmp_path / "new/folder/model.onnx").read_bytes()), features)
    np.testing.assert_allclose(found[0], model_of(network, 6).log_likelihoods(features[0]), atol=3e-5)
    done = run(["utils/export_onnx.py", "--data", tmp_path / "data", tmp_path, tmp_path / "other.onnx"])
    assert (
        done.returncode == 1
        and "feats/options.json: no such file" in done.stderr
        and done.stderr.count("\n") == 1
    )
    assert not (tmp_path / "other.onnx").exists()


def test_feature_options_in_metadata_equal_training(tmp_path):
    """Others are refused; what is only noise may differ."""
    model_of(with_random_parameters(LayeredNetwork(LAYERS["tdnn"], 6, 4)), 6).save(tmp_path / "final.nnet")
    InputOptions(cmvn="utterance").save(tmp_path)
    made = {
        "train": MfccOptions(num_ceps=6),
        "same": MfccOptions(num_ceps=6, frame=FrameOptions(dither=1.0)),
        "other": FbankOptions(),
    }
    for name, options in made.items():
        (tmp_path / name / "feats").mkdir(parents=True)
        save(tmp_path / name / "feats/options.json", options)
        with ArkWriter(tmp_path / name / "feats/feats.ark", tmp_path / name / "feats.scp") as writer:
            writer.write("utt", np.zeros((3, 6), np.float32))
    keep_origin(tmp_path, tmp_path / "train")
    with pytest.raises(
        UserError,
        match=r"other: its features differ from those on which .* was trained \(log mel energies, not MFCC\)",
    ):
        run_here(
            "export_onnx.py", "--data", tmp_path / "other", tmp_path, tmp_path / "model.onnx", folder="utils"
        )
    assert not (tmp_path / "model.onnx").exists()
    run_here("export_onnx.py", "--data", tmp_path / "same", tmp_path, tmp_path / "model.onnx", folder="utils")
    metadata = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(metadata["feature_options"])["num_ceps"] == 6


def test_fmllr_network_takes_no_data_directory(tmp_path):
    """Whichever is given: its features are made of other features, which the options of no directory tell."""
    model_of(with_random_parameters(LayeredNetwork(LAYERS["tdnn"], 6, 4)), 6).save(tmp_path / "final.nnet")
    InputOptions(cmvn="none").save(tmp_path)
    of_audio = to_json(MfccOptions())
    for origin, name in (
        ({"fmllr_of": of_audio}, "fMLLR features of MFCC"),
        ({"streams": [of_audio] * 2, "each": []}, "MFCC pasted to MFCC"),
    ):
        save_origins(tmp_path, [origin])
        for data in ("data/train", "data/train_fmllr"):
            with pytest.raises(UserError, match=f"^--data {data}: {tmp_path} takes {name}, .*; omit --data$"):
                run_here("export_onnx.py", "--data", data, tmp_path, tmp_path / "model.onnx", folder="utils")
    run_here("export_onnx.py", tmp_path, tmp_path / "model.onnx", folder="utils")
    assert (tmp_path / "model.onnx").exists()
