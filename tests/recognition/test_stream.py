"""Streamed audio against the same audio as a whole: features, scores, words; ends of utterances."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import struct
import sys
import threading
import wave
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
import torch
from steps_here import run_here
from tone_toys import (
    FBANK,
    NUM_PDFS,
    RATE,
    WORD_S,
    begin_s,
    described,
    linear_network,
    moments,
    save_network,
    silence,
    speech,
    transitions,
    write_packed,
    write_wav,
)

from pyasr import Recognizer
from pyasr.base.errors import UserError
from pyasr.data.audio import audio_sizes
from pyasr.decode.search.endpoint import EndpointOptions
from pyasr.decode.search.utterance_search import UtteranceSearch
from pyasr.feats.cmvn import SlidingOptions, cmvn_stats
from pyasr.feats.compute.feature_extractor import Extractor
from pyasr.feats.extraction.streamed_features import KnownBefore, OnlineExtractor, OnlineInput
from pyasr.feats.inputs import InputOptions
from pyasr.feats.options import FbankOptions, PitchOptions
from pyasr.feats.transforms import write_matrix
from pyasr.hmm.model.gmm import AmDiagGmm
from pyasr.hmm.model.model_file import write_model
from pyasr.nn.networks.acoustic import AcousticModel
from pyasr.nn.networks.feed_forward import DnnOptions, FeedForward
from pyasr.nn.networks.layered import LayeredNetwork
from pyasr.recognition.audio.live_input import LiveInput
from pyasr.recognition.audio.recording_input import live_blocks
from pyasr.recognition.features.front_end import inputs_of_speaker
from pyasr.recognition.formats import FORMATS
from pyasr.recognition.packed import GMM, NETWORK

SAID = ["do", "mi", "fa", "re", "do", "fa"]
BINS = FBANK.mel.num_mel_bins
SMALL = SlidingOptions(cmn_window=50, min_cmn_window=20)


def gaussians(folder: Path, features=FBANK) -> Recognizer:
    packed = write_packed(folder, InputOptions(cmvn="none"), features)
    means, variances = moments()
    write_model(
        packed / "final.mdl",
        transitions(),
        AmDiagGmm.from_moments(range(NUM_PDFS + 1), np.ones(NUM_PDFS), means, variances),
    )
    return Recognizer(described(packed, GMM))


def network(
    folder: Path,
    lines: list[str],
    chunk: int = 0,
    inputs: InputOptions = InputOptions(cmvn="none"),
    dnn: DnnOptions = DnnOptions(1, 16),
) -> Recognizer:
    """A network over time with random parameters or, without `lines`, a feed-forward one, scaled such that
    different words are recognised."""
    packed, dim, generator = write_packed(folder, inputs), inputs.dim(BINS), torch.Generator().manual_seed(0)
    made = LayeredNetwork(lines, dim, NUM_PDFS, chunk) if lines else FeedForward(dnn, dim, NUM_PDFS)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
    model = AcousticModel(
        made.eval(), torch.full((dim,), 10.0), torch.full((dim,), 0.3), torch.zeros(NUM_PDFS)
    )
    said = model.log_posteriors(inputs_of_speaker(Extractor(FBANK)([speech(SAID)]), inputs)[0])
    centre, spread = said.mean(0), (said - said.mean(0)).std()
    dataclasses.replace(model, log_priors=torch.from_numpy(centre), factor=float(5 / spread)).save(
        packed / "final.nnet"
    )
    write_model(
        packed / "final.mdl",
        transitions(),
        AmDiagGmm.from_moments(range(NUM_PDFS + 1), np.ones(NUM_PDFS), *moments()),
    )
    return Recognizer(described(packed, NETWORK))


def streamed(recognizer: Recognizer, samples: np.ndarray, sizes: list[int], rate: int | None = None):
    stream = recognizer.stream(rate, endpoint=None)
    for part in np.split(samples, np.cumsum(sizes)):
        stream.accept(part.astype(np.int16))
    return stream.finish()


def assert_same(found, expected) -> None:
    assert [word.word for word in found.words] == [word.word for word in expected.words]
    # half a frame: rounding may keep another arc
    for name, tolerance in (("begin_s", 5e-3), ("end_s", 5e-3), ("confidence", 2e-3)):
        assert [getattr(word, name) for word in found.words] == pytest.approx(
            [getattr(word, name) for word in expected.words], abs=tolerance
        )
    assert [(one.begin_s, one.end_s) for one in found.segments] == [
        (one.begin_s, one.end_s) for one in expected.segments
    ]


NETWORKS = [
    (["tdnn splice=-2..2 dim=16", "tdnn splice=-3,3 dim=16 stride=3", "tdnn splice=-1..1 dim=16"], 60),
    (["lstm cells=12 delay=2", "delay frames=4", "crop left=10"], 20),
    (["blstm cells=8 repeat=2"], 30),
    (["tdnn splice=-1..1 dim=16 stride=3", "lstm cells=12 recurrent=6 repeat=2", "delay frames=2"], 0),
]
INPUTS = [
    InputOptions(cmvn="none"),
    InputOptions(cmvn="none", deltas=2, splice_left=3, splice_right=1),
    InputOptions(cmvn="sliding", sliding=SMALL, norm_vars=True, splice_right=2),
    InputOptions(cmvn="sliding", sliding=dataclasses.replace(SMALL, center=True)),
]


@pytest.mark.parametrize("lines, chunk", NETWORKS)
def test_streamed_networks_equal_batch(lines, chunk, tmp_path):
    recognizer, samples = network(tmp_path, lines, chunk), speech(SAID)
    expected = recognizer.transcribe(samples.astype(np.int16))
    assert len(expected.words) > 2
    assert_same(streamed(recognizer, samples, [1, 999, 5000]), expected)
    model = recognizer.system.acoustics.model
    for num in (1, 2, 25, 90):
        x = np.random.default_rng(num).normal(10, 3, (num, BINS)).astype(np.float32)
        scores = recognizer.system.acoustics.online_scores()
        parts = [scores(part, False) for part in np.split(x, [1, 8, 40])]
        assert np.allclose(
            np.concatenate([*parts, scores(x[:0], True)]), model.log_likelihoods(x), atol=1e-5 * model.factor
        )


@pytest.mark.parametrize("inputs", INPUTS)
def test_stream_input_equals_whole_recording(inputs, tmp_path):
    recognizer, samples = network(tmp_path, [], inputs=inputs), speech(SAID)
    assert_same(streamed(recognizer, samples, [12345]), recognizer.transcribe(samples.astype(np.int16)))


def test_first_block_may_be_shorter_than_look_ahead(tmp_path):
    """The network then gets no frames, which p-norm units must accept like others."""
    inputs, samples = InputOptions(cmvn="none", deltas=2, splice_left=5, splice_right=5), speech(SAID)
    recognizer = network(tmp_path, [], inputs=inputs, dnn=DnnOptions(1, 16, "pnorm", 2))
    assert_same(streamed(recognizer, samples, [12345]), recognizer.transcribe(samples.astype(np.int16)))
    assert not recognizer.stream(None, endpoint=None).finish().words


@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize("dither, shift_ms", [(0.0, 10.0), (2.0, 10.0), (0.0, 60.0)])
def test_frames_are_bit_identical_to_whole(snip_edges, dither, shift_ms):
    """Also if some samples between frames belong to no frame."""
    features = dataclasses.replace(
        FBANK,
        frame=dataclasses.replace(FBANK.frame, snip_edges=snip_edges, dither=dither, frame_shift=shift_ms),
    )
    for num in (0, 50, 199, 200, 280, 5000):
        samples = speech(SAID)[:num]
        extract = OnlineExtractor(features, "key")
        parts = [extract(part) for part in np.split(samples, [1, 100, 150, 1100])]
        assert np.array_equal(
            np.concatenate([*parts, extract(samples[:0], last=True)]),
            Extractor(features)([samples], ["key"])[0],
        )


def test_words_appear_during_speech_at_any_sampling_rate(tmp_path):
    recognizer = gaussians(tmp_path)
    stream, seen = recognizer.stream(16000, endpoint=None), []
    for block in np.array_split(speech(SAID, rate=16000) / 32768, 40):
        assert stream.accept(block) == []
        if not seen or stream.partial != seen[-1]:
            seen.append(stream.partial)
    assert " ".join(SAID[:3]) in seen and all(one.split() == SAID[: len(one.split())] for one in seen)
    found = stream.finish()
    assert stream.partial == "" and stream.finish() == found
    with pytest.raises(UserError, match="the stream has ended"):
        stream.accept(b"")
    assert found.text.split() == SAID and [word.begin_s for word in found.words] == pytest.approx(
        [begin_s(i) for i in range(6)], abs=0.031
    )
    assert_same(found, recognizer.transcribe(speech(SAID, rate=16000).astype(np.int16), 16000))


def test_word_times_with_frame_subsampling(tmp_path):
    """Times are those of the recording, in every format and in a second utterance of a stream."""
    packed = write_packed(tmp_path, InputOptions(cmvn="none"))
    save_network(packed, linear_network(*moments(), BINS, stride=3))
    write_model(
        packed / "final.mdl",
        transitions(),
        AmDiagGmm.from_moments(range(NUM_PDFS + 1), np.ones(NUM_PDFS), *moments()),
    )
    recognizer, pause_s = Recognizer(described(packed, NETWORK)), 3.0
    assert recognizer.system.acoustics.subsampling == 3
    whole = recognizer.transcribe(speech(SAID).astype(np.int16))
    ctm = [line.split() for line in FORMATS["ctm"].lines(whole)]
    (whole_json,) = map(json.loads, FORMATS["json"].lines(whole))
    clock = next(line for line in FORMATS["srt"].lines(whole) if "-->" in line)
    assert [line[4] for line in ctm] == SAID
    expected = [begin_s(i) for i in range(len(SAID))]
    assert [float(line[2]) for line in ctm] == pytest.approx(expected, abs=0.041)
    assert [float(line[3]) for line in ctm] == pytest.approx([WORD_S] * len(SAID), abs=0.041)
    assert [word["begin"] for word in whole_json["segments"][0]["words"]] == pytest.approx(
        expected, abs=0.041
    )
    assert float(clock[6:12].replace(",", ".")) == pytest.approx(expected[0], abs=0.041)
    stream, rng = recognizer.stream(), np.random.default_rng(0)
    ended = stream.accept(
        np.concatenate([speech(SAID), silence(pause_s, rng), speech(["mi", "re"]), silence(0.2, rng)]).astype(
            np.int16
        )
    )
    assert [segment.text.split() for segment in ended] == [SAID] and stream.partial == "mi re"
    words = stream.finish().words
    second_s = begin_s(len(SAID)) + pause_s
    expected += [second_s + begin_s(0), second_s + begin_s(1)]
    assert [word.begin_s for word in words] == pytest.approx(expected, abs=0.041)
    assert [word.end_s for word in words] == pytest.approx([begin + WORD_S for begin in expected], abs=0.041)


def test_long_block_is_copied_once(tmp_path, monkeypatch):
    """Twice the audio takes twice the copies, in one block as in short ones."""
    recognizer, copied = gaussians(tmp_path), Counter()

    def counting(parts):
        copied["numbers"] += sum(map(len, parts))
        return np.concatenate(parts)

    monkeypatch.setattr(
        "pyasr.recognition.stream.np", SimpleNamespace(**{**vars(np), "concatenate": counting})
    )
    part = np.concatenate([speech(["do", "re"]), silence(3.0, np.random.default_rng(0))]).astype(np.int16)
    found = {}
    for num in (4, 8):
        copied.clear()
        stream = recognizer.stream()
        stream.accept(np.tile(part, num))
        found[num] = copied["numbers"]
        assert len([segment for segment in stream.finish().segments if segment.words]) == num
    assert found[8] < 2.2 * found[4]


def test_utterances_end_without_losing_audio(tmp_path):
    recognizer = gaussians(tmp_path)
    rng = np.random.default_rng(0)
    samples = np.concatenate(
        [speech(["do", "re"]), silence(0.7, rng), speech(["mi"]), silence(7.0, rng), speech(["fa", "do"])]
    ).astype(np.int16)
    results = []
    for size in (160, 4001, len(samples)):
        stream = recognizer.stream()
        for begin in range(0, len(samples), size):
            stream.accept(samples[begin : begin + size])
        results.append(stream.finish())
    found = results[0]
    assert results[1] == results[2] == found
    assert [segment.text for segment in found.segments if segment.words] == ["do re", "mi", "fa do"]
    edges = [(segment.begin_s, segment.end_s) for segment in found.segments]
    assert [end for _, end in edges[:-1]] == [begin for begin, _ in edges[1:]] and edges[-1][
        1
    ] == pytest.approx(len(samples) / RATE)
    assert [word.end_s - word.begin_s for word in found.words] == pytest.approx([WORD_S] * 5, abs=0.031)
    assert found.words[2].begin_s == pytest.approx(begin_s(2) + 0.7 + begin_s(0), abs=0.031)


@pytest.mark.parametrize("when", ["accept", "finish"])
@pytest.mark.parametrize("failing", ["advance", "finish"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError("memory is not enough")])
def test_interrupted_stream_accepts_no_more_audio(when, failing, error, tmp_path, monkeypatch):
    """Otherwise, samples that were accepted before the interruption would be accepted twice."""
    stream, rng = gaussians(tmp_path).stream(), np.random.default_rng(0)
    stream.accept(np.concatenate([speech(["do"]), silence(3.0, rng), speech(["mi", "re"])]).astype(np.int16))
    rest = np.concatenate([speech(["fa"]), silence(3.0, rng)]).astype(np.int16)
    with pytest.raises(UserError, match="int16, or floats"):
        stream.accept(np.zeros(3, np.int32))
    steps = {"accept": lambda: stream.accept(rest), "finish": stream.finish}
    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, UserError)):
        patch.setattr(UtteranceSearch, failing, Mock(side_effect=error))
        steps[when]()
    for step in steps.values():
        with pytest.raises(
            UserError, match="^the stream was aborted by an error or an interruption; start another one$"
        ):
            step()
    assert [segment.text for segment in stream.segments] == ["do"]


def test_utterance_always_ends_and_empty_stream_has_no_words(tmp_path):
    recognizer = gaussians(tmp_path)
    stream = recognizer.stream(
        endpoint=EndpointOptions(utterance_s=1.0, sure_end_s=9.0, likely_end_s=9.0, any_end_s=9.0)
    )
    assert len(stream.accept(speech(SAID).astype(np.int16))) == 2
    assert recognizer.stream().finish().text == ""
    for num in (1, 100, 1000):
        assert streamed(recognizer, np.zeros(num), [1]).text == ""


def test_online_cmvn_equals_kaldi_definition():
    """The window of a frame is the last 600 frames. Missing frames are replaced by earlier frames of the
    speaker and up to 200 of the global statistics."""
    rng = np.random.default_rng(0)
    x, earlier, everyone = (
        rng.normal(mean, 2.0, (num, 3)).astype(np.float32)
        for mean, num in ((1.0, 900), (5.0, 300), (-4.0, 5000))
    )
    for heard in (earlier[:0], earlier[:50], earlier):
        online = OnlineInput(
            InputOptions(cmvn="speaker"), KnownBefore(cmvn_stats(heard), cmvn_stats(everyone))
        )
        found = np.concatenate([online(part, False) for part in np.split(x, [1, 7, 300])])
        for t in (0, 6, 299, 450, 599, 700, 899):
            window = x[max(t - 599, 0) : t + 1].astype(np.float64)
            of_speaker = min(600 - len(window), len(heard))
            of_all = min(600 - len(window) - of_speaker, 200)
            total = (
                window.sum(0)
                + of_all * everyone.mean(0, np.float64)
                + (of_speaker * heard.mean(0, np.float64) if of_speaker else 0.0)
            )
            assert found[t] == pytest.approx(x[t] - total / (len(window) + of_speaker + of_all), abs=1e-4)
        assert np.allclose(online.running.stats, cmvn_stats(x))


def test_speaker_normalised_model_streams_close_to_batch(tmp_path):
    packed = write_packed(tmp_path, InputOptions(cmvn="speaker"))
    means, variances = moments()
    centre = Extractor(FBANK)([speech(SAID)])[0]
    write_model(
        packed / "final.mdl",
        transitions(),
        AmDiagGmm.from_moments(range(NUM_PDFS + 1), np.ones(NUM_PDFS), means - centre.mean(0), variances),
    )
    write_matrix(packed / "global_cmvn", cmvn_stats(centre))
    recognizer = Recognizer(described(packed, GMM))
    assert (
        recognizer.transcribe(speech(SAID).astype(np.int16)).text.split()
        == streamed(recognizer, speech(SAID), [999]).text.split()
        == SAID
    )


def test_endpoint_rules():
    rules = EndpointOptions()
    assert not rules.ends(4.9, 4.9, False, np.inf) and rules.ends(5.0, 5.0, False, np.inf)
    assert (
        not rules.ends(0.4, 3.0, True, 0.0)
        and rules.ends(0.5, 3.0, True, 1.9)
        and not rules.ends(0.5, 3.0, True, 2.0)
    )
    assert (
        rules.ends(1.0, 3.0, True, 7.9)
        and not rules.ends(1.9, 3.0, True, np.inf)
        and rules.ends(2.0, 3.0, True, np.inf)
    )
    assert rules.ends(0.0, 20.0, True, np.inf)
    slow = EndpointOptions(sure_end_s=3.0, likely_end_s=2.5)  # the other rules also apply for small gaps
    assert slow.ends(2.0, 3.0, True, 0.0) and not slow.ends(1.9, 3.0, True, 0.0)
    assert EndpointOptions(sure_end_s=1.5).ends(1.0, 3.0, True, 0.0)


def test_models_that_need_whole_recordings_are_refused(tmp_path):
    pitch = FbankOptions(frame=FBANK.frame, mel=FBANK.mel, pitch=PitchOptions(add_pitch=True))
    for number, (make, sentence) in enumerate(
        [
            (
                lambda folder: network(folder, [], inputs=InputOptions(cmvn="speaker")),
                "--cmvn sliding or --cmvn none",
            ),
            (
                lambda folder: network(folder, ["blstm cells=4"]),
                "a blstm layer reads an utterance from its end",
            ),
            (lambda folder: gaussians(folder, pitch), "features include pitch"),
        ]
    ):
        with pytest.raises(UserError, match=sentence):
            make(tmp_path / str(number)).stream()
    with pytest.raises(UserError, match="int16, or floats"):
        gaussians(tmp_path / "good").stream().accept(np.zeros(3, np.int32))


def test_wav_pipes_are_read():
    samples = speech(SAID).astype(np.int16)
    for header in (RATE, None):
        file = io.BytesIO()
        if header:
            with wave.open(file, "wb") as out:
                out.setparams((2, 2, RATE, 0, "NONE", ""))
                out.writeframes(np.repeat(samples, 2).tobytes())
            file.seek(0)
        else:
            file = io.BytesIO(samples.tobytes() + b"x")
        name, rate, blocks = live_blocks(file, None if header else RATE)
        found = np.concatenate(list(blocks))
        assert (name, rate) == ("stdin", RATE) and np.array_equal((32768 * found).astype(np.int16), samples)
    for content, sentence in (
        (b"", "stdin: standard input is empty"),
        (b"no audio at all", "not a WAV stream"),
    ):
        with pytest.raises(UserError, match=sentence):
            live_blocks(io.BytesIO(content))


def wav_stream(samples: np.ndarray, *sizes: int) -> io.BytesIO:
    """WAV of one channel, with these sizes of the chunks RIFF and data."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        out.writeframes(samples.astype(np.int16).tobytes())
    for at, size in zip((4, 40), sizes):
        file.getbuffer()[at : at + 4] = struct.pack("<I", size)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "sizes", [(0, 0), (8, 0), (36, 0), (0x7FFFF024, 0x7FFFF000), (0xFFFFFFFF, 0xFFFFFFFF)]
)
def test_pipes_of_unknown_size_are_read(sizes):
    samples = speech(SAID)
    _, rate, blocks = live_blocks(wav_stream(samples, *sizes))
    assert rate == RATE and np.array_equal((32768 * np.concatenate(list(blocks))).astype(np.int16), samples)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_pipes_with_extensible_header_are_read(subtype):
    """For PCM, and with other chunks before the audio."""
    file, samples = io.BytesIO(), speech(SAID)
    soundfile.write(file, samples / 32768, RATE, subtype, format="WAVEX")
    content = file.getvalue()
    content = content[:12] + b"LIST" + struct.pack("<I", 5) + bytes(6) + content[12:]
    if subtype != "PCM_16":
        with pytest.raises(UserError, match="samples of 24 bits; a stream needs 16"):
            live_blocks(io.BytesIO(content))
        return
    _, rate, blocks = live_blocks(io.BytesIO(content))
    assert rate == RATE and np.array_equal((32768 * np.concatenate(list(blocks))).astype(np.int16), samples)
    for broken in (
        content[:30],
        content[:60],
        content.replace(b"\1\0\0\0\0\0\x10\0", b"\3\0\0\0\0\0\x10\0"),
        content[:12] + b"data" + content[:9],
    ):
        with pytest.raises(UserError, match="^stdin: "):
            live_blocks(io.BytesIO(broken))


