"""Normalisation over a sliding window: against Kaldi's answers (fixtures/kaldi_feats.npz) and a loop over
frames."""

import numpy as np
import pytest
from make_kaldi_feats import SLIDING, sliding_input

from pyasr.base.cli.options import parse
from pyasr.feats.cmvn import SlidingOptions, sliding_cmvn
from pyasr.feats.inputs import FeatureReader, InputOptions
from pyasr.io.ark import ArkWriter
from pyasr.io.text_tables import write_table


def by_loop(x, window, least, centre, norm_vars):
    out = np.empty(x.shape)
    for t in range(len(x)):
        if centre:
            begin = max(0, t - window // 2)
            end = begin + window
            begin, end = (max(0, len(x) - window), len(x)) if end > len(x) else (begin, end)
        else:
            begin, end = max(0, t - window), max(t + 1, least)
            # Kaldi shifts the window back, also if its minimum length exceeds the utterance
            if end > len(x):
                begin, end = max(0, begin - (end - len(x))), len(x)
        part = x[begin:end].astype(np.float64)
        out[t] = x[t] - part.mean(0)
        if norm_vars:
            out[t] = out[t] / np.sqrt(part.var(0).clip(1e-10)) if len(part) > 1 else 0
    return out


@pytest.mark.parametrize("name", SLIDING)
def test_sliding_cmvn_equals_kaldi(name, root):
    options = SLIDING[name]
    ours = SlidingOptions(options["cmn_window"], options["min_window"], options.get("center", False))
    found = sliding_cmvn(sliding_input(), ours, options.get("normalize_variance", False))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.load(root / "tests/fixtures/kaldi_feats.npz")[name], atol=1e-5)


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("length", [1, 2, 99, 100, 101, 700, 1500])
def test_sliding_cmvn_equals_loop_over_frames(length, centre, norm_vars):
    x = (100 + 3 * np.random.default_rng(length).standard_normal((length, 4))).astype(np.float32)
    for window, least in ((600, 100), (61, 20), (60, 100), (1, 1)):
        if window > 1 or not norm_vars:  # a single frame has no variance
            found = sliding_cmvn(x, SlidingOptions(window, least, centre), norm_vars)
            np.testing.assert_allclose(found, by_loop(x, window, least, centre, norm_vars), atol=1e-4)


def test_sums_stay_exact_over_an_hour():
    x = np.full((360_000, 1), 1e4, np.float32)
    x[::2] += 0.5
    found = sliding_cmvn(x, SlidingOptions(center=True), True)
    np.testing.assert_allclose(np.abs(found), 1, rtol=1e-4)


def test_sliding_cmvn_is_an_input_option(tmp_path):
    x = sliding_input()
    with ArkWriter(tmp_path / "f.ark", tmp_path / "feats.scp") as writer:
        writer.write("a", x)
    write_table(tmp_path / "utt2spk", {"a": "a"})
    flags = ["--cmvn", "sliding", "--cmn-window", "20", "--center", "true", "--norm-vars", "true"]
    options, _ = parse(InputOptions, flags)
    np.testing.assert_allclose(
        FeatureReader(tmp_path, options)["a"], by_loop(x, 20, 100, True, True), atol=1e-4
    )
    options.save(tmp_path)
    assert InputOptions.load(tmp_path) == options
