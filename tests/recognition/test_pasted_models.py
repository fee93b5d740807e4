"""Packed models on pasted features, against the recipe's features, scores and words of the same audio."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from steps_here import run_here
from tone_toys import (
    FBANK,
    FBANK_FLAGS,
    RATE,
    WORDS,
    begin_s,
    decode_and_score,
    linear_network,
    moments,
    save_network,
    speech,
    write_system,
    write_wav,
)

from pyasr import Recognizer
from pyasr.base.errors import UserError
from pyasr.base.outputs.fingerprint import read_done
from pyasr.feats.extraction.pasted import PasteOptions
from pyasr.hmm.model.model_file import MODEL
from pyasr.io.ark import ArkWriter, load_all
from pyasr.io.text_tables import read_table, write_table
from pyasr.nn.networks.acoustic import load_scorer
from pyasr.recognition.audio.pauses import CutOptions, cut_at_pauses
from pyasr.recognition.audio.recording_input import Recording, read_recordings
from pyasr.recognition.features.pasting import PastedFeatures
from pyasr.recognition.packed import read_info
from pyasr.recognition.packed_inputs import FeatureSource, PastedData

SAID = {
    name: [str(word) for word in np.random.default_rng(seed).choice(WORDS, 14)]
    for seed, name in enumerate(("a1", "a2", "b"))
}
# of each speaker's recordings
CUTS = {"a": CutOptions(), "b": CutOptions(max_segment_s=2.0, min_segment_s=1.0, min_pause_s=0.1)}
BINS = FBANK.mel.num_mel_bins
IVECTOR_FLAGS = (
    "--num-gauss",
    4,
    "--ivector-dim",
    2,
    "--num-iters",
    3,
    "--ubm-iters",
    6,
    "--ubm-split-iters",
    3,
    "--ubm-subsample",
    1,
    "--gaussian-min-count",
    10,
    "--deltas",
    1,
)


@pytest.fixture(scope="module")
def exp(tmp_path_factory) -> Path:
    """A folder with all outputs of the recipe before features are pasted, including model/ and its graph."""
    folder = tmp_path_factory.mktemp("pasted")
    data, sat = write_data(folder), write_system(folder)
    shutil.copyfile(sat / MODEL, sat / "final.alimdl")
    run_here("decode_fmllr.py", "--nj", 1, "--fmllr-min-count", 100, sat / "graph", data, sat / "decode")
    run_here(
        "make_fmllr_feats.py", "--nj", 1, "--transform-dir", sat / "decode", data, sat, folder / "data_fmllr"
    )
    fbank_of(folder, "data_fbank")
    run_here("train_ivector_extractor.py", "--nj", 1, *IVECTOR_FLAGS, data, folder / "ivector", threads=True)
    run_here(
        "extract_ivectors.py",
        "--nj",
        1,
        "--ivector-period",
        7,
        "--posterior-scale",
        0.5,
        data,
        folder / "ivector",
        folder / "ivectors",
    )
    return folder


def write_data(exp: Path) -> Path:
    """A data directory with features, for a speaker with two recordings and another whose recording is split
    into segments."""
    data, segments, text = exp / "data", {}, {}
    for number, (name, words) in enumerate(SAID.items()):
        wave = speech(words, number)
        write_wav(exp / f"{name}.wav", wave)
        for part, (begin, end) in enumerate(cut_at_pauses(wave, RATE, CUTS[name[0]])):
            segments[f"{name}-{part}"] = f"{name} {begin / RATE} {end / RATE}"
            text[f"{name}-{part}"] = " ".join(
                word for i, word in enumerate(words) if begin <= begin_s(i) * RATE < end
            )
    data.mkdir()
    tables = {
        "wav.scp": {name: str(exp / f"{name}.wav") for name in SAID},
        "segments": segments,
        "text": text,
        "utt2spk": {utt: utt[0] for utt in text},
    }
    for name, table in tables.items():
        write_table(data / name, table)
    run_here("make_fbank.py", "--nj", 1, *FBANK_FLAGS, data)
    run_here("compute_cmvn.py", data)
    return data


def fbank_of(exp: Path, name: str, *flags) -> Path:
    """A data directory with other log mel energies than those of data/."""
    data = exp / name
    data.mkdir()
    for table in ("wav.scp", "segments", "utt2spk", "text"):
        shutil.copyfile(exp / "data" / table, data / table)
    run_here("make_fbank.py", "--nj", 1, *FBANK_FLAGS[:2], "--num-mel-bins", 8, *flags, data)
    run_here("compute_cmvn.py", data)
    return data


def system_on(exp: Path, name: str, streams: list[str], *flags) -> Path:
    """Scored decode directory of a network on pasted data directories, the first of which has fMLLR features.

    The network is that of the tones on the first columns; the others move its scores by a little.
    """
    data, model = exp / f"data_{name}", exp / name
    run_here("paste_feats.py", "--nj", 1, *flags, data, *(exp / stream for stream in streams))
    means, variances = moments()
    others = next(iter(load_all(data / "feats.scp").values())).shape[1] - BINS
    noise = np.random.default_rng(3).standard_normal((len(means), others))
    model.mkdir()
    save_network(
        model,
        linear_network(
            np.hstack([means, noise]), np.hstack([variances, np.full_like(noise, 20.0)]), BINS + others
        ),
    )
    shutil.copyfile(exp / "model" / MODEL, model / MODEL)
    (model / "graph").symlink_to(exp / "model/graph")
    return decode_and_score(model, data)


def pack(decode: Path, out: Path) -> Path:
    run_here("pack_model.py", decode, out, folder="utils")
    return out


def recordings_of(exp: Path, speaker: str) -> list[Recording]:
    return [read_recordings(exp / f"{name}.wav")[0] for name in SAID if name[0] == speaker]


def assert_as_the_recipe(exp: Path, name: str, packed: Path) -> None:
    """Features, scores and words of both speakers equal those of the recipe."""
    model, expected = load_scorer(exp / name), load_all(exp / f"data_{name}/feats.scp")
    point = json.loads((exp / name / "decode/scoring/summary.json").read_text())["chosen"]["point"]
    words = read_table(exp / name / f"decode/scoring/hyp/{point[0]}_{point[1]}.txt")
    for speaker, cut in CUTS.items():
        recognizer, utts = Recognizer(packed, cut=cut), [utt for utt in words if utt[0] == speaker]
        system, recordings = recognizer.system, recordings_of(exp, speaker)
        waves = [
            one.samples[begin:end]
            for one in recordings
            for begin, end in cut_at_pauses(one.samples, RATE, cut)
        ]
        features = system.inputs(system.features(waves, utts))
        for utt, found in zip(utts, features, strict=True):
            np.testing.assert_allclose(found, expected[utt], rtol=1e-5, atol=1e-4)
            scores = model.to_log_likelihoods(model.log_posteriors(expected[utt]))
            np.testing.assert_allclose(system.acoustics.scores(found), scores, rtol=1e-4, atol=1e-3)
        segments = [segment for one in recognizer.transcribe_speaker(recordings) for segment in one.segments]
        assert [segment.text for segment in segments] == [words[utt] for utt in utts]
    assert words == read_table(exp / "data/text") and len(words) > len(SAID) + 1


def test_fmllr_fbank_and_online_ivectors(exp, tmp_path):
    flags = (
        "--cmvn",
        "none speaker",
        "--norm-vars",
        "false true",
        "--deltas",
        "0 2",
        "--vectors",
        exp / "ivectors/ivector_online.scp",
    )
    packed = pack(system_on(exp, "all", ["data_fmllr", "data_fbank"], *flags), tmp_path / "packed")
    recognizer = Recognizer(packed)
    assert_as_the_recipe(exp, "all", packed)
    files = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()} - {
        "model.json",
        ".done.json",
    }
    assert {file.name for file in read_info(packed).files} == {
        name for name in files if not name.startswith("log/")
    }
    assert files >= {
        "streams/1/features.json",
        "streams/1/first/final.alimdl",
        "streams/2/input.json",
        "vectors/final.ie",
        "input.json",
    }
    assert not {"features.json", "streams/2/first/final.mdl", "streams/1/first/graph/HCLG.fst"} & files
    assert recognizer.transcribe(np.zeros(10, np.int16)).text == ""
    short = Recording("short", "1", np.zeros(10, np.float32), recognizer.rate)
    first, second = recordings_of(exp, "a")
    alone = recognizer.transcribe_speaker([first, second])
    together = recognizer.transcribe_speaker([first, short, second])
    assert [together[0], together[2]] == alone and together[1].text == ""
    with pytest.raises(UserError, match="as it arrives: the model uses pasted features of several kinds"):
        recognizer.stream()


def test_speaker_ivectors_and_streams_of_different_lengths(exp, tmp_path):
    """The second stream has longer frames, so each of its utterances has fewer."""
    long = fbank_of(exp, "data_long", "--frame-length", 45)
    decode = system_on(
        exp,
        "offline",
        ["data_fmllr", long.name],
        "--length-tolerance",
        2,
        "--vectors",
        exp / "ivectors/ivector.scp",
    )
    packed = pack(decode, tmp_path / "packed")
    recognizer = Recognizer(packed)
    assert_as_the_recipe(exp, "offline", packed)
    assert len(recognizer.system.features([np.zeros(300, np.float32)], ["30 ms"])[0]) == 0
    pasting = recognizer.system.info.pasting
    with pytest.raises(
        UserError, match="^a1: streams whose numbers of frames differ by more than --length-tolerance 0; "
    ):
        PastedFeatures(packed, replace(pasting, paste=PasteOptions()))([speech(SAID["a1"])], ["a1"])
    file = packed / "streams/2/features.json"
    file.write_text(file.read_text().replace("8000", "16000"))
    with pytest.raises(UserError, match=r"audio of different rates \(8000, 16000, 8000 Hz\)"):
        PastedFeatures(packed, pasting)


def test_training_features_are_found_at_any_place(exp, tmp_path):
    """The archives of a subset of the training data are in their original place."""
    run_here("subset_data_dir.py", "--first", 1, exp / "data_fbank", tmp_path / "part", folder="utils")
    shutil.copytree(
        exp / "data_fbank",
        tmp_path / "dev",
        ignore=lambda folder, names: ["feats", "feats.scp", ".done.json"],
    )
    run_here(
        "make_fbank.py",
        "--nj",
        1,
        "--sample-frequency",
        8000,
        "--num-mel-bins",
        12,
        "--low-freq",
        900,
        tmp_path / "dev",
    )
    for trained in (exp / "data_fbank", tmp_path / "part"):
        assert FeatureSource.of(exp / "data_fbank", exp / "model", trained).first is None
        with pytest.raises(
            UserError, match=f"dev: its features have other options than those of {trained}, on which"
        ):
            FeatureSource.of(tmp_path / "dev", exp / "model", trained)


def test_inputs_unavailable_for_new_recordings_are_refused(exp, tmp_path):
    def refused(sentence: str, data: Path) -> None:
        with pytest.raises(UserError, match=sentence):
            pasted = PastedData.of(data)
            pasted.sources(exp / "model")
            pasted.vectors()

    def paste(name: str, *words) -> Path:
        run_here("paste_feats.py", "--nj", 1, tmp_path / name, *words)
        return tmp_path / name

    data = paste(
        "data", exp / "data_fmllr", exp / "data_fbank", "--vectors", exp / "ivectors/ivector_online.scp"
    )
    refused(
        "/data: pasted features, which a packed model neither pastes",
        paste("twice", exp / "data_fmllr", data),
    )
    strange = tmp_path / "strange"
    shutil.copytree(exp / "data_fmllr", strange, ignore=lambda folder, names: [".done.json"])
    with ArkWriter(strange / "feats.ark", strange / "feats.scp") as writer:
        for utt, matrix in load_all(data / "feats.scp").items():
            writer.write(utt, matrix)
    refused("strange: the options of its features are unknown", paste("untold", exp / "data_fmllr", strange))
    pasted = paste("pasted", exp / "data_fmllr", "--vectors", strange / "feats.scp", "--vector-period", 1)
    refused("strange/feats.scp: vectors not made by steps/extract_ivectors.py", pasted)
    (exp / "data_fbank/spk2warp").write_text("a 1.1\n")
    refused("data_fbank/spk2warp: the frequencies of its speakers are warped", data)
    (exp / "data_fbank/spk2warp").unlink()
    transforms = next(Path(name) for name in read_done(exp / "data_fmllr")["inputs"] if "trans." in name)
    for path, sentence in (
        (exp / "ivector/final.dubm", "ivectors was made from it; extract again"),
        (transforms, "data_fmllr was made from it; compute these features again"),
        (exp / "data_fmllr/utt2spk", "data was made from it; paste again"),
    ):
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        refused(f"{path.name}: has changed since .*{sentence}", data)
        path.write_bytes(before)
    PastedData.of(data).sources(exp / "model")