def test_pipes_with_implausible_header_are_read_in_small_blocks():
    """A tenth of a second would take 10 GB. A block of any file has at most a megabyte."""
    content = bytearray(wav_stream(speech(SAID), 0xFFFFFFFF, 0xFFFFFFFF).getvalue())
    content[22:28] = struct.pack("<HI", 65535, 768_000)
    asked, file = [], io.BytesIO(content)
    file.read = lambda size: (asked.append(size), io.BytesIO.read(file, size))[1]
    _, rate, blocks = live_blocks(file)
    assert (
        rate == 768_000
        and sum(map(len, blocks)) == 2 * len(speech(SAID)) // (2 * 65535)
        and max(asked) <= 1 << 20
    )


def test_pipes_of_unknown_size_are_read_beyond_announced_size(monkeypatch):
    of_sox_arecord_and_ffmpeg = 0x7FFFF000, 0x80000000, 0xFFFFFFFF
    assert all(map(audio_sizes.is_of_stream, of_sox_arecord_and_ffmpeg)) and not audio_sizes.is_of_stream(
        1000
    )
    monkeypatch.setattr(audio_sizes, "_OF_STREAMS", (range(1000, 1001),))
    _, _, blocks = live_blocks(wav_stream(speech(SAID), 1036, 1000))
    assert sum(map(len, blocks)) == len(speech(SAID)) > 500


