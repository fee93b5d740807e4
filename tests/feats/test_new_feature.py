"""The new kind of features of docs/extending/feature.md: its two files, copied from the page."""

import os
import subprocess
import sys

import numpy as np
import pytest
from data_dirs import make_data_dir
from page_files import among_modules, toolkit_with
from signals import speech_like
from steps_here import run_here, step_of
from training_corpora import make_alignments, random_pdfs

from pyasr.base.cli.options import parse, save
from pyasr.base.errors import UserError
from pyasr.data.audio.audio_reading import read_audio
from pyasr.feats import feature_kind, kinds
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.extraction.streamed_features import OnlineExtractor
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import read_feature_options
from pyasr.feats.origin import check_origin, kept_origins, origin_of
from pyasr.io.ark import load_all
from pyasr.io.text_tables import read_table
from pyasr.recognition.features.front_end import PlainFeatures, load_features
from pyasr.report.plan.planned_calls import parse_call
from pyasr.report.plan.planned_models import columns_made
from pyasr.train.targets.pdf_targets import Targets

FLAGS = ["--sample-frequency", 8000, "--num-filters", 12]
NUM_PDFS = 3


@pytest.fixture(scope="module", autouse=True)
def steps(tmp_path_factory):
    """Install the module among the kinds of features; returns the directory of the step."""
    place = tmp_path_factory.mktemp("steps")
    with among_modules("feature.md", kinds, tmp_path_factory.mktemp("kinds"), {"make_gammatone.py": place}):
        yield place
    for cls in [cls for cls, kind in feature_kind._KINDS.items() if kind.name == "gammatone"]:
        del feature_kind._KINDS[cls]


@pytest.fixture(scope="module")
def data(steps, tmp_path_factory):
    """12 tones of 0.2 s and their features."""
    path = make_data_dir(tmp_path_factory.mktemp("corpus") / "data")
    run_here("make_gammatone.py", "--nj", 2, *FLAGS, path, folder=steps)
    return path


def by_formula(wave: np.ndarray, rate: int, num_filters: int, warp: float = 1.0) -> np.ndarray:
    """Frame by frame and filter by filter, with the discrete Fourier transform as a sum over samples."""
    num, shift, size = rate // 40, rate // 100, 256
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(num) / (num - 1))) ** 0.85
    waves = np.exp(-2j * np.pi * np.outer(np.arange(num), np.arange(size // 2 + 1)) / size)
    hertz = [k * rate / size for k in range(size // 2 + 1)]
    low, high = (np.log(1 + 0.00437 * edge) for edge in (50, 0.45 * rate))
    rows = []
    for begin in range(0, len(wave) - num + 1, shift):
        d = wave[begin : begin + num].astype(np.float64)
        d = d - d.mean()
        power = np.abs((window * np.array([0.03 * d[0], *(d[1:] - 0.97 * d[:-1])])) @ waves) ** 2
        row = []
        for b in range(num_filters):
            centre = (np.exp(low + (high - low) * b / (num_filters - 1)) - 1) / 0.00437 / warp
            width = 25.17 * (0.00437 * centre + 1)
            gains = [1 / (1 + ((f - centre) / width) ** 2) ** 4 for f in hertz]
            row.append(np.dot(gains, power) ** 0.1)
        rows.append(row)
    return np.array(rows)


def options_of(steps, *flags):
    """Feature options for these flags of the step."""
    return parse(step_of("make_gammatone.py", steps)[1], [*map(str, flags), "data"])[0].gammatone


def test_new_feature_programs_compute_formula(tmp_path):
    """The step and two jobs as separate processes, in a copy of the toolkit."""
    places = {"gammatone.py": "pyasr/feats/kinds", "make_gammatone.py": "steps"}
    toolkit, data = toolkit_with("feature.md", places, tmp_path / "toolkit"), make_data_dir(tmp_path / "data")
    command = [sys.executable, toolkit / "steps/make_gammatone.py", "--nj", 2, *FLAGS, data]
    environment = {**os.environ, "PYTHONPATH": str(toolkit)}
    run = subprocess.run(
        list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found, waves = load_all(data / "feats.scp"), read_table(data / "wav.scp")
    assert len(found) == 12 and (data / "feats/log/extract.2.log").exists()
    for key in list(found)[::5]:
        samples, rate = read_audio(waves[key])
        np.testing.assert_allclose(found[key], by_formula(samples, rate, 12), rtol=2e-5)


@pytest.mark.parametrize("warp", [1.0, 0.9])
def test_warped_and_unwarped_features_equal_formula(warp, steps):
    wave = speech_like(8000)[2000:6000]
    found = Extractor(options_of(steps, *FLAGS))([wave], warp=warp)[0]
    np.testing.assert_allclose(found, by_formula(wave, 8000, 12, warp), rtol=2e-5)


def test_streams_and_packed_models_compute_new_features(data, tmp_path):
    options, wave = read_feature_options(data, "a test wants to know"), speech_like(8000)
    save(tmp_path / "features.json", options)
    whole = PlainFeatures(load_features(tmp_path / "features.json")).extract(wave)
    online = OnlineExtractor(options, "recording")
    parts = [online(part, last=i == 2) for i, part in enumerate(np.split(wave, [1234, 5000]))]
    np.testing.assert_array_equal(np.concatenate([part for part in parts if len(part)]), whole)


def test_plan_knows_columns_of_new_features():
    for flags, expected in ([], 40), (FLAGS, 12), ([*FLAGS, "--add-pitch", "true"], 15):
        call = parse_call("steps/make_gammatone.py", [*map(str, flags), "--nj", "4", "data/train"])
        assert columns_made(None, call) == ("data/train", expected)


def test_network_trained_on_new_features_refuses_others(data, steps, tmp_path):
    """Including another number of filters. Noise options, which these features lack, may differ."""
    num_frames = {utt: int(num) for utt, num in read_table(data / "utt2num_frames").items()}
    pdfs = random_pdfs(sum(num_frames.values()), NUM_PDFS, np.random.default_rng(1))
    offsets = np.concatenate([[0], np.cumsum(list(num_frames.values()))])
    none = np.zeros(len(num_frames), bool)
    make_alignments(tmp_path / "ali", Targets(list(num_frames), offsets, pdfs, none, NUM_PDFS))
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang/phones.txt").write_text("<eps> 0\n")
    flags = ["--cmvn", "none", "--hidden-layers", 1, "--hidden-dim", 8, "--minibatch", 32,
             "--heldout-share", 0.2, "--num-epochs", 1, "--period-frames", 64]  # fmt: skip
    words = [data, tmp_path / "lang", tmp_path / "ali", tmp_path / "model"]
    run_here("train_dnn.py", *flags, *words, threads=True)
    model = tmp_path / "model"
    assert kept_origins(model) == [origin_of(data)] and InputOptions.load(model).cmvn == "none"
    check_origin(data, model)
    other, thirteen, mfcc = (make_data_dir(tmp_path / name) for name in ("other", "thirteen", "mfcc"))
    run_here("make_gammatone.py", "--dither", 1, *FLAGS, other, folder=steps)
    check_origin(other, model)
    run_here("make_gammatone.py", *FLAGS[:2], "--num-filters", 13, thirteen, folder=steps)
    with pytest.raises(UserError, match="was trained .--num-filters 13, not 12.; compute them"):
        check_origin(thirteen, model)
    run_here("make_mfcc.py", *FLAGS[:2], mfcc)
    with pytest.raises(UserError, match="was trained .MFCC, not gammatone features.; compute them"):
        check_origin(mfcc, model)
