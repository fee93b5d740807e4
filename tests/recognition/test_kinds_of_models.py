"""Packed CTC networks and systems on fMLLR features, against the recipe's decoding of the same audio."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from steps_here import run_here
from tone_toys import (
    FBANK, WORD_S, WORDS, begin_s, decode_and_score, linear_network, moments, save_network, silence, speech, write_ctc, write_data, write_system,
)  # fmt: skip

from pyasr import Recognizer
from pyasr.base.errors import UserError
from pyasr.io.text import read_table

SAID = {f"u{i}": [str(word) for word in np.random.default_rng(20 + i).choice(WORDS, 20)] for i in range(2)}


@pytest.fixture(scope="module")
def exp(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    write_data(folder, SAID)
    return folder


def packed(decode: Path) -> tuple[Recognizer, dict[str, str]]:
    """(the recognizer, the recipe's words at the point that is packed)."""
    out = decode.parent / f"packed_{decode.name}"
    run_here("pack_model.py", decode, out, folder="utils")
    point = json.loads((decode / "scoring/summary.json").read_text())["chosen"]["point"]
    return Recognizer(out), read_table(decode / f"scoring/hyp/{point[0]}_{point[1]}.txt")


def test_ctc(exp):
    ctc = write_ctc(exp)
    run_here("decode_ctc.py", "--nj", 1, "--search", "wfst", "--graph-dir", ctc / "graph", exp / "data", ctc, ctc / "decode")
    run_here("score.py", "--nj", 1, exp / "data", ctc / "graph", ctc / "decode")
    recognizer, expected = packed(ctc / "decode")
    found = {utt: recognizer.transcribe(exp / f"{utt}.wav") for utt in SAID}
    assert {utt: one.text for utt, one in found.items()} == expected == {utt: " ".join(words) for utt, words in SAID.items()}
    for number, word in enumerate(found["u0"].words):
        assert (word.begin_s, word.end_s) == pytest.approx((begin_s(number), begin_s(number) + WORD_S), abs=0.031)
    stream = recognizer.stream()
    stream.accept(np.concatenate([speech(["do", "re"]), silence(1.2, np.random.default_rng(0)), speech(["mi"])]).astype(np.int16))
    assert [segment.text for segment in stream.finish().segments] == ["do re", "mi"]
    with pytest.raises(UserError, match="not decoded by a network and a graph"):
        run_here("decode_ctc.py", "--nj", 1, "--search", "greedy", exp / "data", ctc, ctc / "greedy")
        run_here("pack_model.py", ctc / "greedy", ctc / "none", folder="utils")


def test_systems_on_fmllr_features_adapt_to_a_recording_as_the_recipe_does(exp):
    sat = write_system(exp)
    shutil.copyfile(sat / "final.mdl", sat / "final.alimdl")
    run_here("decode_fmllr.py", "--nj", 1, "--fmllr-min-count", 100, sat / "graph", exp / "data", sat / "decode")
    run_here("score.py", "--nj", 1, exp / "data", sat / "graph", sat / "decode")
    recognizer, expected = packed(sat / "decode")
    assert {utt: recognizer.transcribe(exp / f"{utt}.wav").text for utt in SAID} == expected
    dnn = exp / "dnn"
    dnn.mkdir()
    run_here("make_fmllr_feats.py", "--nj", 1, "--transform-dir", sat / "decode", exp / "data", sat, exp / "data_fmllr")
    save_network(dnn, linear_network(*moments(), FBANK.mel.num_mel_bins))
    shutil.copyfile(sat / "final.mdl", dnn / "final.mdl")
    (dnn / "graph").symlink_to(sat / "graph")
    recognizer, expected = packed(decode_and_score(dnn, exp / "data_fmllr"))
    assert {utt: recognizer.transcribe(exp / f"{utt}.wav").text for utt in SAID} == expected == {u: " ".join(w) for u, w in SAID.items()}
    assert recognizer.system.info.first.graph == "graph" and not (exp / "dnn/packed_decode/first/graph").exists()
    with pytest.raises(UserError, match="adapts to a recording by fMLLR"):
        recognizer.stream()