def test_pipes_with_short_count_are_checked():
    """Other chunks may follow the audio that the header counts; anything else is an error."""
    samples = speech(SAID)
    size = 2 * len(samples)
    chunks = b"LIST" + struct.pack("<I", 5) + bytes(6) + b"id3 " + struct.pack("<I", 4) + b"name"
    _, _, blocks = live_blocks(io.BytesIO(wav_stream(samples).getvalue() + chunks))
    assert sum(map(len, blocks)) == len(samples)
    for message in (size - 2, size // 2):
        _, _, blocks = live_blocks(wav_stream(samples, 36 + message, message))
        sentence = (
            f"^stdin: its header declares {message} bytes of audio, but further bytes follow that are "
            "not other chunks"
        )
        with pytest.raises(UserError, match=sentence):
            list(blocks)


def test_program_streams_standard_input(tmp_path, capsys):
    recognizer = gaussians(tmp_path)
    write_wav(
        tmp_path / "a.wav",
        np.concatenate([speech(["do", "re"]), silence(1.0, np.random.default_rng(0)), speech(["mi"])]),
    )
    capsys.readouterr()
    run_here("transcribe.py", "--stream", "true", recognizer.system.path, tmp_path / "a.wav", folder="utils")
    assert capsys.readouterr().out == "do re\nmi\n"
    run_here(
        "transcribe.py",
        "--stream",
        "true",
        "--format",
        "ctm",
        recognizer.system.path,
        tmp_path / "a.wav",
        folder="utils",
    )
    assert [line.split()[4] for line in capsys.readouterr().out.splitlines()] == ["do", "re", "mi"]
    # 1.1 s, whose last samples are known only at the end
    write_wav(tmp_path / "b.wav", speech(SAID, rate=44100)[:48510], 44100)
    run_here(
        "transcribe.py",
        "--stream",
        "true",
        "--utterance-s",
        1.0,
        recognizer.system.path,
        tmp_path / "b.wav",
        folder="utils",
    )
    assert capsys.readouterr().out == "do mi fa\n"
    with pytest.raises(
        UserError, match="--channels cannot be combined with --stream: it takes one recording after"
    ):
        run_here(
            "transcribe.py",
            "--stream",
            "true",
            "--channels",
            "each",
            recognizer.system.path,
            tmp_path / "a.wav",
            folder="utils",
        )
    with pytest.raises(UserError, match="--max-segment-s cannot be combined with --stream; omit it"):
        run_here(
            "transcribe.py",
            "--stream",
            "true",
            "--max-segment-s",
            9,
            recognizer.system.path,
            tmp_path / "a.wav",
            folder="utils",
        )
    with pytest.raises(UserError, match="--any-end-s has no effect without --stream; omit it"):
        run_here(
            "transcribe.py", "--any-end-s", 1, recognizer.system.path, tmp_path / "a.wav", folder="utils"
        )


class Microphone:
    """A pipe that stays open. After a number of bytes has been read, the program is interrupted."""

    def __init__(self, content: bytes, num_read: int):
        reading, self.writing = os.pipe()
        os.write(self.writing, content)
        self.pipe, self.num_read, self.fileno = os.fdopen(reading, "rb"), num_read, lambda: reading

    def read(self, size: int) -> bytes | None:
        content = self.pipe.read(size)
        before, self.num_read = self.num_read, self.num_read - len(content or b"")
        if before > 0 >= self.num_read:
            signal.raise_signal(signal.SIGINT)
        return content

    def close(self) -> None:
        self.pipe.close()
        os.close(self.writing)


@pytest.fixture
def default_sigint():
    """Restore the default action of SIGINT, which is ignored if the tests run in the background of a
    script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_sigint")
@pytest.mark.parametrize("flags", [(), ("--format", "ctm")])
def test_interrupted_program_writes_words_so_far(flags, tmp_path, capsys, monkeypatch):
    path = gaussians(tmp_path).system.path
    said = (
        np.concatenate([speech(["do", "re"]), silence(1.0, np.random.default_rng(0)), speech(["mi", "fa"])])
        .astype(np.int16)
        .tobytes()
    )
    # within the last word, the rest of which is in the pipe
    with closing(Microphone(said, len(said) - 8000)) as microphone:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=microphone))
        capsys.readouterr()
        with pytest.raises(KeyboardInterrupt, match="the audio received by then was transcribed"):
            run_here(
                "transcribe.py", "--stream", "true", "--raw-rate", RATE, *flags, path, "-", folder="utils"
            )
        words = capsys.readouterr().out.split()
        assert [word for word in words if word in SAID] == ["do", "re", "mi", "fa"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and os.get_blocking(
            microphone.fileno()
        )


@pytest.mark.usefixtures("default_sigint")
def test_blocking_read_is_interrupted():
    stop = threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    with (
        closing(Microphone(b"said", 1000)) as microphone,
        pytest.raises(KeyboardInterrupt),
        LiveInput(microphone) as file,
    ):
        stop.start()
        assert (file.read(10), file.read(10)) == (b"said", b"")


@pytest.mark.usefixtures("default_sigint")
def test_second_interruption_of_endless_file_ends_program():
    with (
        open("/dev/zero", "rb") as zero,
        pytest.raises(KeyboardInterrupt, match="^$"),
        LiveInput(zero) as file,
    ):
        assert len(file.read(10)) == 10
        signal.raise_signal(signal.SIGINT)
        assert sum(map(len, iter(lambda: file.read(1 << 18), b""))) == 1 << 20
        signal.raise_signal(signal.SIGINT)
        pytest.fail("held back")
