"""Packed CTC networks and systems on fMLLR features, against the recipe's decoding of the same audio."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from steps_here import run_here
from tone_toys import (
    FBANK,
    WORD_S,
    WORDS,
    begin_s,
    decode_and_score,
    linear_network,
    moments,
    save_network,
    silence,
    speech,
    write_ctc,
    write_data,
    write_system,
)

from pyasr import Recognizer
from pyasr.base.errors import UserError
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.io.text_tables import read_table
from pyasr.recognition.adapted_speaker import AdaptedSpeaker
from pyasr.recognition.features import adaptation
from pyasr.recognition.features.adaptation import Adaptation

SAID = {f"u{i}": [str(word) for word in np.random.default_rng(20 + i).choice(WORDS, 20)] for i in range(2)}


@pytest.fixture(scope="module")
def exp(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    write_data(folder, SAID)
    return folder


def packed(decode: Path) -> tuple[Recognizer, dict[str, str]]:
    """(recognizer, the recipe's words at the packed weights)."""
    out = decode.parent / f"packed_{decode.name}"
    run_here("pack_model.py", decode, out, folder="utils")
    point = json.loads((decode / "scoring/summary.json").read_text())["chosen"]["point"]
    return Recognizer(out), read_table(decode / f"scoring/hyp/{point[0]}_{point[1]}.txt")


def test_ctc_network_is_packed_and_transcribes(exp):
    ctc = write_ctc(exp)
    run_here(
        "decode_ctc.py",
        "--nj",
        1,
        "--search",
        "wfst",
        "--graph-dir",
        ctc / "graph",
        exp / "data",
        ctc,
        ctc / "decode",
    )
    run_here("score.py", "--nj", 1, exp / "data", ctc / "graph", ctc / "decode")
    recognizer, expected = packed(ctc / "decode")
    found = {utt: recognizer.transcribe(exp / f"{utt}.wav") for utt in SAID}
    assert (
        {utt: one.text for utt, one in found.items()}
        == expected
        == {utt: " ".join(words) for utt, words in SAID.items()}
    )
    for number, word in enumerate(found["u0"].words):
        assert (word.begin_s, word.end_s) == pytest.approx(
            (begin_s(number), begin_s(number) + WORD_S), abs=0.031
        )
    stream = recognizer.stream()
    stream.accept(
        np.concatenate([speech(["do", "re"]), silence(1.2, np.random.default_rng(0)), speech(["mi"])]).astype(
            np.int16
        )
    )
    assert [segment.text for segment in stream.finish().segments] == ["do re", "mi"]
    with pytest.raises(UserError, match="not decoded with a network and a graph"):
        run_here("decode_ctc.py", "--nj", 1, "--search", "greedy", exp / "data", ctc, ctc / "greedy")
        run_here("pack_model.py", ctc / "greedy", ctc / "none", folder="utils")


def test_fmllr_systems_adapt_to_recording_like_recipe(exp, monkeypatch):
    sat = write_system(exp)
    shutil.copyfile(sat / "final.mdl", sat / "final.alimdl")
    run_here(
        "decode_fmllr.py", "--nj", 1, "--fmllr-min-count", 100, sat / "graph", exp / "data", sat / "decode"
    )
    run_here("score.py", "--nj", 1, exp / "data", sat / "graph", sat / "decode")
    recognizer, expected = packed(sat / "decode")
    assert {utt: recognizer.transcribe(exp / f"{utt}.wav").text for utt in SAID} == expected
    assert_streams_as_it_transcribes(recognizer, exp)
    dnn = exp / "dnn"
    dnn.mkdir()
    run_here(
        "make_fmllr_feats.py",
        "--nj",
        1,
        "--transform-dir",
        sat / "decode",
        exp / "data",
        sat,
        exp / "data_fmllr",
    )
    save_network(dnn, linear_network(*moments(), FBANK.mel.num_mel_bins))
    shutil.copyfile(sat / "final.mdl", dnn / "final.mdl")
    (dnn / "graph").symlink_to(sat / "graph")
    recognizer, expected = packed(decode_and_score(dnn, exp / "data_fmllr"))
    with monkeypatch.context() as patch:
        patch.setattr(
            adaptation,
            "with_acoustics",
            Mock(side_effect=AssertionError("a network's words need no lattices of the adaptation")),
        )
        found = {utt: recognizer.transcribe(exp / f"{utt}.wav").text for utt in SAID}
    assert found == expected == {u: " ".join(w) for u, w in SAID.items()}
    assert (
        recognizer.system.info.first.graph == "graph" and not (exp / "dnn/packed_decode/first/graph").exists()
    )
    assert_streams_as_it_transcribes(recognizer, exp)
    assert recognizer.transcribe(np.zeros(10, np.int16)).text == ""
    monkeypatch.setattr(AmDiagGmm, "log_likelihoods", lambda self, features: np.empty(10**15))
    with pytest.raises(UserError, match=r"^u0.wav from 0.00 to 8.15 s: memory is not enough"):
        recognizer.transcribe(exp / "u0.wav")


def assert_streams_as_it_transcribes(recognizer: Recognizer, exp: Path) -> None:
    """An utterance that has ended has the words of a recording; later ones use its adaptation from their
    begin."""
    samples = speech(SAID["u0"], 0)
    assert (samples.astype(np.int16) == soundfile.read(exp / "u0.wav", dtype="int16")[0]).all()
    stream = recognizer.stream(endpoint=None)
    for block in np.array_split(samples.astype(np.int16), 7):
        stream.accept(block)
    assert stream.finish() == dataclasses.replace(recognizer.transcribe(exp / "u0.wav"), file="stream")
    stream, rng = recognizer.stream(), np.random.default_rng(0)
    ended = stream.accept((0.2 * np.concatenate([speech(SAID["u1"], 1), silence(3.0, rng)])).astype(np.int16))
    assert ended[0].text.split() == SAID["u1"] and not stream.partial
    unadapted = recognizer.stream(endpoint=None)
    for one in (stream, unadapted):
        one.accept((0.05 * speech(["mi", "do", "fa"])).astype(np.int16))
    assert stream.partial == "mi do fa" != unadapted.partial


def test_streamed_speaker_is_adapted_over_utterances(exp, monkeypatch):
    """The first two are streamed one by one; the third has the transform of all three together. Utterances
    older than a minute and failed ones do not count."""
    system = packed(exp / "model" / "decode")[0].system
    waves = [0.5 * speech(SAID["u0"][i : i + 6], i) for i in (0, 6, 12)]
    speaker = AdaptedSpeaker(system)
    with monkeypatch.context() as patch, pytest.raises(UserError):
        patch.setattr(Adaptation, "_estimate", Mock(side_effect=UserError("memory is not enough")))
        speaker.words(waves[2])
    words = [speaker.words(wave) for wave in waves]
    together = system.features.adapted(waves, ["a", "b", "c"])[1]
    assert [[word.word for word in found] for found in words[1:]] == [SAID["u0"][6:12], SAID["u0"][12:18]]
    assert np.abs(speaker.transform - together.transform).max() < 0.05 * np.abs(together.transform).max()
    assert speaker.words(np.zeros(10)) == []
    for _ in range(25):
        speaker.words(waves[0])
    assert 55 < sum(map(len, speaker._features)) * system.features.frame_shift_s < 65
